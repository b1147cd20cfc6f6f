"""Rules that no linter has: about threads and children in the code, promises of the security page, and wings."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT
from tools.wings import COMMITTED, find_faults, find_long_files, measure

PACKAGE = ROOT / "exporter" / "ibpulse"


def test_no_thread_of_a_server_is_waited_for_at_its_end() -> None:
    """Python waits for the threads of its own pools, even if they hang; `deadline.DaemonThreads` has others."""
    pools = ("to_thread", "ThreadPoolExecutor", "run_in_executor(None")
    served = [path for wing in ("core", "agent", "gateway") for path in (PACKAGE / wing).rglob("*.py")]
    # doctor's child process is killed when its time is over
    files = [path for path in served if not path.is_relative_to(PACKAGE / "agent" / "doctor")]
    assert len(files) > 150
    assert {path.name for path in files if any(pool in path.read_text() for pool in pools)} == set()


def test_no_child_process_inherits_standard_input_or_output() -> None:
    """A child that hangs in the kernel would keep them open, and whoever reads them would wait for it."""
    names = {"Popen", "run", "create_subprocess_exec", "check_output", "check_call", "call"}
    calls = {
        f"{path.relative_to(ROOT)}:{node.lineno}": {keyword.arg for keyword in node.keywords}
        for path in PACKAGE.rglob("*.py")
        if "subprocess" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id == "subprocess" or node.func.attr.startswith("create_subprocess"))
    }
    assert len(calls) >= 5
    assert {place for place, given in calls.items() if not {"stdin", "stdout"} <= given} == set()


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


def test_no_wing_and_no_file_is_too_large() -> None:
    assert measure().keys() == COMMITTED.keys()
    assert [*find_faults(measure()), *find_long_files()] == []
