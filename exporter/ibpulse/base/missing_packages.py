"""How to install a package that is missing, in the way that works for this installation of ibpulse."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path

PIPX_FILE, UV_FILE = "pipx_metadata.json", "uv-receipt.toml"
"""What the two leave in an environment that they made."""
NO_PIP = "this installation has no pip, so open the file where ibpulse is installed from its wheel, with {}"


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
    if importlib.util.find_spec("pip") is None:
        return NO_PIP.format(" and ".join(packages))
    if python.is_relative_to(Path.cwd()):
        python = Path(os.path.relpath(python))
    return f"install with `{shlex.join((str(python), '-m', 'pip', 'install', *packages))}`"
