"""How to call this program again, for commands that are printed to be pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


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
