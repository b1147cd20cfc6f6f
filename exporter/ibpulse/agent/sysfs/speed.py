"""Data rate of one direction of a port, from its `rate` file or its network device.

The `rate` file shows lanes times a number per lane. Up to QDR that number is the signalling rate, of which 8b/10b
coding leaves 80 %; FDR is rounded up (14 for 13.64); from EDR on it is the data rate.

Known pitfalls:

* An InfiniBand port that is down shows `10 Gb/sec (4X SDR)`; an mlx5 Ethernet port that is down, or whose mode the
  kernel does not know, shows `40 Gb/sec (4X QDR)`. Therefore only an ACTIVE port has a rate.
* On Ethernet the label is only approximate, and its coding is not InfiniBand's. The speed of the network device takes
  precedence; without it the number is used unchanged, except mlx5's `40 Gb/sec (4X QDR)`.
* The kernel prints SDR for a speed that it does not know, and older EFA drivers print `100 Gb/sec (4X EDR)` for any
  device. Such rates are used, with a remark.
"""

from __future__ import annotations

import re

BYTES_PER_SECOND_PER_MBIT = 125_000.0
BYTES_PER_SECOND_PER_GBIT = 125_000_000.0
ETHERNET = "Ethernet"
INFINIBAND = "InfiniBand"
UNKNOWN_ETHERNET_MODE = "40 Gb/sec (4X QDR)"
EFA_DEFAULT = "100 Gb/sec (4X EDR)"

# Share of the printed rate that is data. FDR: 14.0625 Gbaud x 64/66, printed as 14.
CODING = {"SDR": 0.8, "DDR": 0.8, "QDR": 0.8, "FDR": 14.0625 * 64 / 66 / 14}

_RATE = re.compile(r"([0-9]{1,7}(?:\.5)?) Gb/sec \(([0-9]{1,3})X(?: ([A-Za-z0-9]+))?\)")


def parse_rate(text: str, *, coded: bool = True) -> float | None:
    """Data rate in bytes per second of a `rate` text such as `400 Gb/sec (4X NDR)`; None for another form and for 0.

    Without `coded`, as on Ethernet, the label says nothing about the coding, and the number is the data rate. Kernels
    up to 4.x print SDR without its name.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    gigabits, _, name = match.groups()
    share = CODING.get(name or "SDR", 1.0) if coded else 1.0
    return float(gigabits) * share * BYTES_PER_SECOND_PER_GBIT or None


def parse_netdev_speed(text: str) -> float | None:
    """Bytes per second of a network device's `speed` text in Mb/s; None for -1, 0 and text that is not a number."""
    known = text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0
    return int(text) * BYTES_PER_SECOND_PER_MBIT if known else None


def find_data_rate(link_layer: str, driver: str, rate_text: str, speed_text: str) -> float | None:
    """Data rate in bytes per second of an ACTIVE port, or None without a reliable source."""
    if link_layer != ETHERNET:
        return parse_rate(rate_text)
    speed = parse_netdev_speed(speed_text)
    if speed is not None:
        return speed
    if driver.startswith("mlx5") and rate_text == UNKNOWN_ETHERNET_MODE:
        return None
    return parse_rate(rate_text, coded=False)


def remark_on_rate(link_layer: str, driver: str, rate_text: str, rate: float | None) -> str:
    """A remark on an unreliable rate of an ACTIVE port, or an empty string."""
    if rate is None:
        return f"its rate is unknown (rate file: '{rate_text}'), so it has no utilisation." if rate_text else ""
    # kernels up to 4.x omit the name of SDR
    if link_layer == INFINIBAND and rate_text.endswith(("SDR)", "X)")):
        return f"the kernel reports '{rate_text}', as it also does for a speed that it does not know: check the link."
    if driver == "efa" and rate_text == EFA_DEFAULT:
        return f"older EFA drivers report '{rate_text}' for every device: on a faster one the utilisation is too high."
    return ""
