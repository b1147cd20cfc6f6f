"""PCIe links from the kernel's reports of both ends: their bandwidth and their faults."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ibpulse.agent.sysfs.files import read_link, read_value
from ibpulse.base.text import link_rate_text
from ibpulse.core.model import PcieLink, Verdict

Number = TypeVar("Number", int, float)

HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

# Ports that exist only in a virtual machine and report invented speeds: any device of Red Hat, and TI's XIO3130 switch
# and Intel's 5520 root port as emulated by QEMU.
EMULATED_VENDOR = "0x1b36"
EMULATED_PORTS = frozenset({("0x104c", "0x8232"), ("0x104c", "0x8233"), ("0x8086", "0x3420")})

# Share of the bits that are data: 8b/10b up to Gen2, 128b/130b up to Gen5, none lost to coding from Gen6 on.
CODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130}
BITS_PER_BYTE = 8

# The kernel prints an unknown width as 0 (current) or 255 (maximum; PCIE_LNK_WIDTH_UNKNOWN).
UNKNOWN_WIDTHS = (0, 255)

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s(?: PCIe)?")
DOWNTRAINED = "downtrained"
SLOW_SLOT = "slow_slot"
UNKNOWN = "unknown"
WORDS = {
    DOWNTRAINED: "a link runs slower or narrower than both its ends can",
    SLOW_SLOT: "even at maximum speed, the path carries less than the data rate of the device's fastest port",
    UNKNOWN: "the kernel does not report the speed of the card's link, as in most virtual machines",
}
SLOW_TEXT = "its PCIe path carries {best} at most, less than the {rate} of its port: move the card to a faster slot."
# those that an operator can fix
LINK_FAULTS = (DOWNTRAINED, SLOW_SLOT)
_UNKNOWN = Verdict(
    UNKNOWN,
    "the kernel does not report the speed of its PCIe link, as in a virtual machine: check it on the host, or set it "
    "in topology.file.",
)


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link as reported by its PCI function; unknown values are None."""

    address: str
    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


def find_chain(real_path: str) -> tuple[str, ...]:
    """The host bridge and the PCI functions on a real path, from the root down; empty if there are none.

    A domain behind a controller (VMD) begins with a host bridge of its own, so the last one on the path counts.
    """
    parts = Path(real_path).parts
    bridges = [place for place, part in enumerate(parts) if HOST_BRIDGE.fullmatch(part)]
    if not bridges:
        return ()
    functions = tuple(part for part in parts[bridges[-1] + 1 :] if ADDRESS.fullmatch(part))
    return (parts[bridges[-1]], *functions) if functions else ()


def find_function_folder(real_path: str) -> str:
    """The folder of the lowest PCI function on a real path (auxiliary devices are below it); empty without one."""
    path = Path(real_path)
    return next((str(part) for part in (path, *path.parents) if ADDRESS.fullmatch(part.name)), "")


def read_links(function_folder: str) -> tuple[PcieLink, ...]:
    """The PCIe links from the root down to the function at this real path."""
    folders = []
    folder = Path(function_folder)
    while ADDRESS.fullmatch(folder.name):
        folders.append(str(folder))
        folder = folder.parent
    ends = [read_end(each) for each in folders]
    if ends and read_link(Path(function_folder, "physfn")):
        # a virtual function has no link of its own
        physical = read_end(os.path.realpath(os.path.join(function_folder, "physfn")))
        if ends[0].speed_gts is None:
            ends[0] = replace(physical, address=ends[0].address)
    return pair_ends(ends[::-1])


def read_end(folder: str) -> End:
    """The link end of the function in `folder`; without values for a port that exists only in a virtual machine."""
    address = Path(folder).name
    identity = (read_value(folder, "vendor"), read_value(folder, "device"))
    if identity[0] == EMULATED_VENDOR or identity in EMULATED_PORTS:
        return End(address)
    return End(
        address,
        parse_speed(read_value(folder, "current_link_speed")),
        parse_width(read_value(folder, "current_link_width")),
        parse_speed(read_value(folder, "max_link_speed")),
        parse_width(read_value(folder, "max_link_width")),
    )


def pair_ends(ends: Sequence[End]) -> tuple[PcieLink, ...]:
    """The links along a path of functions, from the root down.

    The lowest function is the card. Above it are alternately the port that it is plugged into and the upstream port of
    that switch, up to the root port. If the root is hidden, the uppermost link has only one end.
    """
    links = [_make_link(ends[place], ends[place - 1] if place else End("")) for place in range(len(ends) - 1, -1, -2)]
    return tuple(links[::-1])


def parse_speed(text: str) -> float | None:
    """Gigatransfers per second of `32.0 GT/s PCIe`, or of the older `32 GT/s`; None for `Unknown` and the like."""
    match = _SPEED.fullmatch(text)
    return (float(match[1]) or None) if match else None


def parse_width(text: str) -> int | None:
    """Number of lanes; None if unknown."""
    known = text.isascii() and text.isdigit() and len(text) <= 3 and int(text) not in UNKNOWN_WIDTHS
    return int(text) if known else None


def count_bytes(speed_gts: float | None, width: int | None) -> float | None:
    """Bytes per second of one direction after line coding: 31.5e9 for 16 GT/s on 16 lanes. None if unknown.

    Same as the kernel's `PCIE_SPEED2MBS_ENC`; packet headers and flow control take up to a tenth of it.
    """
    if speed_gts is None or width is None:
        return None
    return speed_gts * 1e9 * width * CODING.get(speed_gts, 1.0) / BITS_PER_BYTE


def narrowest(links: Sequence[PcieLink]) -> tuple[float | None, float | None]:
    """Bytes per second of the whole path: now, and at the maximum of both ends of each link.

    None if the card's own link is unknown; unknown links above it are ignored.
    """
    if not links:
        return None, None
    now = [link.bytes_per_second for link in links if link.bytes_per_second is not None]
    most = [link.max_bytes_per_second for link in links if link.max_bytes_per_second is not None]
    return (
        None if links[-1].bytes_per_second is None else min(now),
        None if links[-1].max_bytes_per_second is None else min(most),
    )


def _make_link(lower: End, upper: End) -> PcieLink:
    speed = _first(lower.speed_gts, upper.speed_gts)
    width = _first(lower.width, upper.width)
    max_speed = _least(lower.max_speed_gts, upper.max_speed_gts)
    max_width = _least(lower.max_width, upper.max_width)
    return PcieLink(
        address=lower.address,
        upper=upper.address,
        speed_gts=speed,
        width=width,
        max_speed_gts=max_speed,
        max_width=max_width,
        bytes_per_second=count_bytes(speed, width),
        max_bytes_per_second=count_bytes(max_speed, max_width),
    )


def _first(*values: Number | None) -> Number | None:
    return next((value for value in values if value is not None), None)


def _least(*values: Number | None) -> Number | None:
    return min((value for value in values if value is not None), default=None)


def judge(links: Sequence[PcieLink], now: float | None, most: float | None, rate: float | None) -> tuple[Verdict, ...]:
    """Faults of a device's PCIe path.

    `now` and `most` are the bytes per second of the narrowest link, `rate` is that of the device's fastest port; None
    if unknown.
    """
    card = links[-1] if links else None
    slow = [link for link in links if is_downtrained(link)]
    verdicts = [Verdict(DOWNTRAINED, _say_downtrained(link, link is card, rate)) for link in slow]
    best = now if most is None else most
    if best is not None and rate is not None and best < rate:
        text = SLOW_TEXT.format(best=link_rate_text(best), rate=link_rate_text(rate))
        verdicts.append(Verdict(SLOW_SLOT, text))
    if now is None and links:
        verdicts.append(_UNKNOWN)
    return tuple(verdicts)


def is_downtrained(link: PcieLink) -> bool:
    """Whether the link runs slower or narrower than both its ends can."""
    return _is_below(link.speed_gts, link.max_speed_gts) or _is_below(link.width, link.max_width)


def write_link(speed_gts: float | None, width: int | None) -> str:
    """A link as text, such as `16 GT/s x16`; an unknown part is a question mark."""
    return f"{'?' if speed_gts is None else f'{speed_gts:g}'} GT/s x{'?' if width is None else width}"


def _say_downtrained(link: PcieLink, of_card: bool, rate: float | None) -> str:
    what = "its PCIe link" if of_card else f"the PCIe link of the switch {link.address} above it"
    now, most = write_link(link.speed_gts, link.width), write_link(link.max_speed_gts, link.max_width)
    carried = link.bytes_per_second
    short = carried is not None and rate is not None and carried < rate
    effect = (
        f", and carries {link_rate_text(carried)} of its port's {link_rate_text(rate)}"
        if short and carried and rate
        else ""
    )
    return f"{what} runs at {now}, but both ends support {most}{effect}: reseat the card, or check the riser and slot."


def _is_below(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value < most
