"""Each promise of the page on security names tests, or a campaign or benchmark, that hold it."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT


def test_every_promise_names_what_holds_it() -> None:
    promises = (ROOT / "docs/security.md").read_text().partition("## Promises\n")[2].partition("\n### Assumptions")[0]
    rows = [line for line in promises.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 35
    for row in rows:
        named = re.findall(r"\[([^]]+)\]\(\.\./([\w/]+\.py)\)", row.split("|")[-2])
        assert named, row
        for name, path in named:
            tree = ast.parse((ROOT / path).read_text())
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            assert not name.startswith("test_") or name in {
                node.name for node in tree.body if isinstance(node, functions)
            }, (name, path)
