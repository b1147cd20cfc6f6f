"""The jobs and pods of the cgroups of Slurm 23 to 26 and of kubelets, and names that strangers give to theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ibpulse.agent.jobs import cgroups
from ibpulse.agent.jobs.cgroups import Cgroups, read_pod_cgroups, read_slurm_cgroups
from ibpulse.agent.jobs.watch import choose_sources, merge
from ibpulse.core.jobs import Found
from tests.jobs.job_nodes import OTHER_UID, STATIC_UID, UID, under
from tests.other_users import USER, needs_other_users, python, shared_directory
from tests.tables import for_each

HEX = "9ab7d9f56928aece13edee1cb8e5ea1fb9ff0a8711f95b2debd0ab1bae8d487c"
SLUID, OTHER_SLUID = "s5K1KKYAYG5D00", "sEKNKTV3WPV500"
SCOPE = "system.slice/slurmstepd.scope"
OPEN = "mlx5_0 hca_handle=2 hca_object=200\n"
BURSTABLE = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod"
POD = f"{BURSTABLE}{under(UID)}.slice"
DOCKER = f"system.slice/docker-{HEX}.scope"
CONTAINERD_POD = f"system.slice/containerd.service/kubepods-burstable-pod{under(UID)}.slice:cri-containerd:{HEX}"
STOPPED = "populated 0\nfrozen 0\n"


def jobs(root: Path) -> list[str]:
    return [claim.id for claim in read_slurm_cgroups(root).claims]


@pytest.mark.parametrize(
    "name",
    ["job_", "job_0", "job_-1", "job_1x", "job_12345678901", "job_１", "Job_1", "job_1\n", "job_1\udcff"],
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


def test_links_and_files_are_no_jobs_and_pipes_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / SCOPE / "job_8").symlink_to("job_7")
    (tmp_path / SCOPE / "job_9").write_text("")
    pod = tmp_path / "kubepods" / f"pod{UID}"
    pod.mkdir(parents=True)
    for pipe in (tmp_path / SCOPE / "job_10", tmp_path / SCOPE / "job_7" / "cgroup.events", pod / "rdma.current"):
        os.mkfifo(pipe)
    assert jobs(tmp_path) == ["7"]
    assert read_pod_cgroups(tmp_path).pods == (UID,)


def test_of_ten_thousand_hostile_names_few_are_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(cgroups, "MAX_SECONDS", 60.0)
    found, seen = read_slurm_cgroups(tmp_path), read_pod_cgroups(tmp_path)
    assert [claim.id for claim in found.claims] == [str(number) for number in range(1, 257)]
    assert found.remarks[0] == f"{tmp_path}: there are more than 256 jobs; the others are ignored."
    assert found.remarks[1].endswith(
        "and 3997 more: not the name of a job, such as job_42 or s5K1KKYAYG5D00; it is not known which jobs run."
    )
    assert (found.unread, found.whole, found.cut) == (True, False, True)
    assert (len(seen.pods), seen.claims, seen.knows) == (256, (), False)


@pytest.mark.parametrize("read", [read_slurm_cgroups, read_pod_cgroups])
def test_a_reading_that_takes_too_long_says_nothing_about_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., Found]
) -> None:
    (tmp_path / SCOPE / "job_7").mkdir(parents=True)
    (tmp_path / "kubepods" / f"pod{UID}").mkdir(parents=True)
    assert read(tmp_path).whole
    late = f"{tmp_path}: reading the cgroups takes too long; showing the jobs known before."
    monkeypatch.setattr(cgroups, "MAX_SECONDS", -1.0)
    assert read(tmp_path) == Found(remarks=(late,), whole=False)


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


@dataclass(frozen=True)
class Layout:
    """Cgroups (each with the text of `rdma.current`, or of `cgroup.events` in a scope), and what is true of them."""

    folders: Mapping[str, str]
    jobs: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    known: bool = True
    remarks: tuple[str, ...] = field(default=())

    def build(self, root: Path) -> None:
        for path, text in self.folders.items():
            folder = root / path
            folder.mkdir(parents=True, exist_ok=True)
            if text:
                (folder / ("rdma.current" if "hca_" in text else "cgroup.events")).write_text(text)


def slurm(*paths: str, **changes: object) -> Layout:
    return Layout(dict.fromkeys(paths, ""), **changes)  # type: ignore[arg-type]


LAYOUTS = {
    "Slurm 23 to 25": slurm(f"{SCOPE}/job_42/step_0/user/task_0", f"{SCOPE}/system", jobs=("42",)),
    "Slurm 26.05": slurm(
        f"{SCOPE}/{SLUID}/step_0", f"{SCOPE}/{OTHER_SLUID}", f"{SCOPE}/system", jobs=(SLUID, OTHER_SLUID)
    ),
    "Slurm 26.05, idle": slurm(f"{SCOPE}/system", f"{SCOPE}/slurmd"),
    "Slurm 26.05, ended": Layout({f"{SCOPE}/{SLUID}": STOPPED}),
    "a name of the future": slurm(
        f"{SCOPE}/job_42", f"{SCOPE}/t5K1", jobs=("42",), known=False, remarks=("t5K1: not the name of a job",)
    ),
    "a name of the future, ended": Layout({f"{SCOPE}/t5K1": STOPPED}),
    "several slurmd, a nested CgroupSlice": slurm(
        f"hpc.slice/hpc-a.slice/n1_slurmstepd.scope/{SLUID}",
        "system.slice/n2_slurmstepd.scope/job_7",
        jobs=("7", SLUID),
    ),
    "version 1, several slurmd": slurm("cpuacct/slurm_n1/uid_0/job_3", "memory/slurm_n1/uid_0/job_3", jobs=("3",)),
    "version 1, by SLUID": slurm(f"freezer/slurm/uid_7/{SLUID}", jobs=(SLUID,)),
    "version 1, only the controller of processors": slurm("cpu,cpuacct/slurm/uid_0/job_1/step_batch", jobs=("1",)),
    "both versions mounted": slurm(
        "freezer/slurm/uid_7/job_6", "unified/system.slice/slurmd.service", "systemd/slurmd.service", jobs=("6",)
    ),
    "version 1, another name": slurm("freezer/slurm/uid_7/x", known=False, remarks=("x: not the name of a job",)),
    "version 1, idle": slurm("freezer/slurm/system"),
    "slurmd in a container of Docker": slurm(f"{DOCKER}/{SCOPE}/job_42", jobs=("42",)),
    "slurmd in a container of Docker with cgroupfs": slurm(f"docker/{HEX}/{SCOPE}/{SLUID}", jobs=(SLUID,)),
    "slurmd in a pod of containerd": Layout(
        {f"{POD}/cri-containerd-{HEX}.scope/{SCOPE}/job_77/step_0": "", POD: OPEN}, ("77",), (UID,)
    ),
    "slurmd in a pod of CRI-O": Layout(
        {f"{POD}/crio-{HEX}.scope/container/{SCOPE}/{SLUID}": "", POD: OPEN}, (SLUID,), (UID,)
    ),
    "slurmd's scope beside its container": Layout({f"{POD}/{SCOPE}/job_77": "", POD: OPEN}, ("77",), (UID,)),
    "slurmd in a pod of cgroupfs, idle": Layout(
        {f"kubepods/burstable/pod{UID}/{HEX}/{SCOPE}/system": "", f"kubepods/burstable/pod{UID}": OPEN}, (), (UID,)
    ),
    "slurmd in a pod of kind": slurm(
        f"{DOCKER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{under(UID)}.slice/{SCOPE}/job_77",
        jobs=("77",),
        pods=(UID,),
    ),
    "two pods with slurmd, version 1": slurm(
        f"freezer/kubepods/pod{UID}/{HEX}/slurm/uid_0/job_5",
        f"freezer/kubepods/pod{OTHER_UID}/{HEX}/slurm_n/uid_0/job_6",
        jobs=("5", "6"),
        pods=(UID, OTHER_UID),
    ),
    "--cgroup-root with systemd": Layout(
        {f"podruntime.slice/podruntime-kubepods.slice/podruntime-kubepods-pod{under(UID)}.slice": OPEN}, (UID,), (UID,)
    ),
    "--cgroup-root with cgroupfs": Layout({f"kubelet/kubepods/besteffort/pod{UID}": OPEN}, (UID,), (UID,)),
    "k3s, RKE2": Layout({POD: OPEN, f"{BURSTABLE}{STATIC_UID}.slice": ""}, (UID,), (UID, STATIC_UID)),
    "k3s in its own service": Layout({f"system.slice/k3s.service/kubepods/pod{UID}": OPEN}, (UID,), (UID,)),
    "k3d, kind with cgroupfs": Layout({f"docker/{HEX}/kubelet/kubepods/pod{UID}": OPEN}, (UID,), (UID,)),
    "minikube": Layout({f"{DOCKER}/kubepods.slice/kubepods-pod{under(UID)}.slice": OPEN}, (UID,), (UID,)),
    "containerd without systemd below a kubelet with it": Layout(
        {POD: "mlx5_0 hca_handle=0\n", CONTAINERD_POD: OPEN}, (UID,), (UID,)
    ),
    "version 1": Layout({f"rdma/x/kubepods/pod{UID}": OPEN, f"memory/x/kubepods/pod{UID}": ""}, (UID,), (UID,)),
    "version 1 with systemd": Layout({f"rdma/{POD}": OPEN, f"memory/{POD}/crio-{HEX}.scope": ""}, (UID,), (UID,)),
    "a UID of another form": Layout(
        {f"{BURSTABLE}own_uid.slice": OPEN, POD: "mlx5_0 hca_handle=0\n"},
        (),
        (UID,),
        False,
        ("own_uid.slice: a pod by",),
    ),
    "Slurm without cgroups": slurm(
        "system.slice/slurmd.service", known=False, remarks=("ProctrackType=proctrack/cgroup",)
    ),
    "a kubelet without pods": slurm(
        "system.slice/rke2-agent.service", known=False, remarks=("name their place in jobs",)
    ),
    "cgroups of users": slurm(f"user.slice/user-7.slice/{SCOPE}/job_1", f"user.slice/kubepods/pod{UID}", known=False),
    "pods of others than a kubelet": slurm(f"machine.slice/machine-libpod_pod_{HEX}.slice/pod{UID}", known=False),
}


@for_each(LAYOUTS)
def test_every_layout_has_its_jobs_and_pods(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("cgroup")
    layout.build(root)
    merged = merge({name: source() for name, source in choose_sources(root, None, None).items()})
    assert tuple(claim.id for claim in merged.claims or ()) == tuple(sorted(layout.jobs, key=len))
    assert (set(merged.pods), merged.known) == (set(layout.pods), layout.known)
    assert len(merged.remarks) == len(layout.remarks)
    assert all(text in remark for text, remark in zip(layout.remarks, merged.remarks, strict=True))


def test_a_slurm_without_cgroups_whose_files_name_its_jobs_is_known(tmp_path: Path) -> None:
    (tmp_path / "cgroup/system.slice/slurmd.service").mkdir(parents=True)
    (tmp_path / "map").mkdir()
    sources = choose_sources(tmp_path / "cgroup", tmp_path / "map", None)
    merged = merge({name: source() for name, source in sources.items()})
    assert (merged.claims, merged.known, merged.remarks) == ((), True, ())


def test_the_title_of_slurmstepd_tells_the_number_of_a_job(tmp_path: Path) -> None:
    for sluid, pids in ((SLUID, "0\n41\n"), (OTHER_SLUID, "42\n")):
        folder = tmp_path / SCOPE / sluid / "step_extern/slurm"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(pids)
    for pid, title in (("41", "slurmstepd: [4711.extern]\0"), ("42", "sleep\x00infinity")):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_text(title)
    numbers: dict[str, str] = {}

    def ids() -> list[str]:
        return [claim.id for claim in read_slurm_cgroups(tmp_path, numbers, tmp_path / "proc").claims]

    assert ids() == ["4711", OTHER_SLUID]
    # the number stays when its slurmstepd is gone
    (tmp_path / SCOPE / SLUID / "step_extern/slurm/cgroup.procs").write_text("")
    assert ids() == ["4711", OTHER_SLUID]
    (tmp_path / SCOPE / SLUID).rename(tmp_path / SCOPE / "job_9")
    assert (ids(), numbers) == (["9", OTHER_SLUID], {})


def test_numbers_of_files_beside_sluids_are_said(tmp_path: Path) -> None:
    (tmp_path / "cgroup" / SCOPE / SLUID).mkdir(parents=True)
    (tmp_path / "map").mkdir()
    (tmp_path / "map" / "0").write_text("4711\n")
    merged = merge(
        {name: source() for name, source in choose_sources(tmp_path / "cgroup", tmp_path / "map", None).items()}
    )
    assert [claim.id for claim in merged.claims or ()] == ["4711", SLUID]
    assert "a job that slurm-map names by its number is listed twice" in merged.remarks[0]


def test_cgroups_that_another_user_made_are_not_searched(tmp_path: Path) -> None:
    (tmp_path / f"a.slice/b.service/{SCOPE}/job_1").mkdir(parents=True)
    assert [claim.id for claim in read_slurm_cgroups(tmp_path).claims] == ["1"]
    if os.geteuid() == 0:
        os.chown(tmp_path / "a.slice/b.service", 65534, 65534)
        assert not read_slurm_cgroups(tmp_path).present


def test_a_folder_with_too_many_entries_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "MAX_LISTED", 2)
    for number in range(3):
        (tmp_path / SCOPE / f"job_{number + 1}").mkdir(parents=True)
    found = read_slurm_cgroups(tmp_path)
    assert (found.claims, found.whole) == ((), False)
    reason = "has more than 2 entries, which is too many to read; showing the jobs known before."
    assert found.remarks == (f"{tmp_path / SCOPE} {reason}",)
    monkeypatch.setattr(cgroups, "MAX_LISTED", 3)
    monkeypatch.setattr(cgroups, "MAX_CHOSEN", 2)
    found = read_slurm_cgroups(tmp_path)
    assert (found.claims, found.whole, found.remarks) == ((), False, (f"{tmp_path / SCOPE} {reason}",))
    assert list(Cgroups().search(tmp_path / "nothing", re.compile("x"))) == []


@pytest.mark.parametrize(
    "path",
    [
        f"kubepods/burstable/pod{UID}/kubepods/pod{OTHER_UID}",
        f"kubepods/burstable/pod{UID}/pod{OTHER_UID}",
        f"kubepods/burstable/pod{UID}/0123/kubepods.slice/kubepods-pod{OTHER_UID.replace('-', '_')}.slice",
        f"user.slice/kubepods/pod{OTHER_UID}",
    ],
)
def test_cgroups_below_a_pod_are_no_pods(tmp_path: Path, path: str) -> None:
    pod = tmp_path / "kubepods/burstable" / f"pod{UID}"
    pod.mkdir(parents=True)
    (tmp_path / path).mkdir(parents=True)
    (tmp_path / path / "rdma.current").write_text("a hca_handle=1 hca_object=1\n")
    found = read_pod_cgroups(tmp_path)
    assert (found.pods, found.claims) == ((UID,), ())
