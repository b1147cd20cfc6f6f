"""Files of jobs and cgroups that are hostile, huge or too many, that come and go, vanish, fail or hang."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.faults.plan import Effect, Fault
from bench.faults.testbed import CGROUP, DOCUMENTS, JOB_DIRECTORIES, MAPPING, SCOPE, Testbed
from tests.fusefabric.client import FuseFabric
from tests.jobs.hostile_nodes import nasty_bytes, nasty_document, nasty_name, put

SEED = 5
HOSTILE = 50
HUGE_BYTES = 2**40
# more than are listed
FLOOD = 10_100
PAUSE_SECONDS = 0.01
COMING = range(100, 110)


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Whatever is put into a directory meanwhile is removed afterwards."""
    before = set(folder.iterdir())
    try:
        yield
    finally:
        for path in set(folder.iterdir()) - before:
            # another fault may remove the same
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def hostile_files(testbed: Testbed, device: str) -> Iterator[None]:
    """Documents, mapping files and names that no prolog writes, some of them pipes, links and directories."""
    rng = random.Random(SEED)
    documents, mapping = testbed.job_files(DOCUMENTS), testbed.job_files(MAPPING)
    with beside(documents), beside(mapping):
        for number in range(HOSTILE):
            name = f"j{number}"
            file = nasty_name(rng, b"42.json") if number % 3 == 0 else f"{name}.json".encode()
            put(documents, file, nasty_document(rng, name), rng)
            put(mapping, nasty_name(rng, b"0", b"7.1"), nasty_bytes(rng, b"12", b"12\n13\n"), rng)
        yield


@contextmanager
def huge_files(testbed: Testbed, device: str) -> Iterator[None]:
    """Documents, mapping files and files of cgroups of a terabyte each."""
    documents, mapping, cgroup = map(testbed.job_files, JOB_DIRECTORIES)
    folder = cgroup / SCOPE / "job_99"
    with beside(documents), beside(mapping), beside(folder.parent):
        folder.mkdir()
        for path in (folder / "cgroup.events", *(documents / f"j{number}.json" for number in range(HOSTILE))):
            make_huge(path)
        for number in range(1, HOSTILE):
            make_huge(mapping / str(number))
        yield


def make_huge(path: Path) -> None:
    """A file without content that looks long."""
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


@contextmanager
def flooded(testbed: Testbed, device: str) -> Iterator[None]:
    """More files beside the documents than are listed."""
    with beside(folder := testbed.job_files(DOCUMENTS)):
        for number in range(FLOOD):
            (folder / f"\x1b[2J\udcff{number}").touch()
        yield


@contextmanager
def many_cgroups(testbed: Testbed, device: str) -> Iterator[None]:
    """Hundreds of jobs, and thousands of cgroups with hostile names."""
    rng, root = random.Random(SEED), testbed.job_files(CGROUP)
    with beside(root), beside(root / SCOPE):
        (root / "kubepods.slice").mkdir()
        for number in range(2000):
            for folder, name in ((SCOPE, b"job_1"), ("kubepods.slice", b"kubepods-burstable.slice"), ("", b"a.slice")):
                (root / folder / f"{number}{nasty_name(rng, name).decode(errors='replace')[:60]}").mkdir(exist_ok=True)
        for number in range(1000, 1600):
            (root / SCOPE / f"job_{number}").mkdir()
        yield


@contextmanager
def coming_and_going(testbed: Testbed, device: str) -> Iterator[None]:
    """Jobs begin and end many times a second, while they are read."""
    documents, mapping, cgroup = map(testbed.job_files, JOB_DIRECTORIES)
    stop = threading.Event()

    def come_and_go() -> None:
        rng = random.Random(SEED)
        while not stop.wait(PAUSE_SECONDS):
            number = rng.choice(COMING)
            folder = cgroup / SCOPE / f"job_{number}/step_0"
            if rng.random() < 0.5:
                (documents / f"{number}.json").write_text(f'{{"id": "{number}", "scheduler": "slurm"}}')
                (mapping / f"{number}").write_text(f"{number}\n")
                folder.mkdir(parents=True, exist_ok=True)
            else:
                (documents / f"{number}.json").unlink(missing_ok=True)
                (mapping / f"{number}").unlink(missing_ok=True)
                shutil.rmtree(folder.parent, ignore_errors=True)

    thread = threading.Thread(target=come_and_go, daemon=True)
    with beside(documents), beside(mapping), beside(cgroup / SCOPE):
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@contextmanager
def without_directories(testbed: Testbed, device: str) -> Iterator[None]:
    """The directories of documents, of mapping files and of cgroups do not exist."""
    with ExitStack() as stack:
        for name in JOB_DIRECTORIES:
            testbed.point_jobs(name, None)
            stack.callback(testbed.point_jobs, name, testbed.job_files(name))
        yield


@contextmanager
def on_a_file_system(testbed: Testbed, device: str, spoil: Callable[[FuseFabric], None]) -> Iterator[None]:
    """All three directories are on a file system that is spoilt."""
    # it stays until the daemon has ended: a directory without a file system would be one without jobs
    mounted = testbed.at_end.enter_context(FuseFabric(testbed.place / f"spoilt-{time.monotonic_ns()}", ports=1))
    with ExitStack() as stack:
        # once the links are back; what waits for it then fails
        stack.callback(mounted.kill)
        spoil(mounted)
        for name in JOB_DIRECTORIES:
            testbed.point_jobs(name, mounted.root)
            stack.callback(testbed.point_jobs, name, testbed.job_files(name))
        yield


@contextmanager
def hanging(testbed: Testbed, device: str) -> Iterator[None]:
    """Every access to the three directories hangs."""
    with on_a_file_system(testbed, device, FuseFabric.freeze):
        yield


@contextmanager
def failing(testbed: Testbed, device: str) -> Iterator[None]:
    """Every access to the three directories fails."""
    with on_a_file_system(testbed, device, FuseFabric.kill):
        yield


# a daemon that starts meanwhile cannot know which jobs run, so these exclude faults of the daemon
UNKNOWN = "daemon"
JOB_FAULTS = (
    Fault("the files of jobs are hostile", hostile_files, resource="jobs"),
    Fault("the files of jobs are huge", huge_files, resource="jobs"),
    Fault("jobs come and go while they are read", coming_and_going, resource="jobs"),
    Fault("the directories of jobs vanish", without_directories, Effect(hides_jobs=True), resource="jobs"),
    Fault("cgroups are many and have hostile names", many_cgroups, resource="jobs"),
    Fault("ten thousand files beside the documents", flooded, resource=UNKNOWN),
    Fault("the directories of jobs hang", hanging, resource=UNKNOWN),
    Fault("the directories of jobs fail", failing, resource=UNKNOWN),
)
