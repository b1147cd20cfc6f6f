"""What is wrong with the PCIe links of a device, in words. It must not read any file.

A sentence names no address of the card itself, so that devices that suffer the same stand in one notice.
"""

from __future__ import annotations

from collections.abc import Sequence

from ibpulse.model import PcieLink, Verdict

DOWNTRAINED = "downtrained"
SLOW_SLOT = "slow_slot"
UNKNOWN = "unknown"

WORDS = {
    DOWNTRAINED: "a link runs slower or narrower than both its ends can",
    SLOW_SLOT: "the way carries less than the data rate of the device's fastest port, even if all links did their most",
    UNKNOWN: "the kernel does not say how fast the card's link is, as in most virtual machines",
}
# those that somebody can do something about
FAULTS = (DOWNTRAINED, SLOW_SLOT)

_UNKNOWN = Verdict(
    UNKNOWN,
    "the kernel does not say how fast its PCIe link is, as in a virtual machine: look on the host, or name it in "
    "topology.file.",
)


def judge(links: Sequence[PcieLink], now: float | None, most: float | None, rate: float | None) -> tuple[Verdict, ...]:
    """What is wrong with the way of a device.

    `now` and `most` are the bytes per second of the narrowest link, `rate` is that of the device's fastest port; None
    for what is not known.
    """
    card = links[-1] if links else None
    slow = [link for link in links if is_downtrained(link)]
    verdicts = [Verdict(DOWNTRAINED, _say_downtrained(link, link is card, rate)) for link in slow]
    best = now if most is None else most
    if best is not None and rate is not None and best < rate:
        verdicts.append(Verdict(SLOW_SLOT, _say_slow(best, rate)))
    if now is None and links:
        verdicts.append(_UNKNOWN)
    return tuple(verdicts)


def is_downtrained(link: PcieLink) -> bool:
    """Whether the link runs slower or narrower than both its ends can."""
    return _is_below(link.speed_gts, link.max_speed_gts) or _is_below(link.width, link.max_width)


def write_link(speed_gts: float | None, width: int | None) -> str:
    """A link as people write it, `16 GT/s x16`; a part that is not known is a question mark."""
    return f"{'?' if speed_gts is None else f'{speed_gts:g}'} GT/s x{'?' if width is None else width}"


def write_rate(bytes_per_second: float) -> str:
    """A rate with three digits, `31.5 GB/s`."""
    return f"{bytes_per_second / 1e9:.3g} GB/s"


def _say_downtrained(link: PcieLink, of_card: bool, rate: float | None) -> str:
    what = "its PCIe link" if of_card else f"the PCIe link of the switch {link.address} above it"
    now, most = write_link(link.speed_gts, link.width), write_link(link.max_speed_gts, link.max_width)
    carried = link.bytes_per_second
    short = carried is not None and rate is not None and carried < rate
    effect = (
        f", and carries {write_rate(carried)} of its port's {write_rate(rate)}" if short and carried and rate else ""
    )
    return f"{what} runs at {now}, though both ends can do {most}{effect}: reseat the card, or look at riser and slot."


def _say_slow(best: float, rate: float) -> str:
    return (
        f"its PCIe path carries {write_rate(best)} at best, less than the {write_rate(rate)} of its port: "
        "move the card to a faster slot, or expect no more."
    )


def _is_below(value: float | None, most: float | None) -> bool:
    return value is not None and most is not None and value < most
