from __future__ import annotations

import asyncio

import pytest

from ibpulse.agent.doctor import examination
from ibpulse.commands import doctor
from tests.sysfs.conftest import opened, tree

__all__ = ["opened", "tree"]


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command collects its facts in the process of the test."""
    monkeypatch.setattr(doctor, "find_facts_in_child", lambda request: asyncio.run(examination.find_facts(request)))
