"""The packages that the program needs, and those that a daemon imports."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import grimp

from tests import ROOT
from tests.contract.goldens import Golden

DAEMON = "ibpulse.commands.serve"


def dependency_goldens(_: Path) -> list[Golden]:
    """The lists of `pyproject.toml`, and the packages to which imports lead from `ibpulse serve`."""
    project = tomllib.loads((Path(ROOT) / "pyproject.toml").read_text())["project"]
    extras = {f"extra {name}": "\n".join(each) for name, each in project["optional-dependencies"].items()}
    graph = grimp.build_graph(
        "ibpulse", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    reached = {name for name in graph.find_upstream_modules(DAEMON) if graph.is_module_squashed(name)}
    imported = sorted(reached - sys.stdlib_module_names)
    lists = {"always": "\n".join(project["dependencies"]), **extras, "imported by ibpulse serve": "\n".join(imported)}
    return [Golden("dependencies.txt", {"Python": project["requires-python"], **lists})]
