"""What the reads of one device suffer, as a value that travels as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ibpulse.workbench.simulate.faults import DeviceFaults

EVERY_FILE = ("*",)


@dataclass(frozen=True)
class Rule:
    """Faults of a device. All can be combined; what is not named is healthy.

    `hang_seconds`, `delay_seconds`, `errno` and `value` act on the files named in `files` (the last part of the path;
    empty means every file of `counters/`, and `EVERY_FILE` all files). A hung read ends when its time is over or the
    device's rule is replaced, and only then is the value computed. A delayed read takes so long, and its value is that
    of any moment of it; with `quickest_seconds` it takes any time between the two, evenly by its logarithm. `value`
    stands in place of the counter: 2**32 - 1 is a saturated one, a small one a decrease.
    `texts` stand in place of the texts of files, such as `{"rate": "200 Gb/sec (4X HDR)\\n"}`; an empty one makes an
    empty file. `name` and `port` stand in place of the names of the device in `class/infiniband` and of the directory
    of its port; open handles go on. `flapped` takes the link down and up again at once, which only `link_downed` shows.
    The others act as in a simulated fabric: `factor` is the part of the traffic that is counted, `down` takes the link
    down, `vanished` removes the device (open handles give ENODEV for ever), `reset` sets the counters to zero once,
    `stuck` stops them, `refresh_ns` shows new values only at multiples of it.
    """

    hang_seconds: float = 0.0
    delay_seconds: float = 0.0
    quickest_seconds: float = 0.0
    errno: int = 0
    value: int | None = None
    files: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    port: str = ""
    factor: float = 1.0
    down: bool = False
    flapped: bool = False
    vanished: bool = False
    reset: bool = False
    stuck: bool = False
    refresh_ns: int = 0

    @property
    def faults(self) -> DeviceFaults:
        """The part that the counters know of."""
        return DeviceFaults(self.factor, self.down, self.vanished, self.reset, self.stuck, self.refresh_ns)

    def touches(self, file: str, counter: bool) -> bool:
        """True when `hang_seconds`, `delay_seconds`, `errno` and `value` act on this file."""
        return file in self.files or self.files == EVERY_FILE if self.files else counter

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: dict[str, Any]) -> Rule:
        return Rule(**{**document, "files": tuple(document.get("files", ()))})
