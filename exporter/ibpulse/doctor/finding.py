"""A check: a function from the facts of a node to findings; and a finding, one line about one subject."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType

from ibpulse.doctor.facts import Facts


class Level(enum.IntEnum):
    """How a finding stands.

    OK: nothing to do. WARN: the numbers are true, but not all that they could be, or something of the node needs a
    look. FAIL: numbers are missing, or would be wrong.
    """

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page.

    `topic` is the name of the check, filled in by whoever runs it. `subject` is a port, a device, a card, or what else
    the sentence is about, and may be empty. `meaning` says what follows from it, `advice` what to do; both may be empty
    when all is well.
    """

    level: Level
    subject: str
    sentence: str
    meaning: str = ""
    advice: str = ""
    topic: str = ""


def passed(subject: str, sentence: str) -> Finding:
    """A finding that all is well."""
    return Finding(Level.OK, subject, sentence)


def worst_level(findings: Iterable[Finding]) -> Level:
    """The worst level of all, OK without any."""
    return max((finding.level for finding in findings), default=Level.OK)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, the function, what the page of checks says of it.

    `sentence` is the first line of the function's docstring. `detail` explains what the sentence cannot, for the
    documentation. `of_machine` is one whose findings are about the machine that doctor runs on: over a simulated
    fabric, a fixture or a bundle they are told, but not judged.
    """

    name: str
    find: Callable[[Facts], Iterator[Finding]]
    detail: str = ""
    of_machine: bool = False
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", (inspect.getdoc(self.find) or "").partition("\n")[0])

    def __call__(self, facts: Facts) -> Iterator[Finding]:
        """What the check finds."""
        return self.find(facts)


def check(
    name: str, detail: str = "", *, of_machine: bool = False
) -> Callable[[Callable[[Facts], Iterator[Finding]]], Check]:
    """Declare a function to be the check of this name; see `Check` for the rest."""
    return lambda find: Check(name, find, detail, of_machine)


def checks_of(module: ModuleType) -> tuple[Check, ...]:
    """The checks of a module, in the order in which it declares them."""
    return tuple(value for value in vars(module).values() if isinstance(value, Check))
