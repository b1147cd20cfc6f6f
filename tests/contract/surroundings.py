"""What the program takes from its surroundings, given: version, names, time, width, and a folder with short paths."""

from __future__ import annotations

import io
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ibpulse
from ibpulse.base.deadline import DaemonThreads
from ibpulse.cli import main
from ibpulse.core.recordings import RecordingMeta

VERSION = "1.2.3"
PYTHON = "3.99.0"
NODE = "node7"
# 2025-11-21T00:00:00Z
NOW = 1_763_683_200.0
WIDTH = "100"


@contextmanager
def surroundings(folder: Path) -> Iterator[None]:
    """Work in a folder, as this version, on this node and at this time."""
    real = ibpulse.__version__
    init = RecordingMeta.__init__
    defaults = tuple(VERSION if each == real else each for each in init.__defaults__ or ())
    clock = SimpleNamespace(**{**vars(time), "time": lambda: NOW, "time_ns": lambda: int(NOW * 1e9)})
    with pytest.MonkeyPatch.context() as patch:
        _name_version(real, VERSION)
        patch.setattr(init, "__defaults__", defaults)
        patch.setattr(platform, "node", lambda: NODE)
        patch.setattr(platform, "python_version", lambda: PYTHON)
        patch.setattr(logging, "time", clock)
        # a real thread would end at a virtual time that depends on how busy this machine is
        patch.setattr(DaemonThreads, "submit", _run_at_once)
        patch.setenv("COLUMNS", WIDTH)
        patch.chdir(folder)
        try:
            yield
        finally:
            _name_version(VERSION, real)


def _run_at_once(_: DaemonThreads, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """What `submit` returns, after the call."""
    future: Future[Any] = Future()
    try:
        future.set_result(fn(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def _name_version(old: str, new: str) -> None:
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "ibpulse" and getattr(module, "__version__", None) == old:
            module.__version__ = new  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        parts = [f"exit code: {self.code}\n"]
        parts += [f"{name}:\n{text}" for name, text in (("stdout", self.out), ("stderr", self.err)) if text]
        return "".join(parts)


def run(words: list[str]) -> Ran:
    """Run the command line in this process, with an environment that says where a user keeps files."""
    out, err = io.StringIO(), io.StringIO()
    np.random.seed(0)
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words, {"HOME": os.fspath(Path.cwd()), "STATE_DIRECTORY": "/var/lib/ibpulse"})
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())
