"""The command line of `ibpulse gateway`."""

from __future__ import annotations

import pytest

from ibpulse.cli import main


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "nodes.sources: no source of nodes; give one, like dns+NAME:PORT, or use --demo=8"),
        (["--nodes.sources=nodes.txt"], "nodes.sources: 'nodes.txt' is not a source of nodes"),
        (["--nodes.sources=a.json,a.json"], "nodes.sources: 'a.json' is given twice"),
        (["--demo=1"], "flag --demo: 1 is out of bounds; choose 2 to 64"),
        (["--demo=8", "--nodes.sources=a.json"], "flag --demo: cannot be combined with nodes.sources"),
    ],
)
def test_a_gateway_without_usable_nodes_says_so(
    capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str
) -> None:
    assert main(["gateway", *flags], {}) == 2
    assert sentence in capsys.readouterr().err
