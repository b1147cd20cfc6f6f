"""The faults that a simulated fabric can have, and the parser of their names and values."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ibpulse.base.errors import ConfigError

EXAMPLE = '{"idle-rail": ["mlx5_3"], "slow-rail": {"mlx5_2": 0.5}}'
SHARES = ("slow-rail", "congested", "bit-errors")


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table. `default` is the value if devices are merely listed; `unit` describes the value."""

    text: str
    default: float = 1.0
    unit: str = ""


FAULTS: Mapping[str, Fault] = {
    "idle-rail": Fault("no traffic on the port; the link stays up"),
    "slow-rail": Fault("the port carries only part of its traffic (default: 0.5)", 0.5, "part of the traffic, 0 to 1"),
    "link-flap": Fault("the link is down; port state and rate report it too"),
    "trained-down": Fault("the link has half its lanes: half its rate, and half its traffic"),
    "vanish": Fault("the device disappears; its counters restart at zero when it comes back"),
    "reset": Fault("the counters restart at zero, once each time the fault is added for the device"),
    "stuck": Fault("the counters freeze, and resume from the frozen value"),
    "refresh": Fault(
        "the counters are updated only every VALUE ms (default: 100)", 100.0, "milliseconds between new values"
    ),
    "congested": Fault(
        "the port waits VALUE of the time in which it sends (default: 0.0005); on Ethernet, packets are marked",
        # 0.7 s of waiting fill the counter of a port of 400 Gb/s
        0.0005,
        "part of the time, 0 to 1",
    ),
    "bit-errors": Fault(
        "a cable or a transceiver is bad: VALUE symbol errors per bit received (default: 1e-6)",
        1e-6,
        "errors per bit, 0 to 1",
    ),
    "unanswered": Fault(
        "the port carries nothing, and retransmits VALUE times per second (default: 4): nobody acknowledges",
        4.0,
        "retransmissions per second",
    ),
    "einval": Fault("the counters are unreadable: files contain 'N/A (no PMA)'"),
}


@dataclass(frozen=True, slots=True)
class DeviceFaults:
    """The current faults of one device."""

    factor: float = 1.0
    down: bool = False
    vanished: bool = False
    reset: bool = False
    stuck: bool = False
    refresh_ns: int = 0
    unreadable: bool = False
    trained_down: bool = False
    congested: float = 0.0
    bit_errors: float = 0.0
    unanswered: float = 0.0

    def __str__(self) -> str:
        words = {
            f"{self.factor:g} of its traffic": self.factor != 1,
            "link down": self.down,
            "link trained down": self.trained_down,
            "vanished": self.vanished,
            "counters reset": self.reset,
            "counters stuck": self.stuck,
            f"counters refreshed every {self.refresh_ns / 1e6:g} ms": self.refresh_ns > 0,
            f"waits {self.congested:g} of the time": self.congested > 0,
            f"{self.bit_errors:g} errors per bit": self.bit_errors > 0,
            f"retransmits {self.unanswered:g} times per second": self.unanswered > 0,
            "unreadable": self.unreadable,
        }
        return ", ".join(word for word, present in words.items() if present) or "no faults"

    @property
    def flow(self) -> float:
        """The share of the traffic that the counters count."""
        return 0.0 if self.stuck else self.carried

    @property
    def carried(self) -> float:
        """The share of the traffic that the port carries, counted or not."""
        return 0.0 if self.down or self.unanswered else self.factor * (0.5 if self.trained_down else 1.0)


HEALTHY = DeviceFaults()


def parse_faults(text: str, devices: Collection[str], place: str) -> dict[str, DeviceFaults]:
    """The faults of each device that has any. An empty text means none.

    Raises ConfigError with every error in the text, each naming `place`.
    """
    try:
        document = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise ConfigError([f"{place}: not JSON ({error}); write for example {EXAMPLE}"]) from error
    if not isinstance(document, dict):
        raise ConfigError([f"{place}: holds {type(document).__name__}, not an object; write for example {EXAMPLE}"])
    wrong: list[str] = []
    values: dict[str, dict[str, float]] = {}
    for name, entry in document.items():
        if name not in FAULTS:
            wrong.append(f'{place}: unknown fault "{name}"; choose from {", ".join(FAULTS)}')
            continue
        for device, value in _listed(name, entry, place, wrong).items():
            if device in devices:
                values.setdefault(device, {})[name] = value
            else:
                wrong.append(f'{place}: {name}: device "{device}" is not in this fabric')
    if wrong:
        raise ConfigError(wrong)
    return {device: _combine(named) for device, named in values.items()}


def _listed(name: str, entry: object, place: str, wrong: list[str]) -> dict[str, float]:
    if isinstance(entry, list):
        return {str(device): FAULTS[name].default for device in entry}
    if isinstance(entry, dict):
        bad = {device: value for device, value in entry.items() if not _in_range(name, value)}
        wanted = FAULTS[name].unit or "1, or list the device"
        wrong += [
            f"{place}: {name}: {device}: {json.dumps(value)} is not valid; give {wanted}"
            for device, value in bad.items()
        ]
        return {device: float(value) for device, value in entry.items() if device not in bad}
    wrong.append(
        f"{place}: {name}: {json.dumps(entry)} is not valid; give devices as a list, or with values as an object"
    )
    return {}


def _in_range(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1 if name in SHARES else value > 0


def _combine(named: Mapping[str, float]) -> DeviceFaults:
    return DeviceFaults(
        factor=0.0 if "idle-rail" in named else named.get("slow-rail", 1.0),
        down="link-flap" in named,
        trained_down="trained-down" in named,
        vanished="vanish" in named,
        reset="reset" in named,
        stuck="stuck" in named,
        refresh_ns=round(named.get("refresh", 0.0) * 1e6),
        unreadable="einval" in named,
        congested=named.get("congested", 0.0),
        bit_errors=named.get("bit-errors", 0.0),
        unanswered=named.get("unanswered", 0.0),
    )
