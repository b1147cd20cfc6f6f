"""Answers some 300 seeded inputs by the version of the program that is imported: `python answering.py INTO`.

It runs with the tests of that version, and uses of them and of the program only what every version has: `Node`, `Fleet`
and `SCENARIOS` of `tests/virtual`, the families of hardware, the command line, and `save` for recordings.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import os
import platform
import random
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibpulse

# the version is an input: everything below is imported after it is set
ibpulse.__version__ = "1.2.3"

import numpy as np  # noqa: E402

from ibpulse.base.deadline import DaemonThreads  # noqa: E402
from ibpulse.cli import main  # noqa: E402
from ibpulse.core.recordings import save  # noqa: E402
from ibpulse.workbench.simulate.workloads import make_workload  # noqa: E402
from tests.datasets import known_traffic  # noqa: E402
from tests.families.table import FAMILIES  # noqa: E402
from tests.nccl.benchmark_writers import nccl_json, nccl_text, perftest  # noqa: E402
from tests.overlap import played_traces  # noqa: E402
from tests.reports import recordings as simulated  # noqa: E402
from tests.virtual import node  # noqa: E402
from tests.virtual.fleet import Fleet  # noqa: E402
from tests.virtual.node import Node  # noqa: E402
from tests.virtual.scenarios import SCENARIOS  # noqa: E402

NOW = 1_763_683_200.0
PAGE = 4096
WORKLOADS = ("dense", "moe", "expert-parallel", "constant", "square")
# a verb by its names, the newest first; another one is tried where a version does not know it
NAMES: Mapping[str, Sequence[str]] = {
    "trace": ("trace", "overlap trace"),
    "model check": ("model check", "overlap check"),
    "model experts": ("model experts", "model skew"),
}
UNKNOWN = "no such command"
JOB_FLAGS = ("--slow.interval=1s", "--capture.allow-unauthenticated=true")
PASSWORD = "basic_auth_users:\n  alice: $2b$04$/bmXEITwxRxgsjIyExe0QeS9ruLwGNBSY9vSSq9eAV.4lqxC1FuL2\n"

Answers = Iterator[tuple[str, bytes]]


# nodes


class Still(node.Replay):  # type: ignore[name-defined, misc]
    """A tree whose counters do not move."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, now_ns: int) -> None:
        """Nothing changes."""

    def close(self) -> None:
        """Nothing is open."""


def families() -> Answers:
    """What a daemon says on each family of hardware."""
    for family in FAMILIES:
        folder = Path("families", family.name)
        folder.mkdir(parents=True)
        family.build(folder / "sys")
        with Node(folder, "--slow.interval=1s", tree=Still(folder / "sys")) as made:
            made.run(3)
            for path in ("/metrics", "/api/v1/ports", "/api/v1/topology"):
                yield f"family {family.name} {path}", answer(made.ask(path))


def scenarios() -> Answers:
    """What a node says, and what it writes, after each scenario."""
    for scenario, workload in SCENARIOS.items():
        folder = Path("scenarios", scenario.__name__)
        owners = folder / "owners"
        owners.mkdir(parents=True, mode=0o755)
        flags = (f"--jobs.owners-dir={owners.absolute()}", *JOB_FLAGS, "--capture.rules=rail-lost")
        with Node(folder, *flags, rails=4, workload=workload) as made:
            made.run(3)
            scenario(made)
            said = made.said()
        for name, content in said.items():
            yield f"scenario {scenario.__name__} {name}", content
        yield f"scenario {scenario.__name__} event file", (folder / "ring" / "events").read_bytes()
        yield f"scenario {scenario.__name__} ring", used_pages(folder / "ring" / "ring")
        shutil.rmtree(folder)


def used_pages(ring: Path) -> bytes:
    """The pages of a ring that are not zero, each with its number; the process number in them is an input."""
    with ring.open("rb") as file:
        pages = enumerate(iter(partial(file.read, PAGE), b""))
        used = [b"page %d\n%b\n" % (number, page) for number, page in pages if page.count(0) < len(page)]
    return b"".join(used).replace(os.getpid().to_bytes(8, "little"), b"pid here")


def node_queries(rng: random.Random) -> Iterator[str]:
    """Queries of a node, good ones and hostile ones."""
    for _ in range(40):
        query = [
            ("format", rng.choice(("json", "csv", "npy", "grafana"))),
            ("last", rng.choice(("100ms", "1s", "1500ms", "5s", "1h", "0s", "x"))),
            ("max_points", rng.choice(("1", "7", "100", "0"))),
            ("statistic", rng.choice(("max", "mean", "min"))),
            ("unit", rng.choice(("bytes_per_second", "bytes", "ratio", "utilization", "words"))),
            ("port", rng.choice(("mlx5_0:1", "mlx5_1", "eth0", ""))),
            ("direction", rng.choice(("transmit", "receive", "both"))),
            ("uncertainty", rng.choice(("true", "false"))),
            ("job", rng.choice(("7", "9999"))),
        ]
        chosen = rng.sample(query, rng.randint(2, 6))
        yield "/api/v1/window?" + "&".join(f"{name}={text}" for name, text in chosen)
    for _ in range(12):
        yield f"/api/v1/summary?last={rng.choice(('1s', '2s', '5s', '1500ms'))}{rng.choice(('', '&job=7', '&x=1'))}"
        yield f"/api/v1/events?limit={rng.randint(0, 5)}&kind={rng.choice(('link', 'job-began', 'started', 'x'))}"
    for name in ("ports", "topology", "jobs", "clock", "captures", "captures/none", "openapi.json", "metricz"):
        yield f"/api/v1/{name}"
    yield from ("/metrics", "/", "/api/docs", "/api/openapi.json", "/-/healthy", "/-/ready", "/metrics?name[]=up")


def gateway_queries() -> Iterator[str]:
    """Queries of a gateway."""
    for name in ("", "node/node-0/", "job/7", "metrics", "-/ready", "-/healthy", "api/docs", "api/openapi.json", "x"):
        yield f"/{name}"
    for name in ("nodes", "jobs", "jobs/7/captures", "jobs/7/events", "jobs/9999/events", "jobs/7/summary?last=5s"):
        yield f"/api/v1/{name}"
    for query in ("last=2s&max_points=4", "last=1s&max_points=9&rows=rails", "last=x", "last=2s&node=node-1"):
        yield f"/api/v1/jobs/7/window?{query}"
    for name in ("ports", "topology", "jobs", "events", "captures", "clock", "summary?last=5s", "window?last=1s"):
        yield f"/node/node-0/api/v1/{name}"
        yield f"/node/none/api/v1/{name}"


def served() -> Answers:
    """Every endpoint of a node and of a gateway, captures, and the frames of streams."""
    owners = Path("owners")
    owners.mkdir(mode=0o755)
    (owners / "7.json").write_text(json.dumps({"id": "7", "scheduler": "slurm", "devices": ["mlx5_0", "mlx5_1"]}))
    Path("fleet").mkdir()
    flags = (f"--jobs.owners-dir={owners.absolute()}", *JOB_FLAGS)
    with Fleet(Path("fleet"), 2, *flags, rails=2, workload="moe") as fleet:
        made = fleet.nodes[0]
        fleet.run(8)
        made.fault({"link-flap": ["mlx5_1"]})
        fleet.run(3)
        made.fault()
        fleet.run(3)
        viewers = {
            "stream node": made.view("/api/v1/stream?every=100ms"),
            "stream of a job of a node": made.view("/api/v1/stream?job=7"),
            "stream gateway": fleet.view("/api/v1/jobs/7/stream"),
            "stream gateway rails": fleet.view("/api/v1/jobs/7/stream?rows=rails"),
            "stream of a node of the gateway": fleet.view("/node/node-1/api/v1/stream"),
        }
        fleet.run(2.5)
        for name, viewer in viewers.items():
            yield name, bytes(viewer.received)
            viewer.leave()
        bodies: tuple[object, ...] = ({"before": "2s", "after": "1s"}, {"before": "99h"}, {"labels": {"a": "b"}}, [])
        for body in bodies:
            yield f"node POST captures {body}", answer(made.send("POST", "/api/v1/captures", json=body))
        for path in node_queries(random.Random(1)):
            yield f"node {path}", answer(made.ask(path))
        for path in gateway_queries():
            yield f"gateway {path}", answer(fleet.loop.run_frozen(fleet.request("GET", path)))
        fleet.run(4)
        for file in sorted(made.captures.glob("*.parquet")):
            yield f"capture {file.name}", file.read_bytes()


def logins() -> Answers:
    """Who may read and write, with and without a password."""
    Path("web.yml").write_text(PASSWORD)
    words = {who: base64.b64encode(who.encode()).decode() for who in ("alice:secret", "alice:wrong", "bob:secret", "")}
    headers = {who: {"authorization": f"Basic {word}"} for who, word in words.items()}
    headers |= {
        "nobody": {},
        "a token": {"authorization": "Bearer x"},
        "a foreign site": {"origin": "http://x.example"},
    }
    with Node(Path("guarded"), "--web.config.file=web.yml", rails=1, workload="constant", name="guarded") as made:
        made.run(2)
        for who, given in headers.items():
            for method, path in (("GET", "/api/v1/clock"), ("GET", "/-/healthy"), ("POST", "/api/v1/captures")):
                yield f"login {who} {method} {path}", answer(made.send(method, path, headers=given))


def answer(response: Any) -> bytes:
    """Status, headers and body."""
    headers = "".join(f"{name}: {value}\n" for name, value in sorted(response.headers.items()))
    return b"%d\n%b\n%b" % (response.status_code, headers.encode(), response.content)


# the command line


def commands() -> Answers:
    """Results of verbs, of seeded recordings, traces, job files and benchmarks, some of them damaged."""
    rng = random.Random(2)
    for number, workload in enumerate(WORKLOADS):
        save(Path(f"run{number}.parquet"), simulated.play(make_workload(workload), 4 + number, number, 2 + number % 3))
    for number in range(3):
        trace = played_traces.PlayedTrace(steps=3 + number, seed=number)
        played_traces.write_trace(Path(f"rank{number}.json"), trace.timeline()[0])
        save(Path(f"wire{number}.parquet"), played_traces.record(trace))
    known_traffic.save_nodes(Path(), *(known_traffic.Node(f"node{number}") for number in (1, 2, 3)), ticks=1000)
    texts = {"nccl.txt": nccl_text(), "nccl.json": nccl_json(), "perftest.json": perftest()}
    texts["job.yaml"] = "model: mixtral-8x7b\nnodes: 2\nrails: 7\nalgorithm: ring\nstep: 1444ms\n"
    texts["run_config.yaml"] = (
        "_target_: megatron.bridge.training.config.ConfigContainer\n"
        "model: {num_moe_experts: 8, bf16: true, overlap_moe_expert_parallel_comm: true}\n"
    )
    texts["loads.csv"] = "90,132,40,61\n71,64,180,33\n"
    texts["log.csv"] = "when,port,tx,rx\n" + "".join(f"{1763683200 + n},mlx5_0:1,{n * 999},{n * n}\n" for n in range(9))
    texts["settings.yaml"] = "sampler: {interval: 5ms}\nports: {exclude: mlx5_bond_0}\n"
    for name, text in texts.items():
        Path(name).write_text(text)
    for line in (
        *GOOD,
        *(f"report run{a}.parquet run{b}.parquet --resamples=100" for a in range(2) for b in range(3, 5)),
    ):
        yield f"ibpulse {line}", command(line)
    for number in range(40):
        verb, name = rng.choice(HOSTILE)
        data = bytearray(Path(name).read_bytes())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.choice((0, 1, 1, 9))] = rng.choice((b"", b"\xff", b"{", b"9" * 30, b"\n- "))
        damaged = Path(f"damaged{number}{Path(name).suffix}")
        damaged.write_bytes(data[: rng.choice((len(data), len(data), len(data) // 2))])
        yield f"ibpulse {verb} {damaged} of {name}", command(verb.format(damaged))


GOOD = (
    *(f"report run{number}.parquet --resamples=100 --format=json" for number in range(len(WORKLOADS))),
    *(f"trace rank{number}.json --against=wire{number}.parquet" for number in range(3)),
    *(f"trace rank{number}.json --format=json" for number in range(3)),
    *(f"model --model={name} --nodes=2 --format=json" for name in ("qwen2.5-7b", "mixtral-8x7b", "llama-3.1-70b", "x")),
    "model job.yaml --measured=39.5GB",
    "model experts loads.csv --ranks=2 --nodes=2",
    "model check run_config.yaml --format=json",
    "nccl nccl.txt --rails=8 --rate=50GB/s",
    "nccl nccl.json perftest.json --format=json",
    "import log.csv -o log.parquet --time=when --port=port --transmit=tx --receive=rx --unit=MB --since-before",
    "report log.parquet --resamples=100",
    "fleet collect node1.parquet node2.parquet node3.parquet -o dataset --processes=1",
    "fleet report dataset",
    "fleet report dataset --format=json",
    "fleet report dataset --job=9999",
    "config check --config.file=settings.yaml",
    "config print",
    "config check --sampler.interval=7ms",
    "top",
    "gateway",
    "nonsense",
)
HOSTILE = (
    ("report {} --resamples=100", "run0.parquet"),
    ("report {} --resamples=100", "run1.parquet"),
    ("trace {}", "rank0.json"),
    ("model {}", "job.yaml"),
    ("model check {}", "run_config.yaml"),
    ("model experts {} --ranks=2 --nodes=2", "loads.csv"),
    ("nccl {}", "nccl.json"),
    ("nccl {}", "nccl.txt"),
    ("config check --config.file={}", "settings.yaml"),
    ("import {} -o new.parquet --force --time=when --port=port --transmit=tx --receive=rx --unit=MB", "log.csv"),
)


def command(line: str) -> bytes:
    """Exit code and output, by the first of the verb's names that this version knows."""
    found = [name for name in NAMES if line.startswith(f"{name} ")]
    for name in NAMES[found[0]] if found else ("",):
        words = shlex.split(line.replace(found[0], name, 1) if found else line)
        out, err = io.StringIO(), io.StringIO()
        np.random.seed(0)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words, {})
            except SystemExit as ended:
                code = int(ended.code or 0)
        if UNKNOWN not in err.getvalue():
            break
    return f"exit code: {code}\n{out.getvalue()}\n{err.getvalue()}".encode()


# everything


def run_at_once(_: object, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """A call in a real thread would end at a virtual time that depends on how busy this machine is."""
    future: Future[Any] = Future()
    try:
        future.set_result(fn(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def answer_all(into: Path) -> None:
    """Write the answer to each input, numbered, and the names of the inputs."""
    os.environ["COLUMNS"] = "100"
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    platform.node = lambda: "node7"
    platform.python_version = lambda: "3.99.0"
    logging.time = SimpleNamespace(**{**vars(time), "time": lambda: NOW, "time_ns": lambda: int(NOW * 1e9)})  # type: ignore[attr-defined]
    DaemonThreads.submit = run_at_once  # type: ignore[assignment]
    names: list[str] = []
    here = os.fsencode(Path.cwd())
    for part in (families, scenarios, served, logins, commands):
        for name, content in part():
            (into / f"{len(names)}").write_bytes(content.replace(here, b"FOLDER"))
            names.append(name)
    (into / "names.json").write_text(json.dumps(names))


if __name__ == "__main__":
    answer_all(Path(sys.argv[1]))
