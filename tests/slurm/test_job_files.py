"""The prolog and the epilog for Slurm, run by every shell that is there, with hostile values and in hostile places."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ibpulse.agent.jobs.files import read_slurm_mapping
from ibpulse.agent.jobs.owners import find_gpus
from ibpulse.core.model import Gpu, Topology

ROOT = Path(__file__).resolve().parents[2]
PROLOG, EPILOG = ROOT / "slurm" / "prolog.sh", ROOT / "slurm" / "epilog.sh"
SHELLS = {"sh": [], "bash": ["--posix"], "busybox": ["sh"]}
ADDRESSES = [f"0000:{bus:02x}:00.0" for bus in (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)]
# as the driver writes it
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 18
GPU UUID: \t GPU-58e8f5ea-13cc-013a-d88f-2bcf5ae8bc{number:02d}
Bus Type: \t PCIe
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Excluded:\t No
"""

pytestmark = pytest.mark.real("process")


class Node:
    """A node with eight GPUs and the directory of the jobs."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.jobs = folder / "ibpulse-jobs"
        self._gpus, self._shell = folder / "gpus", shell
        self.number_files(*range(len(ADDRESSES)))

    def number_files(self, *minors: int) -> None:
        """Give the GPUs, in the order of their addresses, device files with these numbers."""
        for number, (address, minor) in enumerate(zip(ADDRESSES, minors, strict=True)):
            place = self._gpus / address
            place.mkdir(parents=True, exist_ok=True)
            (place / "information").write_text(INFORMATION.format(number=number, address=address, minor=minor))

    def run(self, script: Path, job: str | None = "4711", **variables: str) -> str:
        """What the script said on standard error; it always succeeds and prints nothing else."""
        return self._start([str(script)], variables if job is None else {"SLURM_JOB_ID": job} | variables)

    def run_each(self, script: Path, texts: list[str], *variables: str) -> list[str]:
        """What the script said of each text as the value of variables; one process runs it for the jobs 1, 2, ..."""
        given = " ".join(f'{name}="$text"' for name in variables)
        run = f"job=$((job + 1)); (export SLURM_JOB_ID=$job {given}; . {script}); echo end >&2"
        return self._start(["-c", f"for text; do {run}; done", "sh", *texts], {}).split("end\n")[:-1]

    def _start(self, words: list[str], variables: dict[str, str]) -> str:
        environment = {"IBPULSE_JOBS__OWNERS_DIR": str(self.jobs), "IBPULSE_NVIDIA_GPUS": str(self._gpus)}
        done = subprocess.run(
            [*self._shell, *words],
            env=environment | variables,
            cwd=self._gpus,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        return done.stderr

    def job(self, number: str = "4711") -> dict[str, Any]:
        """What the file of a job says, except of the boot, which it always names."""
        found: dict[str, Any] = json.loads((self.jobs / f"{number}.json").read_text())
        assert found.pop("boot_id") == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return found

    def untouched(self) -> bool:
        """Whether nothing is in the directory in which the scripts start but the GPUs."""
        return sorted(os.listdir(self._gpus)) == ADDRESSES

    def listed(self) -> list[str]:
        """Everything in the directory, hidden files included."""
        return sorted(os.listdir(self.jobs))


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in SHELLS])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    # with its path, because the environment of a script has none
    return Node(tmp_path.resolve(), [shutil.which(request.param) or "", *SHELLS[request.param]])


def gpus(*numbers: int) -> list[str]:
    """The addresses of GPUs by their numbers."""
    return [ADDRESSES[number] for number in numbers]


def test_the_prolog_writes_the_job_and_the_epilog_removes_it(node: Node) -> None:
    said = node.run(PROLOG, SLURM_JOB_GPUS="0,2-3", SLURM_JOB_NAME="llama-70b", SLURM_JOB_ACCOUNT="nlp")
    assert said == ""
    assert node.job() == {
        "id": "4711",
        "scheduler": "slurm",
        "name": "llama-70b",
        "namespace": "nlp",
        "gpus": gpus(0, 2, 3),
    }
    assert node.listed() == ["4711.json"]
    assert node.run(EPILOG) == ""
    assert node.listed() == []


def test_jobs_on_one_node_have_files_that_everyone_can_read_and_only_their_owner_can_write(node: Node) -> None:
    previous = os.umask(0)
    try:
        node.run(PROLOG, "1", SLURM_JOB_GPUS="0-3")
        node.run(PROLOG, "12", SLURM_JOB_GPUS="4-7")
        node.run(EPILOG, "1")
    finally:
        os.umask(previous)
    assert node.listed() == ["12.json"]
    assert node.job("12")["gpus"] == gpus(4, 5, 6, 7)
    assert node.jobs.stat().st_mode & 0o7777 == 0o755
    assert (node.jobs / "12.json").stat().st_mode & 0o7777 == 0o644


def test_lists_and_ranges_of_gpus_become_addresses(node: Node) -> None:
    lists = {"0": [0], "7,0": [0, 7], "0-7": range(8), "0-1,3,5-6": [0, 1, 3, 5, 6], "2-2": [2], "1,1,0-1": [0, 1]}
    for text, numbers in lists.items():
        assert node.run(PROLOG, SLURM_JOB_GPUS=text) == ""
        assert node.job()["gpus"] == gpus(*numbers)


@pytest.mark.parametrize(("order", "number"), [("address", 1), ("file", 6)])
def test_numbers_are_those_that_the_administrator_chose(node: Node, order: str, number: int) -> None:
    node.number_files(*reversed(range(8)))
    assert node.run(PROLOG, SLURM_JOB_GPUS="1", IBPULSE_GPU_ORDER=order) == ""
    assert node.job()["gpus"] == gpus(number)


def test_gpus_that_are_others_by_address_than_by_device_file_are_left_out_and_named(node: Node) -> None:
    node.number_files(*reversed(range(8)))
    assert node.run(PROLOG, SLURM_JOB_GPUS="1,6") == ""
    assert node.job()["gpus"] == gpus(1, 6)
    assert node.run(PROLOG, SLURM_JOB_GPUS="0-1") == (
        'ibpulse: job 4711: SLURM_JOB_GPUS: "0-1" names other GPUs by PCI address than by device file; set order in '
        "the first lines of the prolog\n"
    )
    assert node.job() == {"id": "4711", "scheduler": "slurm"}


def test_by_address_the_numbers_are_those_of_a_mapping_directory(node: Node, tmp_path: Path) -> None:
    (tmp_path / "mapping").mkdir()
    for number in (0, 3, 5):
        (tmp_path / "mapping" / str(number)).write_text("4711")
    (claim,) = read_slurm_mapping(tmp_path / "mapping", 0).claims
    topology = Topology(gpus=tuple(Gpu(address, "0x10de", "0x2330") for address in ADDRESSES))
    node.number_files(*reversed(range(8)))
    node.run(PROLOG, SLURM_JOB_GPUS="0,3,5", IBPULSE_GPU_ORDER="address")
    assert find_gpus(claim, topology) == ({*node.job()["gpus"]}, [])


def test_instances_and_jobs_without_gpus_name_none(node: Node) -> None:
    said = node.run(PROLOG, SLURM_JOB_GPUS="0-1", CUDA_VISIBLE_DEVICES="MIG-GPU-58e8f5ea/1/0,MIG-GPU-58e8f5ea/2/0")
    assert said == 'ibpulse: job 4711: SLURM_JOB_GPUS: "0-1" names instances of GPUs (MIG)\n'
    assert node.job() == {"id": "4711", "scheduler": "slurm"}
    for variables in ({}, {"SLURM_JOB_GPUS": ""}):
        assert node.run(PROLOG, **variables) == ""
        assert node.job() == {"id": "4711", "scheduler": "slurm"}


UNKNOWN_GPUS = [
    *("8", "0,8", "0-8", "00", "08", "3-1", "-1", "1-", "0-1-2", ",", "0,", ",0", "0,,1", "-", "1000", " 0", "0 1"),
    *("0-99999999999999999999", "9" * 5000, "0x1", "1e0", "*", "0000:1b:00.0", "GPU-58e8f5ea", "N/A", "(null)"),
    *("0;touch harm", "$(touch harm)", "`touch harm`", "0\n1", "0\r", "0|1", "$((7/0))", "a[$(touch harm)]"),
]


def test_gpus_that_are_unknown_are_left_out_and_named(node: Node) -> None:
    refused = r'ibpulse: job \d+: SLURM_JOB_GPUS: "[\w ._:@+=/-]{1,128}" names GPUs that are not in .+\n'
    faults = []
    all_said = node.run_each(PROLOG, UNKNOWN_GPUS, "SLURM_JOB_GPUS")
    for number, (text, said) in enumerate(zip(UNKNOWN_GPUS, all_said, strict=True), 1):
        job = node.job(str(number))
        if job != {"id": str(number), "scheduler": "slurm"} or not re.fullmatch(refused, said):
            faults.append(f"{text[:40]!r}: {job}, {said!r}")
    assert not faults, "\n".join(faults)
    assert node.untouched()


def test_no_name_breaks_the_file(node: Node) -> None:
    names = [
        '"',
        "\\",
        '\\"}, "id": "1',
        "a\nb\tc",
        "\x1b[2J\x7f",
        "日本",
        "$(touch harm)",
        "-n",
        "%s%n",
        "x" * 100_000,
    ]
    assert node.run_each(PROLOG, names, "SLURM_JOB_NAME", "SLURM_JOB_ACCOUNT") == [""] * len(names)
    ids = [str(number) for number in range(1, len(names) + 1)]
    assert node.listed() == sorted(f"{number}.json" for number in ids)
    faults = []
    for number, name in zip(ids, names, strict=True):
        job, size = node.job(number), (node.jobs / f"{number}.json").stat().st_size
        written = job["name"]
        if job != {"id": number, "scheduler": "slurm", "name": written, "namespace": written} or size >= 4096:
            faults.append(f"{name[:40]!r}: {size} bytes, {job}")
        if not re.fullmatch(r"[\w ._:@+=/-]{1,128}", written, re.ASCII):
            faults.append(f"{name[:40]!r} became {written!r}")
    assert not faults, "\n".join(faults)
    assert node.untouched()


NO_IDS = [
    *("", "0", "007", "-1", "-rf", "1 2", "1\n", "../4711", "/etc/passwd", "*", "4711.json", "4711_1"),
    *("9" * 19, "४"),
]


@pytest.mark.parametrize("script", [PROLOG, EPILOG], ids=["prolog", "epilog"])
def test_an_id_that_is_no_number_writes_and_removes_nothing(node: Node, script: Path) -> None:
    node.run(PROLOG)
    all_said = [node.run(script, None), *node.run_each(script, NO_IDS, "SLURM_JOB_ID")]
    assert len(all_said) == 1 + len(NO_IDS)
    refused = re.compile('ibpulse: SLURM_JOB_ID: "[^\n]*\n')
    assert [said for said in all_said if not refused.fullmatch(said)] == []
    assert node.listed() == ["4711.json"]


def test_the_environment_decides_nothing(node: Node, tmp_path: Path) -> None:
    harm = tmp_path / "bin"
    harm.mkdir()
    for name in ("tr", "cut", "mv", "rm", "ls", "id", "mkdir", "logger", "printf"):
        (harm / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/harm\n")
        (harm / name).chmod(0o755)
    (tmp_path / "start").write_text(f"touch {tmp_path}/harm\n")
    variables = {
        "PATH": str(harm),
        "IFS": "0123456789/",
        "CDPATH": str(tmp_path),
        "ENV": str(tmp_path / "start"),
        "LC_ALL": "C.UTF-8",
        "POSIXLY_CORRECT": "1",
        "body": "x",
        "found": "x",
    }
    assert node.run(PROLOG, SLURM_JOB_GPUS="0,2-3", **variables) == ""
    assert node.job() == {"id": "4711", "scheduler": "slurm", "gpus": gpus(0, 2, 3)}
    assert node.run(EPILOG, **variables) == ""
    assert node.listed() == []
    assert not (tmp_path / "harm").exists()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A directory with a file, in both of which nothing may change."""
    folder = tmp_path.resolve() / "victim"
    folder.mkdir()
    (folder / "4711.json").write_text("precious")
    before = (folder / "4711.json").stat()
    yield folder
    assert sorted(os.listdir(folder)) == ["4711.json"]
    assert (folder / "4711.json").read_text() == "precious"
    assert (folder / "4711.json").stat().st_mtime_ns == before.st_mtime_ns


def refused(node: Node, reason: str) -> bool:
    """Whether both scripts give up with this reason."""
    return all(re.fullmatch(f"ibpulse: job 4711: {reason}\n", node.run(script)) for script in (PROLOG, EPILOG))


def test_a_link_or_a_file_in_the_place_of_the_directory_is_refused(node: Node, victim: Path) -> None:
    node.jobs.symlink_to(victim)
    assert refused(node, f"{node.jobs} is a link, or reached through one")
    node.jobs.unlink()
    node.jobs.write_text("a file")
    assert refused(node, f"cannot change to {node.jobs}")
    assert node.jobs.read_text() == "a file"
    for place in ("./relative", "-rf"):
        said = node.run(PROLOG, IBPULSE_JOBS__OWNERS_DIR=place)
        assert said == f'ibpulse: job 4711: "{place}" is not an absolute path\n'
    assert node.untouched()


def test_a_directory_that_others_can_write_to_is_refused(node: Node) -> None:
    node.jobs.mkdir()
    (node.jobs / "4711.json").write_text("theirs")
    for mode in (0o1777, 0o775, 0o757, 0o2775):
        node.jobs.chmod(mode)
        assert refused(node, f"other users can write to {node.jobs}; use chmod go-w")
    assert (node.listed(), (node.jobs / "4711.json").read_text()) == (["4711.json"], "theirs")


@pytest.mark.needs("root")
def test_a_directory_of_another_user_is_refused(node: Node) -> None:
    node.jobs.mkdir()
    os.chown(node.jobs, 65534, 65534)
    assert refused(node, f"{node.jobs} belongs to user 65534, not to user 0; remove it")
    assert node.listed() == []


def test_links_in_the_directory_are_replaced_and_not_followed(node: Node, victim: Path) -> None:
    node.jobs.mkdir(mode=0o755)
    for name in ("4711.json", ".4711.json.new"):
        (node.jobs / name).symlink_to(victim / "4711.json")
    assert node.run(PROLOG) == ""
    assert node.job() == {"id": "4711", "scheduler": "slurm"}
    assert not (node.jobs / "4711.json").is_symlink()
    (node.jobs / "4711.json").unlink()
    (node.jobs / "4711.json").symlink_to(victim / "4711.json")
    assert node.run(EPILOG) == ""
    assert node.listed() == []


@pytest.mark.parametrize("linked", [False, True])
def test_nothing_is_moved_into_a_directory_with_the_name_of_the_file(node: Node, victim: Path, linked: bool) -> None:
    node.jobs.mkdir(mode=0o755)
    if linked:
        (node.jobs / "4711.json").symlink_to(victim)
    else:
        (node.jobs / "4711.json").mkdir()
    assert node.run(PROLOG) == f"ibpulse: job 4711: cannot replace {node.jobs}/4711.json\n"
    assert node.listed() == ["4711.json"]
    assert linked or list((node.jobs / "4711.json").iterdir()) == []


def test_a_reader_keeps_the_whole_old_file_when_it_is_replaced(node: Node) -> None:
    node.run(PROLOG, SLURM_JOB_GPUS="0-7", SLURM_JOB_NAME="old")
    with (node.jobs / "4711.json").open() as reader:
        node.run(PROLOG, SLURM_JOB_GPUS="1")
        assert json.load(reader)["name"] == "old"
    assert node.job()["gpus"] == gpus(1)


def test_a_full_file_system_leaves_no_part_of_a_file(node: Node, tmp_path: Path) -> None:
    node.jobs.mkdir(mode=0o755)
    limited = tmp_path / "limited.sh"
    limited.write_text(f"trap '' XFSZ\nulimit -f 0\n. {PROLOG}\n")
    assert node.run(limited) == f"ibpulse: job 4711: cannot write to {node.jobs}\n"
    assert node.listed() == []


def test_a_node_without_the_driver_and_an_epilog_without_a_prolog(node: Node, tmp_path: Path) -> None:
    assert node.run(EPILOG) == ""
    assert not node.jobs.exists()
    said = node.run(PROLOG, SLURM_JOB_GPUS="0", IBPULSE_NVIDIA_GPUS=str(tmp_path / "none"))
    assert 'SLURM_JOB_GPUS: "0" names GPUs that are not in ' in said
    assert node.job() == {"id": "4711", "scheduler": "slurm"}
    assert node.run(EPILOG, "12") == ""
    assert node.listed() == ["4711.json"]


def test_both_scripts_can_be_started_and_judge_the_directory_and_the_id_alike() -> None:
    def parts(script: Path) -> list[str]:
        text = script.read_text()
        names = ("say", "give_up", "clean", "read_id", "enter")
        functions = [re.search(rf"(?ms)^{name}\(\) {{.*?^}}$", text) for name in names]
        defaults = re.search(r"(?m)^directory=.*$", text)
        return [found.group() for found in (*functions, defaults) if found]

    assert parts(PROLOG) == parts(EPILOG)
    assert len(parts(PROLOG)) == 6

    for script in (PROLOG, EPILOG):
        assert os.access(script, os.X_OK)
        assert script.read_text().startswith("#!/bin/sh\n")


@pytest.mark.needs("shellcheck")
def test_shellcheck_finds_nothing() -> None:
    command = ["shellcheck", "--shell=sh", str(PROLOG), str(EPILOG)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
