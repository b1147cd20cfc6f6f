"""`import ibpulse` costs nothing until a name is used, and says what is missing when it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

# what an import loads is seen only where nothing is loaded yet
pytestmark = pytest.mark.real("process")

LOADED = "import sys; before = set(sys.modules); import ibpulse; print(sorted(set(sys.modules) - before))"
WITHOUT = """
import sys
sys.modules[{library!r}] = None
import ibpulse
try:
    {use}
except ibpulse.IbpulseError as error:
    print(error)
"""


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_import_loads_nothing_else_and_every_name_is_there_and_typed() -> None:
    assert run(LOADED) == "['ibpulse']"
    names = run("import ibpulse; print(*(n for n in ibpulse.__all__ if getattr(ibpulse, n) and n in dir(ibpulse)))")
    typed = (ROOT / "exporter/ibpulse/__init__.pyi").read_text()
    assert len(names.split()) == 12
    assert all(f" {name} as {name}\n" in typed for name in names.split())
    assert (ROOT / "exporter/ibpulse/py.typed").exists()


def test_a_missing_library_is_named() -> None:
    for use in ("ibpulse.read('x.parquet')", "ibpulse.connect('node7')"):
        assert "need pyarrow; install with" in run(WITHOUT.format(library="pyarrow", use=use))
    use = "from ibpulse.workbench.python.tables import Events; Events([]).to_pandas()"
    assert "to_pandas() needs pandas; install with" in run(WITHOUT.format(library="pandas", use=use))
    use = "from ibpulse.workbench.pictures.still import draw_runs; draw_runs([], 'heatmap')"
    assert "need matplotlib" in run(WITHOUT.format(library="matplotlib", use=use))
