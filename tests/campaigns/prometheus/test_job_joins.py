"""Runs every query of docs/job-joins.md on a real Prometheus that scrapes ibpulse and other exporters.

The pages have the form in which those exporters write them, with rates that are known. Prometheus renames labels as in
a cluster.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import yaml

from tests import ROOT
from tests.grafana.servers import Servers, running_servers
from tests.running import eventually

pytestmark = [
    pytest.mark.needs("prometheus", "alertmanager"),
]

PAGE = (ROOT / "docs" / "job-joins.md").read_text()
QUERIES = dict(re.findall(r"(?m)^\| ([^|`]+) \| `([^`]+)` \|$", PAGE))
WINDOW = "10s"
# series that exist once every exporter was scraped
READY = {
    "ibpulse_port_info",
    "DCGM_FI_DEV_GPU_TEMP",
    "kube_pod_info",
    "slurm_job_memory_usage",
    "slurm_proc_cpu_usage",
    "job_id:ibpulse_bandwidth_bytes:rate5m",
}
START = time.time() - 3600
# the last traffic of job 7
SILENT = START + 3000
UIDS = {name: f"0f9b2f6e-6a0c-4d7e-9d2c-5f1c6e0a00{n}" for n, name in enumerate(("train-0", "train-1", "serve-0"), 10)}
PODS = {"train-0": ("nlp", "train"), "train-1": ("nlp", "train"), "serve-0": ("vision", "serve")}


@dataclass(frozen=True)
class Sample:
    """A sample of a page: a value that changes by `slope` per second."""

    name: str
    labels: dict[str, str]
    value: float = 1.0
    slope: float = 0.0

    def line(self, now_ms: int) -> str:
        labels = ",".join(f'{key}="{value}"' for key, value in self.labels.items())
        return f"{self.name}{{{labels}}} {self.value + self.slope * (now_ms / 1000 - START)!r} {now_ms}\n"


def port(device: str, gpu: str, gigabytes: float, errors: float = 0.0) -> list[Sample]:
    """The series of a rail that sends at a constant rate."""
    labels = {"device": device, "port": "1"}
    return [
        Sample("ibpulse_port_info", {**labels, "gpu": gpu, "rail": "true", "role": "compute"}),
        Sample("ibpulse_port_transmit_bytes_total", labels, 0, gigabytes * 1e9),
        Sample("ibpulse_port_receive_bytes_total", labels, 0),
        Sample("ibpulse_symbol_error_total", labels, 0, errors),
    ]


def owner(device: str, job: str, scheduler: str = "slurm") -> Sample:
    source = "kubernetes-cgroup" if scheduler == "kubernetes" else "slurm-map"
    labels = {"device": device, "port": "1", "job_id": job, "scheduler": scheduler, "source": source}
    return Sample("ibpulse_port_job_info", labels)


def job(number: str, bandwidth: float = 1e11, last_traffic: float | None = None) -> list[Sample]:
    """The series of a job on a node; its last traffic is now unless it is silent."""
    labels = {"job_id": number}
    name = "ibpulse_job_last_traffic_timestamp_seconds"
    return [
        Sample("ibpulse_job_active_bandwidth_bytes_per_second", labels, bandwidth),
        Sample(name, labels, START, 1) if last_traffic is None else Sample(name, labels, last_traffic),
    ]


def jobs(count: int) -> Sample:
    return Sample("ibpulse_node_jobs", {}, count)


def count_jobs(page: list[Sample]) -> list[Sample]:
    """The number of jobs of each port of a page."""
    found = Counter(sample.labels["device"] for sample in page if sample.name == "ibpulse_port_job_info")
    devices = [sample.labels["device"] for sample in page if sample.name == "ibpulse_port_info"]
    return [Sample("ibpulse_port_jobs", {"device": device, "port": "1"}, found[device]) for device in devices]


def pod(device: str, name: str) -> list[Sample]:
    return [owner(device, UIDS[name], "kubernetes"), *job(UIDS[name])]


GPUS = ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0")
NODES: dict[str, list[Sample]] = {
    "n1": [
        *port("mlx5_0", GPUS[0], 1),
        *port("mlx5_1", GPUS[1], 2),
        *port("mlx5_2", GPUS[2], 3, errors=2),
        *(owner("mlx5_0", "7"), owner("mlx5_1", "7"), owner("mlx5_2", "8"), jobs(2)),
        *job("7", last_traffic=SILENT),
        *job("8"),
    ],
    "n2": [*port("mlx5_0", GPUS[0], 4), owner("mlx5_0", "7"), jobs(1), *job("7", last_traffic=SILENT - 0.35)],
    "n3": [*port("mlx5_0", GPUS[0], 5, errors=5), owner("mlx5_0", "11"), owner("mlx5_0", "12"), jobs(2)],
    "n4": [*port("mlx5_0", GPUS[0], 8), jobs(0)],
    **{
        f"s{n}": [*port("mlx5_0", GPUS[0], 0), owner("mlx5_0", "21"), jobs(1), *job("21", 8e10 if n == 4 else 1e11)]
        for n in range(1, 5)
    },
    # two GPUs are equally near to the first port
    "k1": [
        *port("mlx5_0", f"{GPUS[0]},0000:1c:00.0", 6),
        *port("mlx5_1", GPUS[1], 7),
        *(*pod("mlx5_0", "train-0"), *pod("mlx5_1", "train-1"), jobs(2)),
    ],
    "k2": [*port("mlx5_0", GPUS[0], 9), *pod("mlx5_0", "serve-0"), jobs(1)],
}
OLD_DCGM = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
NEW_DCGM = ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "DCGM_FI_PROF_TENSOR_UTIL_RATIO")


def gpu(node: str, number: int, names: tuple[str, str], busy: float, tensor: float, **more: str) -> list[Sample]:
    """The series of a GPU as dcgm-exporter writes them."""
    labels = {
        "gpu": str(number),
        "UUID": f"GPU-{node}-{number}",
        "pci_bus_id": f"0000{GPUS[number]}".upper(),
        "device": f"nvidia{number}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": node,
        "DCGM_FI_DRIVER_VERSION": "550.54.15",
        **more,
    }
    values = {"DCGM_FI_DEV_GPU_TEMP": 41.0, names[0]: busy, names[1]: tensor}
    return [Sample(name, labels, value) for name, value in values.items()]


def held_by(name: str) -> dict[str, str]:
    return {"container": "main", "namespace": PODS[name][0], "pod": name}


DCGM = {
    "n1": [
        *gpu("n1", 0, OLD_DCGM, 1.0, 0.01, hpc_job="7"),
        *gpu("n1", 1, OLD_DCGM, 1.0, 0.03, hpc_job="7"),
        *gpu("n1", 2, OLD_DCGM, 0.95, 0.5, hpc_job="8"),
    ],
    "n2": gpu("n2", 0, NEW_DCGM, 1.0, 0.02, hpc_job="7"),
    "s1": gpu("s1", 1, NEW_DCGM, 0.1, 0.0),
    "k1": [
        *gpu("k1", 0, OLD_DCGM, 1, 0.4, **held_by("train-0")),
        *gpu("k1", 1, OLD_DCGM, 1, 0.4, **held_by("train-1")),
    ],
    "k2": gpu("k2", 0, NEW_DCGM, 1.0, 0.4, **held_by("serve-0")),
}
KUBE_STATE_METRICS = [
    sample
    for name, (namespace, owning) in PODS.items()
    for labels in [{"namespace": namespace, "pod": name, "uid": UIDS[name]}]
    for sample in (
        Sample("kube_pod_info", {**labels, "node": "k1", "created_by_kind": "Job", "created_by_name": owning}),
        Sample("kube_pod_owner", {**labels, "owner_kind": "Job", "owner_name": owning, "owner_is_controller": "true"}),
    )
]
SLURM_JOB_EXPORTER = [
    Sample("slurm_job_memory_usage", {"user": "ada", "account": account, "slurmjobid": number}, 1e9)
    for account, number in (("nlp", "7"), ("hep", "8"))
]
PROMETHEUS_SLURM_EXPORTER = [
    Sample("slurm_proc_cpu_usage", {"jobid": number, "username": "ada"}, 12) for number in ("7", "8")
]
PAGES = {
    **{f"/ibpulse/{node}": [*page, *count_jobs(page)] for node, page in NODES.items()},
    **{f"/dcgm/{node}": page for node, page in DCGM.items()},
    "/kube-state-metrics": KUBE_STATE_METRICS,
    "/slurm-job-exporter": SLURM_JOB_EXPORTER,
    "/prometheus-slurm-exporter": PROMETHEUS_SLURM_EXPORTER,
}


class Exporters(BaseHTTPRequestHandler):
    """Answers with the pages."""

    def do_GET(self) -> None:
        now_ms = int(time.time() * 1000)
        body = "".join(sample.line(now_ms) for sample in PAGES[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def running_exporters() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporters)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def relabelings() -> list[dict[str, Any]]:
    """Those that the page tells to use for dcgm-exporter."""
    found = re.search(r"(?ms)^```yaml\n(.*?)^```$", PAGE)
    assert found
    relabelings: list[dict[str, Any]] = yaml.safe_load(found[1])["metric_relabel_configs"]
    return relabelings


def scrapes(address: str) -> list[dict[str, Any]]:
    """Scrape jobs as in a cluster: in Kubernetes a target has the labels of the exporter's own pod."""

    def scrape(name: str, targets: dict[str, dict[str, str]], **more: Any) -> dict[str, Any]:
        static = [
            {"targets": [address], "labels": {"__metrics_path__": path, **labels}} for path, labels in targets.items()
        ]
        return {"job_name": name, "static_configs": static, **more}

    exporter = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p", "container": "exporter"}
    dcgm = {f"/dcgm/{node}": {"instance": f"10.0.0.{n}:9400"} for n, node in enumerate(DCGM)}
    dcgm["/dcgm/k1"] |= exporter
    honored = {"/dcgm/k2": dcgm.pop("/dcgm/k2") | exporter}
    return [
        scrape("nodes", {f"/ibpulse/{node}": {"instance": node} for node in NODES}),
        scrape("dcgm", dcgm, metric_relabel_configs=relabelings()),
        scrape("dcgm-honored", honored, metric_relabel_configs=relabelings(), honor_labels=True),
        scrape("kube-state-metrics", {"/kube-state-metrics": {"pod": "kube-state-metrics-0"}}, honor_labels=True),
        scrape("slurm-job-exporter", {"/slurm-job-exporter": {"instance": "n1:9798"}}),
        scrape("slurm", {"/prometheus-slurm-exporter": {"instance": "controller:9092"}}),
    ]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Prometheus, once it has a whole window of every exporter."""
    with (
        running_exporters() as address,
        running_servers(tmp_path_factory.mktemp("joins"), (), {}, scrapes(address), WINDOW) as servers,
    ):
        for name in READY:
            whole = f"min(count_over_time({name}[{WINDOW}])) > 5"
            eventually(lambda whole=whole: ask(servers, whole), 120.0, 0.5)
        yield servers


def ask(servers: Servers, query: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The values of a query by these labels of its series, with the window of this test."""
    found = servers.ask("query", query=query.replace("[5m]", f"[{WINDOW}]"))["result"]
    values = {tuple(each["metric"].get(label, "") for label in labels): float(each["value"][1]) for each in found}
    assert len(values) == len(found), found
    return values


GPU_NEXT_TO = {
    ("n1", "mlx5_0"): "GPU-n1-0",
    ("n1", "mlx5_1"): "GPU-n1-1",
    ("n1", "mlx5_2"): "GPU-n1-2",
    ("n2", "mlx5_0"): "GPU-n2-0",
    ("k1", "mlx5_0"): "GPU-k1-0",
    ("k1", "mlx5_1"): "GPU-k1-1",
    ("k2", "mlx5_0"): "GPU-k2-0",
}
# by the first cell of the row: labels of the series, and their values
EXPECTED: dict[str, tuple[tuple[str, ...], dict[tuple[str, ...], float]]] = {
    "a counter of the ports, with the job": (
        ("instance", "device", "job_id"),
        {
            ("n1", "mlx5_0", "7"): 0,
            ("n1", "mlx5_1", "7"): 0,
            ("n1", "mlx5_2", "8"): 2,
            ("n2", "mlx5_0", "7"): 0,
            **{(f"s{n}", "mlx5_0", "21"): 0 for n in range(1, 5)},
            **{("k1", f"mlx5_{n}", UIDS[f"train-{n}"]): 0 for n in range(2)},
            ("k2", "mlx5_0", UIDS["serve-0"]): 0,
        },
    ),
    "ports that jobs share": (("instance", "device"), {("n3", "mlx5_0"): 2}),
    "traffic on nodes without a job": (("instance",), {("n4",): 8e9}),
    "slow nodes of a job": (("instance", "job_id"), {("s4", "21"): 0.8}),
    "the node that stopped first": (("instance", "job_id"), {("n2", "7"): 0.35}),
    "dcgm-exporter on Slurm: jobs with busy GPUs and silent rails": (("job_id",), {("7",): 1.0}),
    "dcgm-exporter on Slurm: tensor cores of each job": (("job_id",), {("7",): 0.02, ("8",): 0.5}),
    "dcgm-exporter: the GPU next to each rail": (
        ("instance", "device", "UUID"),
        {(*place, uuid): 1 for place, uuid in GPU_NEXT_TO.items()},
    ),
    "dcgm-exporter on Kubernetes: traffic of each pod": (
        ("exported_namespace", "exported_pod"),
        {("nlp", "train-0"): 6e9, ("nlp", "train-1"): 7e9},
    ),
    "kube-state-metrics: the pod of each port": (
        ("instance", "device", "namespace", "pod"),
        {
            ("k1", "mlx5_0", "nlp", "train-0"): 1,
            ("k1", "mlx5_1", "nlp", "train-1"): 1,
            ("k2", "mlx5_0", "vision", "serve-0"): 1,
        },
    ),
    "kube-state-metrics: bandwidth of each namespace": (("namespace",), {("nlp",): 13e9, ("vision",): 9e9}),
    "kube-state-metrics: bandwidth of each training job, all its pods together": (
        ("namespace", "owner_name"),
        {("nlp", "train"): 13e9, ("vision", "serve"): 9e9},
    ),
    "slurm-job-exporter: bandwidth of each account": (("account",), {("nlp",): 7e9, ("hep",): 3e9}),
    "prometheus-slurm-exporter (rivosinc, with tracing): bandwidth of each user": (("username",), {("ada",): 10e9}),
}


def test_every_query_of_the_page_is_run() -> None:
    assert QUERIES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("title", QUERIES)
def test_a_query_gives_what_the_exporters_say(prometheus: Servers, title: str) -> None:
    labels, expected = EXPECTED[title]
    found: dict[tuple[str, ...], float] = {}

    def is_right() -> bool:
        nonlocal found
        found = ask(prometheus, QUERIES[title], *labels)
        return bool(found == pytest.approx(expected, rel=0.02, abs=1e-3))

    try:
        eventually(is_right, 60.0, 0.5)
    except AssertionError:
        assert found == pytest.approx(expected, rel=0.02, abs=1e-3)


def test_a_plain_join_fails_on_a_shared_port(prometheus: Servers) -> None:
    (query,) = re.findall(r"(?ms)^```promql\n(.*?)^```$", PAGE)
    params = {"query": query.replace("[5m]", f"[{WINDOW}]")}

    def answer() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(
            f"http://{prometheus.prometheus}/api/v1/query", params=params, timeout=20
        ).json()
        return found

    refusal = "found duplicate series for the match group"
    eventually(lambda: answer().get("error", "").startswith(refusal), 60.0, 0.5)
    alone = params["query"].replace("ibpulse_port_job_info", 'ibpulse_port_job_info{instance!="n3"}')
    place = ("n1", "mlx5_2", "8")
    eventually(lambda: ask(prometheus, alone, "instance", "device", "job_id").get(place, 0) > 0, 60.0, 0.5)


def test_the_time_of_the_last_traffic_keeps_its_milliseconds(prometheus: Servers) -> None:
    stopped = 'instance_job_id:ibpulse_stopped_early:seconds{job_id="7"}'
    assert ask(prometheus, stopped, "instance") == pytest.approx({("n1",): 0.0, ("n2",): 0.35}, abs=1e-5)
