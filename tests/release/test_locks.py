"""The locks of requirements/ agree: what several of them have is of one version."""

from __future__ import annotations

import re

import pytest

from tools.release import ROOT


def locked(name: str) -> dict[str, str]:
    """What a lock says of each package, without the comments that name who needs it."""
    text = re.sub(r"(?m)^ +#.*\n", "", (ROOT / "requirements" / f"{name}.txt").read_text())
    return dict(re.findall(r"(?ms)^([\w.-]+)==(.*?)(?=^[\w.-]+==|\Z)", text))


@pytest.mark.parametrize("name", ["all", "base", "dev", "docs"])
def test_packages_of_several_locks_are_of_one_version(name: str) -> None:
    others = {**locked("run"), **(locked("dev") if name == "docs" else {})}
    again = locked(name)
    assert {
        package for package in others.keys() & again.keys() if others[package].split()[0] != again[package].split()[0]
    } == set()


def test_each_lock_has_all_of_the_smaller_ones() -> None:
    assert locked("base").keys() < locked("run").keys() < locked("all").keys() < locked("dev").keys()
    assert locked("all").keys() >= {"matplotlib", "pillow"}


def test_no_lock_names_an_index() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(r"--(extra-)?index-url|--find-links|https?://", path.read_text()), path.name
