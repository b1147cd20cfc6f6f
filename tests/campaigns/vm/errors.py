"""What can stand in the way of the machine. It must not decide between skip and failure: conftest does."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class MissingPartError(Exception):
    """Something that the machine is built from is not here; the message names it and the way out."""


class BuildError(Exception):
    """The project itself does not build: a failure anywhere, never a reason to skip."""


def call(arguments: Sequence[str | Path], purpose: str, fault: type[Exception] = MissingPartError) -> str:
    """Standard output of a program from outside.

    Raises:
        MissingPartError: the program is not installed.
        fault: it failed; the message ends with its last words.
    """
    program = str(arguments[0])
    try:
        done = subprocess.run([str(each) for each in arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingPartError(f"cannot {purpose}: {program} is not installed") from None
    if done.returncode:
        last_words = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise fault(f"cannot {purpose}: {program} failed with status {done.returncode}: {last_words}")
    return done.stdout
