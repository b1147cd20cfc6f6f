"""The notebook of the documentation runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebooks" / "two-runs.ipynb"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(1500)
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert any("image/png" in data for data in shown)
    assert sum("dataframe" in data.get("text/html", "") for data in shown) == 3
    assert (tmp_path / "moe.parquet").exists()
