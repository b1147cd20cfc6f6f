"""Plants each fault of the table in a copy of the tree and checks that the unit tests named with it fail."""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tests.campaigns.mutants.planted import PLANTED, Fault

ROOT = Path(__file__).resolve().parents[3]
IN_PARALLEL = 2
# a fault may make a test wait for ever
TEST_SECONDS = 60
TESTS_PASSED, TESTS_FAILED = 0, 1

Given, Found = TypeVar("Given"), TypeVar("Found")


class Copy:
    """A copy of all files that git does not ignore."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def test(self, files: Iterable[str]) -> tuple[int, str]:
        """Run test files up to the first failure: pytest's exit status and output."""
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
        environment = os.environ | {"PYTHONPATH": f"{self.folder / 'exporter'}:{self.folder}"}
        # a copy keeps its bytecode from one fault to the next
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "pytest", *options, *files]
        ran = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout + ran.stderr

    def try_fault(self, fault: Fault) -> tuple[bool, str]:
        """Whether the tests of a fault find it, and the test that does or what went wrong."""
        path = self.folder / fault.file
        original = path.read_text() if path.is_file() else ""
        if (count := original.count(fault.old)) != 1:
            return False, f"NOT APPLICABLE: the old text occurs {count} times in {fault.file}"
        path.write_text(original.replace(fault.old, fault.new))
        # bytecode is valid for one time of modification and one size, and many faults change neither
        seconds = PLANTED.index(fault)
        os.utime(path, (seconds, seconds))
        try:
            status, output = self.test(fault.tests)
        finally:
            shutil.copy2(ROOT / fault.file, path)
        if status == TESTS_PASSED:
            return False, f"SURVIVED {' '.join(fault.tests)}: {fault.seen}"
        failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
        if status != TESTS_FAILED or failed is None:
            return False, f"THE TESTS DO NOT RUN:\n{output}"
        return True, f"found by {failed[1]}"

    def check_unchanged(self, files: tuple[str, ...]) -> str:
        """What is wrong with test files that fail without a fault, empty if they pass."""
        status, output = self.test(files)
        return "" if status == TESTS_PASSED else f"FAILS WITHOUT A FAULT: {' '.join(files)}\n{output}"


def main() -> int:
    """Try the faults named on the command line, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="ID", help="faults to plant (default: all)")
    names = parser.parse_args().names
    chosen = [fault for fault in PLANTED if fault.name in names or not names]
    if unknown := set(names) - {fault.name for fault in chosen}:
        parser.error(f"unknown fault {', '.join(sorted(unknown))}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(IN_PARALLEL) as pool:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(IN_PARALLEL):
            copies.put(Copy(Path(folder) / str(number)))

        def in_a_copy(work: Callable[[Copy, Given], Found], given: Given) -> Found:
            copy = copies.get()
            try:
                return work(copy, given)
            finally:
                copies.put(copy)

        suites = sorted({fault.tests for fault in chosen})
        wrong = [*filter(None, pool.map(lambda files: in_a_copy(Copy.check_unchanged, files), suites))]
        if wrong:
            print("\n".join(wrong))
            return 1
        found = 0
        results = pool.map(lambda fault: in_a_copy(Copy.try_fault, fault), chosen)
        for fault, (is_found, text) in zip(chosen, results, strict=True):
            found += is_found
            print(f"{fault.name}: {text}", flush=True)
    print(f"{len(chosen)} planted, {found} found in {time.monotonic() - began:.0f} s")
    return 0 if found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
