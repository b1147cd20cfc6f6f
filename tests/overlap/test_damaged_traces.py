"""Damaged traces are read or refused in a sentence; `FUZZ_FILES` says how many, `FUZZ_SEED` which."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from ibpulse.base.errors import TraceError
from ibpulse.cli import main
from ibpulse.workbench.overlap.exposed import measure_overlap
from ibpulse.workbench.overlap.kernels import CommunicationNames
from ibpulse.workbench.overlap.trace import read_traces
from tests.overlap.played_traces import PlayedTrace, document
from tests.overlap.written_databases import write_nsight, write_rocpd
from tests.recordings.damage import damage

FILES = int(os.environ.get("FUZZ_FILES", "1000"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
COMMANDS = 100
TEXT = json.dumps(document(PlayedTrace(steps=2).timeline()[0]), indent=1).encode()
WHOLE = (TEXT, gzip.compress(TEXT))
SIGNS = (*(bytes([sign]) for sign in b'"{}[],\\\x00\xff-:'), b"9" * 30, b"1e999", b"NaN", b"null", b"{}")


def change(content: bytes, rng: random.Random) -> bytes:
    """A damaged file, or one with signs of JSON in places where they have an effect."""
    if rng.random() < 0.5:
        return damage(content, rng)
    raw = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(raw))
        raw[at : at + rng.randint(0, 4)] = rng.choice(SIGNS)
    return bytes(raw)


@pytest.mark.timeout(120 + FILES // 10)
def test_damaged_traces_are_read_or_refused(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    path, names = tmp_path / "damaged", CommunicationNames()
    for number in range(FILES):
        rng = random.Random(f"{SEED} {number}")
        path.write_bytes(change(WHOLE[number % 2], rng))
        try:
            [trace] = read_traces(path, names)
            for device in trace.devices:
                whole = measure_overlap(device, trace.steps).whole
                assert 0 <= whole.exposed_ns <= whole.communication_ns <= whole.length_ns, number
                assert 0 <= whole.copying_ns <= whole.idle_ns, number
            outcomes["read"] += 1
        except TraceError as error:
            outcomes["refused"] += 1
            text = str(error)
            assert text.startswith(f"trace {path} "), number
            assert "; " in text, number
        except BaseException as error:
            error.add_note(f"file {number} of seed {SEED}")
            raise
        if rng.randrange(COMMANDS) == 0:
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = main(["trace", str(path), "--format=json"], {})
            assert code == 0 or (code == 1 and said.getvalue().count("\n") == 1), said.getvalue()
    assert outcomes["read"] > FILES // 50
    assert outcomes["refused"] > FILES // 4


def test_damaged_databases_are_read_or_refused(tmp_path: Path) -> None:
    events = PlayedTrace(steps=2).timeline()[0]
    writers = {"nsight": write_nsight, "rocpd": write_rocpd}
    whole = [write(tmp_path / name, events).read_bytes() for name, write in writers.items()]
    outcomes: Counter[str] = Counter()
    path, names = tmp_path / "damaged", CommunicationNames()
    for number in range(FILES * 3 // 10):
        path.write_bytes(damage(whole[number % 2], random.Random(f"{SEED} {number}")))
        try:
            read_traces(path, names)
            outcomes["read"] += 1
        except TraceError:
            outcomes["refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 0
