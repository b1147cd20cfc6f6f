"""Sources in threads: one that hangs or fails holds up no other, and what was known stays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.agent.jobs.watch import GONE_SECONDS, BootTime, JobSources, Merged, merge
from ibpulse.base.internal_errors import InternalErrors
from ibpulse.core.jobs import ABSENT, Claim, Found
from tests.clocks import GivenClock
from tests.running import HANG_SECONDS
from tests.tables import for_each

SECONDS = 5.0


class Sources:
    """Sources that a test sets, and a clock; `answers` are what they find, or a call."""

    def __init__(self, **answers: Found | Callable[[], Found]) -> None:
        self.answers = {name.replace("_", "-"): answer for name, answer in answers.items()}
        self.now = 0.0
        self.errors = InternalErrors()
        calls = {name: self._caller(name) for name in self.answers}
        self.sources = JobSources(calls, self.errors, GivenClock(lambda: self.now, time.time_ns))

    def _caller(self, name: str) -> Callable[[], Found]:
        def call() -> Found:
            answer = self.answers[name]
            return answer() if callable(answer) else answer

        return call

    def set(self, name: str, answer: Found | Callable[[], Found]) -> None:
        self.answers[name] = answer

    def read(self, *hanging: str) -> Merged | None:
        """One round, of which all answers but those that hang are there."""
        self.now += SECONDS
        self.sources.start()
        for thread in threading.enumerate():
            if thread.name.startswith("jobs-") and thread.name.removeprefix("jobs-") not in hanging:
                thread.join(HANG_SECONDS)
        return self.sources.collect()

    def ids(self, *hanging: str) -> list[str] | None:
        return ids(self.read(*hanging))


def ids(merged: Merged | None) -> list[str] | None:
    """The jobs that were found, None if nothing tells."""
    return None if merged is None or merged.claims is None else [claim.id for claim in merged.claims]


def slurm(*ids: str, source: str = "slurm-cgroup") -> Found:
    return Found(tuple(Claim(job, "slurm", source) for job in ids))


def test_jobs_of_all_sources_are_one_list_in_natural_order() -> None:
    sources = Sources(slurm_cgroup=slurm("10", "9"), file=Found((Claim("a", "flux", "file"),)), slurm_map=ABSENT)
    merged = sources.read()
    assert [claim.key for claim in merged.claims] == [("flux", "a"), ("slurm", "9"), ("slurm", "10")]
    assert merged.present == ("file", "slurm-cgroup")


def test_no_source_that_can_tell_is_not_no_job() -> None:
    assert Sources(slurm_cgroup=ABSENT).ids() is None
    assert Sources(slurm_cgroup=ABSENT, file=Found(knows=False)).ids() is None
    assert Sources(slurm_cgroup=Found()).ids() == []
    assert Sources().ids() is None


UNREAD = Found((Claim("1", "slurm", "slurm-cgroup"),), unread=True)
BLIND = Found(knows=False)


@for_each(
    [
        ({"slurm-cgroup": Found()}, True),
        ({"slurm-cgroup": UNREAD}, False),
        ({"slurm-cgroup": UNREAD, "file": Found()}, False),
        # pods without RDMA in their cgroups are no jobs
        ({"slurm-cgroup": Found(), "kubernetes-cgroup": BLIND}, True),
        ({"slurm-cgroup": ABSENT, "kubernetes-cgroup": BLIND}, False),
    ]
)
def test_jobs_are_known_where_nothing_unread_may_be_one(answers: dict[str, Found], known: bool) -> None:
    assert merge(answers).known is known


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe that hangs who opens it, as a network file system does."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def hang(pipe: Path) -> Found:
    pipe.read_text()
    return slurm("99")


def release(pipe: Path) -> None:
    pipe.write_text("")
    for thread in threading.enumerate():
        if thread.name.startswith("jobs-"):
            thread.join(HANG_SECONDS)


def test_a_source_that_begins_to_hang_keeps_its_jobs_and_holds_up_no_other(pipe: Path) -> None:
    sources = Sources(file=Found((Claim("a", "flux", "file"),)), slurm_cgroup=slurm("1"))
    assert sources.ids() == ["a", "1"]
    sources.set("file", lambda: hang(pipe))
    sources.set("slurm-cgroup", slurm("2"))
    assert sources.ids("file") == ["a", "2"]
    sources.set("slurm-cgroup", slurm("3"))
    merged = sources.read("file")
    sources.set("slurm-cgroup", slurm("4"))
    later = sources.read("file")
    hanging = [thread for thread in threading.enumerate() if thread.name == "jobs-file"]
    assert len(hanging) == 1
    assert merged is not None
    assert ids(later) == ["a", "4"]
    assert later.remarks == ("file: reading it does not return; showing the jobs known before.",)
    release(pipe)
    answered = sources.sources.collect()
    assert (ids(answered), answered.remarks) == (["4", "99"], ())


def test_a_source_that_hangs_from_the_start_is_waited_for_only_a_moment(pipe: Path) -> None:
    sources = Sources(file=lambda: hang(pipe), slurm_cgroup=slurm("1"))
    assert sources.ids("file") is None
    sources.now += SECONDS + 1
    merged = sources.sources.collect()
    release(pipe)
    assert (ids(merged), merged.known) == (["1"], False)


def test_an_exception_is_counted_and_the_jobs_stay() -> None:
    def fail() -> Found:
        raise OSError(24, "Too many open files")

    sources = Sources(file=Found((Claim("a", "flux", "file"),)))
    assert sources.ids() == ["a"]
    sources.set("file", fail)
    assert sources.ids() == ["a"]
    assert sources.errors.counts()["jobs"] == 1
    (notice,) = sources.errors.notices()
    assert notice == "internal error in jobs (file): OSError: [Errno 24] Too many open files; retrying"
    sources.set("file", Found())
    assert sources.ids() == []


def test_a_reading_that_was_given_up_changes_no_job() -> None:
    sources = Sources(file=slurm("1", "2", source="file"))
    assert sources.ids() == ["1", "2"]
    sources.set("file", Found((Claim("1", "slurm", "file"),), ("late",), whole=False))
    merged = sources.read()
    assert (ids(merged), merged.remarks) == (["1", "2"], ("late",))


def test_a_first_reading_that_was_given_up_says_nothing_about_jobs() -> None:
    sources = Sources(file=Found((Claim("1", "slurm", "file"),), ("late",), whole=False), slurm_cgroup=slurm("2"))
    merged = sources.read()
    assert (ids(merged), merged.remarks, merged.silent) == (["2"], ("late",), ("file",))
    assert not merged.known
    sources.set("file", slurm("1", source="file"))
    merged = sources.read()
    assert (ids(merged), merged.remarks, merged.silent) == (["1", "2"], (), ())
    assert merged.known


def test_nothing_is_known_of_the_jobs_of_a_source_that_may_not_be_read() -> None:
    sources = Sources(file=slurm("1", source="file"), slurm_cgroup=ABSENT, slurm_map=slurm("2", source="slurm-map"))
    assert sources.ids() == ["1", "2"]
    sources.set("file", Found(knows=False))
    merged = sources.read()
    # a source that does not exist has no jobs
    assert merged.silent == ("file",)


def test_the_time_of_the_boot_is_by_the_earliest_clock_of_the_process() -> None:
    readings = iter((100, 3700, 100, 40, 3700))
    boot = BootTime(lambda: next(readings))
    assert [boot.earliest_ns() for _ in range(4)] == [100, 100, 40, 40]


def test_of_two_sources_the_one_that_says_what_a_job_holds_decides() -> None:
    answers = {
        "slurm-cgroup": slurm("1", "2"),
        "slurm-map": Found((Claim("1", "slurm", "slurm-map", gpu_indexes=(3,)),)),
        "file": Found((Claim("1", "slurm", "file", "llama", "team"), Claim("2", "slurm", "file", devices=("mlx5_0",)))),
    }
    merged = merge(answers)
    assert merged.claims == (
        Claim("1", "slurm", "slurm-map", "llama", "team", gpu_indexes=(3,)),
        Claim("2", "slurm", "file", devices=("mlx5_0",)),
    )
    assert merged.with_cgroup == {("slurm", "1"), ("slurm", "2")}


def test_the_same_id_of_two_schedulers_is_two_jobs() -> None:
    merged = merge({"file": Found((Claim("1", "flux", "file"),)), "slurm-cgroup": slurm("1")})
    assert [claim.key for claim in merged.claims] == [("flux", "1"), ("slurm", "1")]


# a file that stays although the job has ended


def rounds(seconds: float) -> int:
    return int(seconds / SECONDS) + 1


def test_a_job_whose_cgroup_is_gone_ends_although_its_file_stays() -> None:
    sources = Sources(slurm_map=slurm("1", "2", source="slurm-map"), slurm_cgroup=slurm("1"))
    assert sources.ids() == ["1", "2"]
    sources.set("slurm-cgroup", Found())
    for _ in range(rounds(GONE_SECONDS) - 1):
        assert sources.ids() == ["1", "2"]
    merged = sources.read()
    # the other job never had a cgroup, as before its first step
    assert ids(merged) == ["2"]
    assert merged.remarks == (
        "job 1 has ended, because its cgroup is gone, but slurm-map names it: check the epilog, and remove its file.",
    )


def test_a_cgroup_that_comes_back_with_the_next_step_ends_nothing() -> None:
    sources = Sources(slurm_map=slurm("1", source="slurm-map"), slurm_cgroup=slurm("1"))
    for _ in range(3):
        sources.set("slurm-cgroup", slurm("1"))
        assert sources.ids() == ["1"]
        sources.set("slurm-cgroup", Found())
        for _ in range(rounds(GONE_SECONDS) - 1):
            assert sources.ids() == ["1"]


def test_where_slurm_makes_no_cgroups_files_decide() -> None:
    sources = Sources(slurm_map=slurm("1", source="slurm-map"), slurm_cgroup=slurm("1"))
    assert sources.ids() == ["1"]
    sources.set("slurm-cgroup", ABSENT)
    for _ in range(2 * rounds(GONE_SECONDS)):
        assert sources.ids() == ["1"]


def test_a_job_that_had_a_cgroup_before_the_daemon_started_ends_too() -> None:
    sources = Sources(slurm_map=slurm("1", source="slurm-map"), slurm_cgroup=Found())
    sources.sources.expect([("slurm", "1")], 5)
    for _ in range(rounds(GONE_SECONDS)):
        last = sources.ids()
    assert last == []
