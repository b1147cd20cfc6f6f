from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any

import pytest

from ibpulse.agent.doctor import examination, machine
from ibpulse.commands import doctor
from tests.running import HANG_SECONDS
from tests.sysfs.conftest import opened, tree, world
from tests.virtual.clock import VirtualLoop
from tests.virtual.world import World

__all__ = ["opened", "tree", "world"]

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def run(world: World) -> Iterator[Run]:
    """Runs a coroutine in virtual time."""
    with closing(VirtualLoop.of(world)) as loop:
        yield loop.run_until_complete


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real web server may be slow to answer."""
    monkeypatch.setattr(machine, "WEB_SECONDS", HANG_SECONDS)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """The command collects its facts in the process of the test."""
    monkeypatch.setattr(doctor, "find_facts_in_child", lambda request: run(examination.find_facts(request)))
