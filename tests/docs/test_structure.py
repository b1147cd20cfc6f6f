"""The structure of the code stays one that a newcomer can guess: few files, none long, names that occur once."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGE = ROOT / "exporter" / "ibpulse"
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tools").rglob("*.py")])
# 0.1 had 240; then came events, jobs with a file for each of their sources, roles, phases, many nodes with the pages of
# the gateway, rules and boards with a file for each group, packages of a release; the model of a training job,
# benchmarks with a file for each format, and a prediction compared with a measurement; traces of profilers, rules about
# overlap, steps before and after a change, skew of experts; datasets of many nodes, their report and their pictures
MOST_FILES = 535
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
# the hot loop: each call costs about as much as what it would set apart
MAY_BE_LONG = {"sample_steadily"}
MOST_SHARED_FILE_NAMES = 8
MOST_SHARED_CLASS_NAMES = 1


def shared(names: list[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_there_are_not_too_many_files() -> None:
    assert len(FILES) <= MOST_FILES, "merge a module into the one that imports it"


def test_no_file_is_too_long() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_FUNCTION_LINES
        and node.name not in MAY_BE_LONG
    }
    assert long == set()


def test_a_file_name_occurs_once_unless_the_role_is_the_same() -> None:
    names = [path.name for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    assert len(shared(names)) <= MOST_SHARED_FILE_NAMES, shared(names)


def test_a_class_name_occurs_once() -> None:
    names = [
        node.name for path in PACKAGE.rglob("*.py") for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)
    ]
    assert len(shared(names)) <= MOST_SHARED_CLASS_NAMES, shared(names)


def test_no_file_is_called_after_nothing_in_particular() -> None:
    vague = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py", "manager.py"}
    assert [str(path.relative_to(ROOT)) for path in FILES if path.name in vague] == []


def test_no_thread_of_the_daemon_is_waited_for_at_its_end() -> None:
    """Python waits for the threads of its own pools, even if they hang; `deadline.DaemonThreads` has others."""
    pools = ("to_thread", "ThreadPoolExecutor", "run_in_executor(None")
    packages = (
        "web",
        "sampler",
        "flightrecorder",
        "aggregator",
        "exposition",
        "events",
        "ring",
        "sysfs",
        "jobs",
        "fleet",
        "gateway",
    )
    files = [
        PACKAGE / "commands" / "daemon.py",
        PACKAGE / "commands" / "gateway_service.py",
        *(path for name in packages for path in (PACKAGE / name).rglob("*.py")),
    ]
    assert {path.name for path in files if any(pool in path.read_text() for pool in pools)} == set()


def test_no_child_process_inherits_standard_input_or_output() -> None:
    """A child that hangs in the kernel would keep them open, and whoever reads them would wait for it."""
    names = {"Popen", "run", "create_subprocess_exec", "check_output", "check_call", "call"}
    calls = {
        f"{path.relative_to(ROOT)}:{node.lineno}": {keyword.arg for keyword in node.keywords}
        for path in PACKAGE.rglob("*.py")
        if "subprocess" in path.read_text()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id == "subprocess" or node.func.attr.startswith("create_subprocess"))
    }
    assert len(calls) >= 5
    assert {place for place, given in calls.items() if not {"stdin", "stdout"} <= given} == set()
