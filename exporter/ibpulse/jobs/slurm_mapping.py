"""Source `slurm-map`: files named by GPU index that hold job ids, as the prolog for DCGM's exporter writes them.

A file `3` (or `3.1` for an instance of a MIG GPU) has one job id per line.
"""

from __future__ import annotations

import re
from pathlib import Path

from ibpulse.jobs.claims import ABSENT, SLURM, SLURM_MAP, Claim, Found, is_job_id, limit_claims
from ibpulse.jobs.job_directory import STALE, Form, JobDirectory

# 16 GPUs with 7 instances each, and the GPUs themselves
FORM = Form(re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3})?", re.ASCII), "0 or 0.1", most_files=256, most_bytes=1024)


def read_slurm_mapping(directory: Path, booted_ns: int) -> Found:
    """The jobs in a mapping directory, with the indexes of their GPUs; `booted_ns` is the wall time of the last boot.

    Raises:
        OSError: this process has no descriptor left.
    """
    read = JobDirectory(directory, FORM)
    if not read.exists:
        return ABSENT
    gpus: dict[str, list[int]] = {}
    for file in read.files:
        if file.written_ns < booted_ns:
            read.remarks.append((file.name, STALE))
            continue
        # a file may be read while it is being written, and then it is empty
        lines = file.content.decode(errors="replace").split()
        for line in filter(is_job_id, lines):
            gpus.setdefault(line, []).append(int(file.name.partition(".")[0]))
        if not all(map(is_job_id, lines)):
            read.remarks.append((file.name, "it holds something that is not the id of a job."))
    claims = [Claim(job, SLURM, SLURM_MAP, gpu_indexes=tuple(sorted({*found}))) for job, found in gpus.items()]
    return read.found(limit_claims(str(directory), claims))
