"""A check, which is a function from the facts of a node to findings, and a finding, one sentence about one subject."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from ibpulse.agent.doctor.facts import Facts


class Level(enum.IntEnum):
    """Severity of a finding.

    SKIP: not judged. OK: nothing to do. WARN: the data is correct but incomplete, or something on the node needs
    attention. FAIL: data is missing or would be wrong.
    """

    SKIP = -1
    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page.

    `topic` is the name of the check; `examine` fills it in. `subject` is the port, device, card or setting that the
    sentence is about, and may be empty. `meaning` gives the consequence and `advice` the remedy; both may be empty.
    """

    level: Level
    subject: str
    sentence: str
    meaning: str = ""
    advice: str = ""
    topic: str = ""


def passed(subject: str, sentence: str) -> Finding:
    """A finding of level OK."""
    return Finding(Level.OK, subject, sentence)


def worst_level(findings: Iterable[Finding]) -> Level:
    """The worst level of the findings; OK if none of them is judged."""
    return max(Level.OK, max((finding.level for finding in findings), default=Level.OK))


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its function and its documentation.

    `sentence` is the first line of the function's docstring. `detail` adds an explanation to docs/doctor.md.
    `of_machine` marks a check of the machine that doctor runs on: over a simulated fabric or a fixture its
    findings are shown, but not judged.
    """

    name: str
    find: Callable[[Facts], Iterator[Finding]]
    detail: str = ""
    of_machine: bool = False
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", (inspect.getdoc(self.find) or "").partition("\n")[0])

    def __call__(self, facts: Facts) -> Iterator[Finding]:
        """The findings of this check."""
        return self.find(facts)


def check(
    name: str, detail: str = "", *, of_machine: bool = False
) -> Callable[[Callable[[Facts], Iterator[Finding]]], Check]:
    """Decorator that turns a function into the check of this name; see `Check` for the other parameters."""
    return lambda find: Check(name, find, detail, of_machine)


def checks_of(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order in which it declares them."""
    return tuple(value for value in vars(module).values() if isinstance(value, Check))
