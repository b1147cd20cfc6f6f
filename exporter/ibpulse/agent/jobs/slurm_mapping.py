"""Source `slurm-map`: files named by GPU index that hold job ids, as the prolog for DCGM's exporter writes them.

A file `3` (or `3.1` for an instance of a MIG GPU) has one job per line, whose first word is its id; jobstats adds the
id of the user. AMD's exporter has a JSON object with `SLURM_JOB_ID`. An empty file and the id 0 are no job. Files with
other names, such as UUIDs of GPUs, say which jobs run, and not what they hold.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ibpulse.agent.jobs.job_directory import STALE, Form, JobDirectory
from ibpulse.base.text import split_lines
from ibpulse.core.jobs.claims import ABSENT, SLURM, SLURM_MAP, Claim, Found, is_job_id, limit_claims

# 16 GPUs with 7 instances each, and the GPUs themselves, each by its number and its UUID
FORM = Form(re.compile(r"[^.].*", re.DOTALL), "0 or 0.1", most_files=512, most_bytes=1024)
_GPU = re.compile(r"([0-9]{1,3})(?:\.[0-9]{1,3})?", re.ASCII)
# the prolog of jobstats writes a file with the UUID beside each with a number
_TWIN = re.compile(r"GPU-[0-9a-f-]{36}", re.ASCII)
_DIGIT = re.compile(r"[0-9]", re.ASCII)
ODD_NAME = "its name is not like 0 or 0.1, so the GPUs of its job are not known."
ODD_LINE = "it holds something that is not the id of a job, so jobs may be missing."


def read_slurm_mapping(directory: Path, booted_ns: int) -> Found:
    """The jobs in a mapping directory, with the indexes of their GPUs; `booted_ns` is the wall time of the boot."""
    read = JobDirectory(directory, FORM)
    if not read.exists:
        return ABSENT
    gpus: dict[str, set[int]] = {}
    others: dict[str, list[str]] = {}
    for file in read.files:
        if file.written_ns < booted_ns:
            read.remarks.append((file.name, STALE))
            continue
        jobs, is_whole = _read_jobs(file.content)
        if not is_whole:
            read.leave_out(file.name, ODD_LINE)
        gpu = _GPU.fullmatch(file.name)
        for job in jobs:
            indexes = gpus.setdefault(job, set())
            if gpu is not None:
                indexes.add(int(gpu[1]))
            else:
                others.setdefault(job, []).append(file.name)
    for job, names in others.items():
        if len(names) > len(gpus[job]) or not all(map(_TWIN.fullmatch, names)):
            # it holds more than the GPUs with a number
            gpus[job].clear()
            for name in names:
                read.leave_out(name, ODD_NAME)
    claims = [Claim(job, SLURM, SLURM_MAP, gpu_indexes=tuple(sorted(found))) for job, found in gpus.items()]
    return read.found(limit_claims(str(directory), claims))


def _read_jobs(content: bytes) -> tuple[list[str], bool]:
    """The ids of the jobs that a file names, and whether it holds nothing else."""
    text = content.decode(errors="replace")
    if text.lstrip().startswith("{"):
        try:
            words = [str(json.loads(text)["SLURM_JOB_ID"])]
        except (ValueError, KeyError, RecursionError):
            return [], False
    else:
        # a file may be read while it is being written, and then it is empty
        words = [line.split()[0] for line in split_lines(text) if line.split()]
    named = [word for word in words if word not in ("", "0")]
    jobs = [word for word in named if is_job_id(word) and _DIGIT.search(word)]
    return jobs, len(jobs) == len(named)
