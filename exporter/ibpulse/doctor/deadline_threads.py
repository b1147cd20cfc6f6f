"""Questions asked in threads of their own, with one deadline for all. It must not know what is asked.

A read of a sick device blocks for a minute or more and nothing can interrupt it. A thread that is late is left behind:
it is a daemon thread, so it does not hold up the end of the process either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What was answered in time by name, and the names of those that were not, or that failed with an OSError.

    All in the order in which the questions were given.
    """

    given: Mapping[str, T]
    late: tuple[str, ...]
    failed: tuple[str, ...] = ()


def ask_all(questions: Mapping[str, Callable[[], T]], seconds: float) -> Answers[T]:
    """Ask all at once and wait for their answers, together no longer than this."""
    given: dict[str, T] = {}
    failed: list[str] = []

    def ask(name: str, question: Callable[[], T]) -> None:
        try:
            given[name] = question()
        except OSError:
            failed.append(name)

    threads = {
        name: threading.Thread(target=ask, args=(name, question), name=f"doctor-{name}", daemon=True)
        for name, question in questions.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    # threads end in any order, and what is told must not depend on that
    answered, unanswered = dict(given), set(failed)
    return Answers(
        {name: answered[name] for name in questions if name in answered},
        tuple(name for name in questions if name not in answered and name not in unanswered),
        tuple(name for name in questions if name in unanswered),
    )
