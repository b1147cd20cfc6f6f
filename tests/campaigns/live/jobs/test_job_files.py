"""Directories of job files on a file system that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.jobs.files import read_job_documents, read_slurm_mapping
from tests.fusefabric.client import FuseFabric


@pytest.mark.needs("fuse")
def test_a_file_system_that_fails_says_nothing_about_jobs(tmp_path: Path) -> None:
    with FuseFabric(tmp_path / "mounted", ports=1) as mounted:
        assert read_slurm_mapping(mounted.root, 0).whole
        mounted.kill()
        for found in (read_job_documents(mounted.root, 0, "this boot"), read_slurm_mapping(mounted.root, 0)):
            assert (found.claims, found.whole) == ((), False)
            assert found.remarks == (
                f"{mounted.root} cannot be read: Transport endpoint is not connected; showing the jobs known before.",
            )
