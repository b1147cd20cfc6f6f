"""Names of captures in requests, and refusals of those that are none. It must not open a file."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ibpulse.capture.names import CaptureName, parse_name
from ibpulse.capture.recorder import Pending
from ibpulse.errors import CaptureError
from ibpulse.web.captures_answer import PATH
from ibpulse.web.problems import ProblemError

log = logging.getLogger(__name__)


def find_name(name: str) -> CaptureName:
    """The name of a capture that a path has.

    Raises:
        ProblemError: it is the name of none.
    """
    parsed = parse_name(name)
    if parsed is None:
        raise unknown(name, ())
    return parsed


def unknown(name: str, pending: Sequence[Pending]) -> ProblemError:
    """The refusal of a name that no whole capture has."""
    if any(str(each.name) == name for each in pending):
        return ProblemError("unknown-capture", 404, f"Capture {name} is being taken; ask again in a few seconds.")
    return ProblemError("unknown-capture", 404, f"There is no capture {name[:100]!r}; {PATH} lists those there are.")


def unavailable(error: CaptureError) -> ProblemError:
    """The refusal of a request that the disk refused."""
    # the sentence names places on this node: it is for the log
    log.error("captures: %s", error)
    return ProblemError("no-captures", 503, "The captures cannot be read or changed now; the server's log says why.")
