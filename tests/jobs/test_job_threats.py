"""What others can do with files and cgroups of jobs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ibpulse.agent.aggregator.job_totals import JobTotals
from ibpulse.agent.aggregator.options import AggregatorOptions
from ibpulse.agent.jobs.job_documents import read_job_documents
from ibpulse.agent.jobs.owners import count_owners, place_jobs
from ibpulse.agent.jobs.pod_cgroups import read_pod_cgroups
from ibpulse.agent.jobs.slurm_mapping import read_slurm_mapping
from ibpulse.core.jobs.claims import Claim, Found
from tests.aggregator.rings import Ring
from tests.jobs.job_nodes import OTHER_UID, UID
from tests.jobs.test_owners import PAIRS, PORTS
from tests.other_users import USER


@pytest.mark.skipif(os.geteuid() != 0, reason="no root")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    jobs, link = tmp_path / "jobs", tmp_path / "link"
    jobs.mkdir()
    (jobs / "42.json").write_text('{"id": "42", "scheduler": "slurm"}')
    (jobs / "0").write_text("42")
    link.symlink_to(jobs)

    def ids(found: Found) -> list[str]:
        return [claim.id for claim in found.claims]

    assert ids(read_job_documents(link, 0, "")) == ids(read_slurm_mapping(link, 0)) == ["42"]
    os.lchown(link, USER, USER)
    for found in (read_job_documents(link, 0, ""), read_slurm_mapping(link, 0)):
        assert (found.claims, found.knows) == ((), False)
        assert found.remarks[0].startswith(f"{link} is not read: {link} is a symbolic link of user {USER}; ")


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


def test_a_pod_that_opens_every_device_is_one_more_job_on_each_rail(tmp_path: Path) -> None:
    mine = Claim("1", "slurm", "slurm-map", gpu_indexes=(0,))
    greedy = Claim(UID, "kubernetes", "kubernetes-cgroup", devices=("a", "b", "s"))
    ring = Ring.create(tmp_path, *PORTS)
    totals = JobTotals(ring.reader, AggregatorOptions())
    for claims, counts, with_statistics in (
        ((mine, Claim("2", "slurm", "slurm-map", gpu_indexes=(2,))), [1, 1], ["1", "2"]),
        ((mine, greedy), [2, 1], []),
    ):
        jobs = place_jobs(claims, PORTS, PAIRS).jobs
        assert [count_owners(jobs)[port.id] for port in PORTS if port.rail] == counts
        totals.follow(jobs, 1)
        assert [job.job_id for job in totals.snapshots()] == with_statistics
