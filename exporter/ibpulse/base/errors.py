"""The errors that ibpulse raises on purpose, all of them directly below one root.

Messages name the thing, its value, the place, and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

DaemonFault = Literal["no-answer", "refused", "bad-answer"]
"""How a daemon fails: silence; no password or certificate that one of both accepts; not what was asked for."""


class IbpulseError(Exception):
    """Any of the others; the command line prints it and exits with its `exit_code`."""

    exit_code = 1


class ConfigError(IbpulseError):
    """Settings that cannot be used; carries every fault found, not only the first."""

    exit_code = 2

    def __init__(self, faults: Sequence[str] | str) -> None:
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(self.faults))


class FabricError(IbpulseError):
    """A sysfs tree that cannot be read as one."""


class RingError(IbpulseError):
    """A ring file that is not one, is of another version, or does not fit."""


class SamplerError(IbpulseError):
    """The sampler process could not be started."""


class RecordingError(IbpulseError):
    """A recording that cannot be read or written."""


class DatasetError(IbpulseError):
    """A dataset of many nodes that cannot be read or written."""


class BenchmarkError(IbpulseError):
    """A benchmark's file that cannot be read, or not be compared."""


class TraceError(IbpulseError):
    """A profiler's trace that cannot be read, or not be compared with a recording."""


class PictureError(IbpulseError):
    """A picture that cannot be drawn or written."""


class CaptureError(IbpulseError):
    """A capture that cannot be taken; `busy` when it could be in a while."""

    def __init__(self, reason: str, *, busy: bool = False) -> None:
        self.busy = busy
        super().__init__(reason)


class DaemonError(IbpulseError):
    """A running daemon that does not answer, refuses, or answers something else; `status` is that of its refusal, or 0.

    `kind` is by default that of the status: only a missing or wrong password is `refused`.
    """

    def __init__(self, reason: str, status: int = 0, kind: DaemonFault | None = None) -> None:
        self.status = status
        self.kind: DaemonFault = kind or (
            "no-answer" if not status else "refused" if status in (401, 403) else "bad-answer"
        )
        super().__init__(reason)


class DiscoveryError(IbpulseError):
    """A list of nodes that cannot be read; carries the faults found."""

    def __init__(self, faults: Sequence[str] | str) -> None:
        self.faults = (faults,) if isinstance(faults, str) else tuple(faults)
        super().__init__("; ".join(self.faults))


class RequestError(IbpulseError):
    """A request that is refused, with the HTTP status that says why."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        super().__init__(detail)
