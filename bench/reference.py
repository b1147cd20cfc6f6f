"""Builds and runs the C program, and runs the loops in Python, on the same counter files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import moneo, naive, smallest
from bench.bench import NS_PER_SECOND
from bench.trees import RECEIVE, TRANSMIT


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """The results of one run of the C program."""

    ticks: int
    missed: int
    cpu_ns_per_tick: float
    user_seconds: float
    system_seconds: float
    lateness_ns: dict[str, int]

    @property
    def kept(self) -> float:
        """Fraction of samples captured."""
        return self.ticks / (self.ticks + self.missed)


def build(folder: Path) -> Path:
    """Compile the C program with the system's compiler."""
    program = folder / "reference"
    source = Path(__file__).with_name("reference.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-std=gnu11", "-o", str(program), str(source)], check=True)
    return program


def run(program: Path, interval_ns: int, seconds: float, ports: int, phase_ns: int = 0) -> ReferenceRun:
    """One run of the C program on this number of ports."""
    ring = program.with_name("reference.ring")
    numbers = [str(interval_ns), str(phase_ns), str(seconds)]
    return ReferenceRun(**_json_of([str(program), *numbers, str(ring), *[TRANSMIT, RECEIVE] * ports]))


def run_smallest(interval_ns: int, seconds: float, ports: int, phase_ns: int) -> dict[str, float]:
    """One run of the smallest loop on this number of ports."""
    return _run_loop(smallest.__file__, [str(interval_ns), str(phase_ns)], seconds, [TRANSMIT, RECEIVE] * ports)


def run_naive(interval_ns: int, seconds: float, ports: int) -> dict[str, float]:
    """One run of the naive loop on this number of ports."""
    return _run_loop(naive.__file__, [str(interval_ns / NS_PER_SECOND)], seconds, [TRANSMIT, RECEIVE] * ports)


def run_moneo(interval_ns: int, seconds: float, ports: int) -> dict[str, float]:
    """One run of the loop like Moneo's, which reads seven files of each port."""
    files = [TRANSMIT, RECEIVE, *[RECEIVE] * (moneo.FILES - 2)] * ports
    return _run_loop(moneo.__file__, [str(interval_ns / NS_PER_SECOND)], seconds, files)


def _run_loop(script: str, numbers: list[str], seconds: float, files: list[str]) -> dict[str, float]:
    return _json_of([sys.executable, script, *numbers, str(seconds), *files])


def _json_of(command: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return answer
