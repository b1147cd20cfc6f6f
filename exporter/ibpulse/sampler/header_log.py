"""What the samplers tell in the ring's header, written to the log once per change. It changes nothing."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping

from ibpulse.ring import layout as at
from ibpulse.ring.file import RingFile
from ibpulse.sampler.process import MAIN_LANE, NOT_ASKED

log = logging.getLogger(__name__)

REQUESTS = (("sampler.scheduler=fifo", at.L_FIFO), ("sampler.cpu", at.L_PINNED))


class HeaderLog:
    """Remembers what was said about the ports of a ring, to say only what is new."""

    def __init__(self, ring: RingFile) -> None:
        self._ring = ring
        self._statuses: dict[str, int] = {}
        self._refused: set[str] = set()

    def tell(self, slots: Mapping[str, int]) -> None:
        """Log what changed about these ports and about what the kernel refused to the main sampler."""
        for name, slot in slots.items():
            status = self._ring.slot_word(slot, at.S_STATUS)
            if status != self._statuses.get(name, at.OK):
                self._tell_status(name, slot, status)
            self._statuses[name] = status
        for what, which in REQUESTS:
            refusal = self._ring.words[at.lane_at(MAIN_LANE) + which]
            if refusal not in (0, NOT_ASKED) and what not in self._refused:
                self._refused.add(what)
                log.warning("%s was refused (%s); the sampler goes on without it", what, os.strerror(refusal))

    def _tell_status(self, name: str, slot: int, status: int) -> None:
        reason = explain_errno(self._ring.slot_word(slot, at.S_LAST_ERRNO))
        if status == at.LEFT_ALONE:
            log.warning(
                "port %s: a counter file keeps failing (%s); it is left alone and tried again within a minute. "
                "If it never answers, put the port into ports.exclude",
                name,
                reason,
            )
        elif status == at.GONE:
            log.warning("port %s: its device went away (%s); looking for it", name, reason)
        else:
            log.info("port %s: its counter files answer again", name)


def explain_errno(number: int) -> str:
    """An errno in words, such as `EINVAL: Invalid argument`; EBADMSG stands for text that is no number."""
    if number == errno.EBADMSG:
        return "what it holds is not a number"
    return f"{errno.errorcode.get(number, number)}: {os.strerror(number)}"
