"""Names of cgroups by strangers: only those that Slurm and the kubelet give count, whatever else is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.agent.jobs.cgroups import read_pod_cgroups, read_slurm_cgroups
from ibpulse.core.jobs import Found
from tests.other_users import USER, needs_other_users, python, shared_directory

SCOPE = "system.slice/slurmstepd.scope"
UID = "0b3f8c1e-5d2a-4c3b-9e7f-1a2b3c4d5e6f"


def jobs(root: Path) -> list[str]:
    return [claim.id for claim in read_slurm_cgroups(root).claims]


@pytest.mark.parametrize(
    "name",
    [
        "job_",
        "job_0",
        "job_-1",
        "job_1x",
        "job_12345678901",
        "job_１",
        "Job_1",
        "job_1\n",
        "step_1",
        "xjob_1",
        "job_1\udcff",
    ],
    ids=repr,
)
def test_a_name_that_slurm_does_not_give_is_no_job(tmp_path: Path, name: str) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / SCOPE / name).mkdir()
    assert jobs(tmp_path) == ["7"]


@pytest.mark.parametrize(
    "path",
    [
        "user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1",
        "system.slice/other.scope/job_1",
        "system.slice/job_1",
        "slurmstepd.scope/job_1",
        f"{SCOPE}/job_7/step_0/job_1",
        "slurm/uid_1/job_1",
    ],
)
def test_only_the_places_of_slurm_are_searched(tmp_path: Path, path: str) -> None:
    """Users may make cgroups of any name below their own."""
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / path).mkdir(parents=True)
    assert jobs(tmp_path) == ["7"]


def test_links_and_files_are_no_jobs(tmp_path: Path) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / SCOPE / "job_8").symlink_to("job_7")
    (tmp_path / SCOPE / "job_9").write_text("")
    os.mkfifo(tmp_path / SCOPE / "job_10")
    assert jobs(tmp_path) == ["7"]


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    os.mkfifo(tmp_path / SCOPE / "job_7" / "cgroup.events")
    pod = tmp_path / "kubepods" / f"pod{UID}"
    pod.mkdir(parents=True)
    os.mkfifo(pod / "rdma.current")
    assert jobs(tmp_path) == ["7"]
    assert read_pod_cgroups(tmp_path).pods == (UID,)


def test_of_ten_thousand_hostile_names_few_are_jobs(tmp_path: Path) -> None:
    scope, pods = tmp_path / SCOPE, tmp_path / "kubepods"
    scope.mkdir(parents=True)
    pods.mkdir()
    for number in range(4_000):
        (scope / f"job_\udcff{number}").mkdir()
        (pods / f"pod\x1b[31m{number}").mkdir()
    for number in range(1, 1_001):
        (scope / f"job_{number}").mkdir()
        (pods / f"pod{number:08x}{UID[8:]}").mkdir()
    scope.joinpath(*["d"] * 500).mkdir(parents=True)
    found, seen = read_slurm_cgroups(tmp_path, 60.0), read_pod_cgroups(tmp_path, 60.0)
    assert [claim.id for claim in found.claims] == [str(number) for number in range(1, 257)]
    assert found.remarks[0] == f"{tmp_path}: there are more than 256 jobs; the others are ignored."
    assert found.remarks[1].endswith(
        "and 3997 more: not the name of a job, such as job_42 or s5K1KKYAYG5D00; it is not known which jobs run."
    )
    assert (found.unread, found.whole, found.cut) == (True, False, True)
    assert (len(seen.pods), seen.claims, seen.knows) == (256, (), False)


@pytest.mark.parametrize("read", [read_slurm_cgroups, read_pod_cgroups])
def test_a_reading_that_takes_too_long_says_nothing_about_jobs(tmp_path: Path, read: Callable[..., Found]) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / "kubepods" / f"pod{UID}").mkdir(parents=True)
    assert read(tmp_path).whole
    late = f"{tmp_path}: reading the cgroups takes too long; showing the jobs known before."
    assert read(tmp_path, -1.0) == Found(remarks=(late,), whole=False)


LIST_AS_USER = """
import sys
from pathlib import Path
from ibpulse.agent.jobs.cgroups import read_slurm_cgroups
found = read_slurm_cgroups(Path(sys.argv[1]))
print(found.claims, found.whole, *found.remarks, sep="|")
"""


@needs_other_users
@pytest.mark.real("process")
def test_cgroups_that_cannot_be_listed_are_not_no_jobs() -> None:
    with shared_directory() as root:
        scope = root / SCOPE
        scope.mkdir(parents=True)
        scope.chmod(0o700)
        said = python(USER, LIST_AS_USER, root)
        assert said == f"()|False|{scope} cannot be listed: Permission denied; showing the jobs known before.\n"
        scope.chmod(0o755)
        assert python(USER, LIST_AS_USER, root) == "()|True\n"


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("mlx5_0 hca_handle=1 hca_object=20\n", ("mlx5_0",)),
        ("mlx5_0 hca_object=20 hca_handle=12\n", ("mlx5_0",)),
        ("mlx5_0 hca_handle=0 hca_object=20\n", ()),
        ("mlx5_0 hca_handle=x\nmlx5_1 hca_handle=2\n", ("mlx5_1",)),
        ("../../x hca_handle=1\n hca_handle=1\n", ()),
        ("mlx5_0\x00 hca_handle=1\n", ()),
        ("a" * 65 + " hca_handle=1\n", ()),
    ],
)
def test_devices_are_those_with_an_open_handle(tmp_path: Path, text: str, devices: tuple[str, ...]) -> None:
    pod = tmp_path / "kubepods" / f"pod{UID}"
    pod.mkdir(parents=True)
    (pod / "rdma.current").write_text(text)
    found = read_pod_cgroups(tmp_path)
    assert [claim.devices for claim in found.claims] == ([devices] if devices else [])
    assert found.knows
