"""What doctor is told by the settings, as plain values. It must not read any setting itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ibpulse.sysfs.overrides import Override


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """The settings that the daemon would run with, and how doctor looks.

    `look` is whether the counters are sampled for some seconds; without it only files are looked at. `keep` names
    directories beside the ring's that will hold files, with the bytes that these may take. `root` is the file system
    under which /proc lies.
    """

    sysfs: Path = Path("/sys")
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rails: tuple[str, ...] = ()
    overrides: Mapping[str, Override] = field(default_factory=dict)
    interval_ns: int = 10_000_000
    history_ns: int = 300_000_000_000
    scheduler: str = "other"
    cpu: int | None = None
    ring_dir: Path = Path("/dev/shm/ibpulse")
    keep: tuple[tuple[str, Path, int], ...] = ()
    host: str = ""
    port: int = 10055
    active_bytes_per_second: float = 0.1e9
    look: bool = True
    root: Path = Path("/")
