"""One test over a table of cases: `parametrize` would make a test of each, and the count of tests would say nothing."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each case, whose values are its first arguments, and report the faults of all in one message.

    A case is a tuple of arguments, or one argument of another type; a mapping gives names to them. All cases share
    the fixtures of the test.
    """
    table = dict(cases) if isinstance(cases, Mapping) else dict(enumerate(cases))
    assert table, "a table without cases tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def over_all(**fixtures: Any) -> None:
            faults = []
            for name, case in table.items():
                try:
                    test(*arguments(case), **fixtures)
                except (Exception, pytest.fail.Exception) as fault:
                    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__)]
                    shown = name if isinstance(name, str) else repr(case)
                    faults.append(f"{shown[:200]}: line {lines[1]}: {type(fault).__name__}: {fault}")
            if faults:
                pytest.fail(f"{len(faults)} of {len(table)} cases:\n" + "\n".join(faults), pytrace=False)

        parameters = [*inspect.signature(test).parameters.values()]
        taken = len(arguments(next(iter(table.values()))))
        over_all.__signature__ = inspect.Signature(parameters[taken:])  # type: ignore[attr-defined]
        return over_all

    return decorate


def arguments(case: Any) -> tuple[Any, ...]:
    """A named tuple is one argument."""
    return case if type(case) is tuple else (case,)
