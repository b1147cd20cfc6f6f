"""Damages files of every kind, and opens them: `python -m tests.recordings.damage SEED FIRST COUNT`.

They are recordings, counter logs, results of benchmarks, and descriptions of jobs.

It prints how many of the files FIRST to FIRST + COUNT were read and refused. Anything but a sentence that names the
file ends it with a stack trace that names its number, and so does a file that takes longer than `HANG_SECONDS`. The
same seed and number give the same file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gzip
import io
import json
import random
import resource
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from ibpulse import cli
from ibpulse.base import limits
from ibpulse.base.errors import BenchmarkError, ConfigError, RecordingError
from ibpulse.base.values import GivenText
from ibpulse.core.recordings import Recording, RecordingWriter, load, save
from ibpulse.workbench.models.inputs import read_inputs, read_job_file
from ibpulse.workbench.models.prediction import Prediction, predict
from ibpulse.workbench.nccl.formats import read_benchmark
from ibpulse.workbench.nccl.results import BenchmarkRun
from ibpulse.workbench.recorder.counter_log import GridOptions, LogColumns, read_log, resample
from tests.nccl.benchmark_writers import inspector_line, nccl_json, nccl_text, perftest
from tests.recordings.recordings import make_recording
from tests.running import HANG_SECONDS

# each so many-th file is opened by the whole command, and each that was read as something else
COMMANDS = 100
COLUMNS = LogColumns(time="time", port="port", transmit="sent", receive="received")
HUB_CONFIG = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14_336, "vocab_size": 32_000, "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip
JOB = """model: qwen3-30b-a3b
nodes: 8
ep: 16
pp: 2
sharding: zero1
global-batch: 128
mfu: 0.4
network: dragonfly
groups: 64
global-links: 8
"""
IMPORT = ("--time=time", "--port=port", "--transmit=sent", "--receive=received")


Found = Recording | BenchmarkRun | Prediction


@dataclass(frozen=True, slots=True)
class Sample:
    """A whole file, how it is read, and the arguments of a command that opens it, with `{}` for its path."""

    content: bytes
    read: Callable[[Path], Found]
    command: tuple[str, ...]


def samples(folder: Path) -> Iterator[Sample]:
    """A file of each format."""
    report, imported = ("report", "{}"), ("import", "{}", "-o", str(folder / "imported"), *IMPORT)
    for recording in (make_recording(20, ports=1), make_recording(300, ports=3)):
        save(folder / "whole", recording)
        yield Sample((folder / "whole").read_bytes(), load, report)
        writer = RecordingWriter(folder / "growing", recording.meta)
        writer.append(recording)
        yield Sample(writer.partial.read_bytes(), load, report)
        writer.close()
    lines = (f"{second},mlx5_{second % 2},{7919 * second},{104729 * second}\n" for second in range(200))
    log = "".join(["time,port,sent,received\n", *lines]).encode()
    yield Sample(log, read_counters, imported)
    yield Sample(gzip.compress(log), read_counters, imported)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(log)), folder / "log")
    yield Sample((folder / "log").read_bytes(), read_counters, imported)
    for text in (nccl_text(), nccl_json(), perftest(), inspector_line("AllReduce", 1 << 30, 5000) * 3):
        yield Sample(text.encode(), read_result, ("nccl", "{}", "--unit=Gb/s"))
    for text in (JOB, json.dumps(HUB_CONFIG, indent=1)):
        yield Sample(text.encode(), read_job, ("model", "{}", "--nodes=4"))


def read_result(path: Path) -> tuple[BenchmarkRun, ...]:
    """The results in a file of a benchmark."""
    return read_benchmark(path, "Gb/s")


def read_job(path: Path) -> Prediction:
    """The prediction for a file that describes a job; a refusal names the file."""
    try:
        inputs = read_inputs({"nodes": GivenText("4", "flag --nodes")}, read_job_file(path))
        return predict(inputs.job, inputs.hardware, inputs.step)
    except (ConfigError, ValueError) as error:
        # faults of several inputs together have no place in the file
        raise ConfigError([f"{path}: {error}"]) from error


def read_counters(path: Path) -> Recording:
    """The recording that a counter log becomes."""
    logs = read_log(path, COLUMNS)
    try:
        return resample(logs, COLUMNS, GridOptions())
    except ValueError as error:
        raise RecordingError(f"log {path} {error}") from error


def damage(content: bytes, rng: random.Random) -> bytes:
    """The content with a few bytes changed, or a part of it cut off, lost, repeated or overwritten."""
    raw = bytearray(content)
    first = rng.randrange(len(raw))
    length = min(rng.choice((1, 4, 8, 64, 512)), len(raw) - first)
    match rng.randrange(8):
        case 0:
            del raw[first:]
        case 1:
            del raw[first : first + length]
        case 2:
            raw[first:first] = raw[first : first + length]
        case 3:
            raw[first : first + length] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * length
        case _:
            for _ in range(rng.randint(1, 4)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def open_with_command(words: tuple[str, ...], path: Path) -> bool:
    """Whether the command read the file; it says why not otherwise, in a line that names it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = cli.main([word.format(path) for word in words], {})
    told = said.getvalue()
    assert code == 0 or (code in (1, 2) and told.startswith("ibpulse: ") and "Traceback" not in told), told
    assert code in (0, 2) or str(path) in told, told
    return code == 0


def open_directly(sample: Sample, path: Path) -> Found | None:
    """What was read; a refusal names the file."""
    try:
        return sample.read(path)
    except (RecordingError, BenchmarkError, ConfigError) as error:
        said = str(error)
    assert str(path) in said, said
    return None


def examine(seed: int, first: int, count: int, folder: Path) -> dict[str, int]:
    """Open so many damaged files; how many were read and refused, and the memory that they took, in bytes."""
    known, outcomes, path = list(samples(folder)), Counter[str](), folder / "damaged"
    whole = []
    for sample in known:
        path.write_bytes(sample.content)
        whole.append(open_directly(sample, path))
        assert open_with_command(sample.command, path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, first + count):
        rng = random.Random(f"{seed} {number}")
        sample = known[number % len(known)]
        path.write_bytes(damage(sample.content, rng))
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            read = open_directly(sample, path)
            if rng.randrange(COMMANDS) == 0 or read not in (None, whole[number % len(known)]):
                outcomes["commands"] += 1
                assert open_with_command(sample.command, path) == (read is not None)
        except BaseException as error:
            error.add_note(f"file {number} of seed {seed}")
            raise
        outcomes["refused" if read is None else "read"] += 1
    faulthandler.cancel_dump_traceback_later()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {**outcomes, "grown_bytes": 1024 * grown}


if __name__ == "__main__":
    # a warning would be a line of a program on the screen of a user
    warnings.simplefilter("error", RuntimeWarning)
    with tempfile.TemporaryDirectory() as name, limits.bounded():
        seed, first, count = map(int, sys.argv[1:])
        json.dump(examine(seed, first, count, Path(name)), sys.stdout)
