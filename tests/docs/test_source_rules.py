"""Rules about the code that no linter has: no pools of threads in a server, children that inherit nothing."""

from __future__ import annotations

import ast

from tests.docs.pages import ROOT

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
