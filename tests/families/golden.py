"""The `/metrics` and the doctor page of a family as the real program writes them, and the ones that are kept in files.

What depends on time, on load or on the machine that runs the test is left out or masked, by the tables below; all else
of a page is compared. It judges nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.families.table import Family
from tests.families.touched import Touched
from tests.running import Metrics, Running, eventually

FOLDER = Path(__file__).with_name("golden")
AT_A_TIME = 6
OBSERVED_SECONDS = 2.0

# Families that tell of the process, of the machine, or of the traffic of the last seconds, not of the hardware.
LEFT_OUT = (
    "python_",
    "process_",
    "ibpulse_build_info",
    "ibpulse_cgroup_",
    "ibpulse_device_read_",
    "ibpulse_http_",
    "ibpulse_node_step_",
    "ibpulse_node_workload_",
    "ibpulse_sampler_cpu_",
    "ibpulse_sampler_heartbeat_",
    "ibpulse_sampler_lateness_",
    "ibpulse_sampler_missed_",
    "ibpulse_sampler_scheduler_",
    "ibpulse_sampler_tick",
    "ibpulse_aggregator_",
    "ibpulse_aggregated_",
)
# Families whose lines are compared and whose values are not: they grow with time or with the load of the machine.
# That error counters refuse is a notice from their third read on.
MASKED = (
    # the samplers of doctor and of the daemon may meet, and what happens then is a matter of time
    "ibpulse_events_total",
    "ibpulse_fabric_notices",
    "ibpulse_node_last_traffic_timestamp_seconds",
    "ibpulse_port_down_seconds_total",
    "ibpulse_port_implausible_samples_total",
    "ibpulse_port_observed_seconds_total",
    "ibpulse_sampler_uncertain_reads_total",
)
# A histogram of samples is one line per port, whatever its buckets: how many samples there are is a matter of time.
_BUCKET = re.compile(r'^(\w+)_bucket\{(.*?),?le="[^"]*"\} \S+$')
# Doctor's checks that are about the tree; the others are about the machine that it runs on.
CHECKS_OF_TREES = (
    *("tree", "devices", "rails", "remarks", "likeness", "pcie", "files"),
    *("saturation", "counting", "resolution", "links", "balance"),
)
_TITLE = re.compile(r"^ibpulse \S+ checking \S+ on .*")
_WRAPPED = re.compile(r"\n {18,}(?!(?:means|do) {2})")
_SECONDS = re.compile(r"in \d+\.\d s")
_COUNT = re.compile(r"^(\w+_ratio_count(?:\{.*\})?) \S+$")


@dataclass(frozen=True)
class Pages:
    """Both pages of a family, masked."""

    metrics: str
    doctor: str

    @classmethod
    def read(cls, name: str) -> Pages:
        """The pages that are kept of the family `name`; a page that is not kept is empty."""
        texts = (FOLDER / name / file for file in ("metrics.txt", "doctor.txt"))
        return cls(*(path.read_text() if path.exists() else "" for path in texts))

    def write(self, name: str) -> None:
        """Keep the pages of the family `name`."""
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        (FOLDER / name / "metrics.txt").write_text(self.metrics)
        (FOLDER / name / "doctor.txt").write_text(self.doctor)


@dataclass(frozen=True)
class Visit:
    """What came of a family: its pages, and which files of its tree were opened and changed meanwhile."""

    pages: Pages
    opened: frozenset[str]
    changed: frozenset[str]


def visit_families(families: Sequence[Family], folder: Path) -> Mapping[str, Visit]:
    """What came of each family by its name, a few families at a time; trees are written below `folder`."""
    folders = {family.name: folder / family.name for family in families}
    # before any process is started: a file that is being written would be closed a second time by a new one
    for family, place in zip(families, folders.values(), strict=True):
        place.mkdir(parents=True)
        family.build(place / "sys")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(zip(folders, pool.map(_visit, folders.values()), strict=True))


def _visit(folder: Path) -> Visit:
    tree = folder / "sys"
    touched = Touched(tree)
    try:
        return Visit(_take_pages(tree, folder), *touched.look())
    finally:
        touched.close()


def _take_pages(tree: Path, folder: Path) -> Pages:
    with ThreadPoolExecutor(1) as beside, Running(tree, folder / "ring", needs_ports=False) as running:
        # on a ring of its own, so that doctor finds no daemon and samples by itself
        doctor = beside.submit(run_doctor, tree, folder / "doctor-ring")
        eventually(lambda: _is_settled(running.metrics()), 120, pause=1.0)
        return Pages(mask_metrics(running.ask("/metrics").text), mask_doctor(doctor.result(), folder))


def _is_settled(metrics: Metrics) -> bool:
    """Whether each port that is up and sampled has been observed for a while, or none is sampled at all."""
    sampled = {
        key: metrics.value("ibpulse_port_up", **dict(key)) for key in _ports(metrics, "sampling_interval_seconds")
    }
    observed = metrics.find("ibpulse_port_observed_seconds_total")
    asked = len(metrics.find("ibpulse_port_info")) > 0
    return asked and all(observed.get(key, 0.0) >= OBSERVED_SECONDS for key, up in sampled.items() if up)


def _ports(metrics: Metrics, name: str) -> list[frozenset[tuple[str, str]]]:
    return list(metrics.find(f"ibpulse_port_{name}"))


def run_doctor(tree: Path, ring_dir: Path, *flags: str) -> str:
    """What `ibpulse doctor` says of the tree and not of this machine, with its exit status in the last line."""
    command = [sys.executable, "-m", "ibpulse", "doctor", f"--path.sysfs={tree}", f"--ring.dir={ring_dir}", *flags]
    command += [f"--check={check}" for check in CHECKS_OF_TREES]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return answer.stdout + answer.stderr + f"exit status: {answer.returncode}\n"


def mask_metrics(text: str) -> str:
    """The page without help texts and without what `LEFT_OUT` names, values masked as `MASKED` says."""
    lines: dict[str, None] = {}
    for line in text.splitlines():
        name = line.removeprefix("# TYPE ")
        if not line.startswith("# HELP ") and not name.startswith(LEFT_OUT):
            lines[_mask_line(line)] = None
    return "".join(f"{line}\n" for line in lines)


def _mask_line(line: str) -> str:
    line = _BUCKET.sub(r"\1_bucket{\2} *", line)
    line = _COUNT.sub(r"\1 *", line)
    return line.rsplit(" ", 1)[0] + " *" if line.startswith(MASKED) else line


def mask_doctor(text: str, folder: Path) -> str:
    """The page with each sentence in one line, without the name of the folder, the kernel and the seconds it took."""
    text = _WRAPPED.sub(" ", text.replace(str(folder), "FOLDER"))
    return _SECONDS.sub("in * s", _TITLE.sub("ibpulse checking FOLDER/sys", text, count=1))
