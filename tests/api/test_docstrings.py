"""The examples in the docstrings of the Python API, run against a node and a real recording."""

from __future__ import annotations

import doctest
import importlib

import pytest

import ibpulse
from tests.api.places import Places
from tests.docs.pages import ROOT

MODULES = ("node", "samples", "tables")


@pytest.mark.parametrize("name", MODULES)
def test_every_example_is_true(name: str, places: Places) -> None:
    module = importlib.import_module(f"ibpulse.workbench.python.{name}")
    samples = ibpulse.read(places.recording)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    with ibpulse.connect(places.url) as node:
        known = {
            "ibpulse": ibpulse,
            "path": places.recording,
            "folder": places.dataset,
            "samples": samples,
            "url": places.url,
            "node": node,
        }
        result = doctest.testmod(module, extraglobs=known, optionflags=flags)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_example_of_the_documentation_is_true(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names a daemon and files that a reader has; here they are those of the tests."""
    connect = ibpulse.connect
    monkeypatch.setattr(ibpulse, "connect", lambda url: connect(url.replace("http://localhost:10055", places.url)))
    monkeypatch.chdir(places.recording.parent)
    page = ROOT / "docs" / "python.md"
    with page.open() as text:
        test = doctest.DocTestParser().get_doctest(text.read(), {}, "python.md", str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test)
    assert runner.summarize(verbose=False) == (0, len(test.examples))
    assert len(test.examples) > 10
