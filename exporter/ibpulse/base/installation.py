"""This installation of ibpulse: the command that calls it, packages that it lacks, and names imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PIPX_FILE, UV_FILE = "pipx_metadata.json", "uv-receipt.toml"
"""Files of the two in environments that they made."""
MAKE_FILE = "run.stamp"
"""File in the environment that `make run` made; the packages that `make workbench` adds to it are pinned."""
PINNED = frozenset(("distributed", "duckdb", "jinja2", "matplotlib", "pillow", "pyarrow"))
NO_PIP = "this installation has no pip, so open the file where ibpulse is installed from its wheel, with {}"


def own_command() -> str:
    """`ibpulse` if that is this program, otherwise its path, or the interpreter with `-m ibpulse`."""
    program = os.path.abspath(sys.argv[0])
    found = shutil.which("ibpulse")
    if found and os.path.realpath(found) == os.path.realpath(program):
        return "ibpulse"
    if Path(program).name == "ibpulse" and os.access(program, os.X_OK):
        return shlex.quote(program)
    # the package without its script, such as from a test
    return f"{shlex.quote(sys.executable)} -m ibpulse"


def how_to_install(*packages: str) -> str:
    """The rest of a sentence about missing packages: the command that adds them to the environment of this process.

    It names the packages themselves and no extra of ibpulse, because ibpulse may come from a checkout, a file or an
    image, which the command would have to name again. A program in the working directory has its relative path.
    """
    python, prefix = Path(sys.executable), Path(sys.prefix)
    if (prefix / PIPX_FILE).exists():
        return f"install with `{shlex.join(('pipx', 'inject', 'ibpulse', *packages))}`"
    if (prefix / UV_FILE).exists():
        return f"install with `{shlex.join(('uv', 'pip', 'install', '--python', str(python), *packages))}`"
    if (prefix / MAKE_FILE).exists() and PINNED.issuperset(packages):
        elsewhere = () if prefix.parent == Path.cwd() else ("-C", str(prefix.parent))
        return f"install with `{shlex.join(('make', *elsewhere, 'workbench'))}`"
    if importlib.util.find_spec("pip") is None:
        return NO_PIP.format(" and ".join(packages))
    if python.is_relative_to(Path.cwd()):
        python = Path(os.path.relpath(python))
    return f"install with `{shlex.join((str(python), '-m', 'pip', 'install', *packages))}`"


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562); `modules` has the module of each name."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return find
