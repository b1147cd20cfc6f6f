"""`python -m tests.contract.versions WHEEL [REVISION]` compares the program of a wheel with the checkout.

Both answer the inputs of `answering.py`, each in a process of its own, with the packages of this environment and with
its own tests: those of the wheel are from the commit that it was built from. All bytes have to be equal, but for the
differences in `intended.toml`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path

from tests import ROOT
from tests.virtual.conftest import make_folder

HERE = Path(__file__).parent
PACKAGE = "exporter/ibpulse"
TESTS = ("tests", "bench")
SHOWN_INPUTS, SHOWN_LINES = 40, 12


def git(*words: str) -> bytes:
    """The output of git in this clone."""
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, stdout=subprocess.PIPE).stdout


def find_revision(wheel: zipfile.ZipFile) -> str:
    """The newest commit with the files of the wheel."""
    built = {}
    for name in wheel.namelist():
        if name.startswith("ibpulse/"):
            content = wheel.read(name)
            head = f"blob {len(content)}\0".encode()
            built[name.partition("/")[2]] = hashlib.sha1(head + content, usedforsecurity=False).hexdigest()
    for revision in git("log", "--format=%H", "--", PACKAGE).decode().split():
        listed = git("ls-tree", "-r", "--format=%(path) %(objectname)", f"{revision}:{PACKAGE}").decode().splitlines()
        if dict(line.rsplit(" ", 1) for line in listed) == built:
            return revision
    raise SystemExit("the wheel has the files of no commit of this clone; name the commit that it was built from")


def unpack_old(wheel: Path, revision: str, into: Path) -> list[Path]:
    """Unpack the program of a wheel and the tests of its commit; returns where to import from."""
    with zipfile.ZipFile(wheel) as archive:
        revision = revision or find_revision(archive)
        archive.extractall(into / "program")
    with tarfile.open(fileobj=BytesIO(git("archive", revision, *TESTS))) as archive:
        archive.extractall(into, filter="data")
    print(f"{wheel.name} was built from commit {revision[:8]}")
    return [into / "program", into]


def start(paths: Sequence[Path], folder: Path) -> subprocess.Popen[bytes]:
    """A process that answers all inputs by the program and the tests in these places."""
    (folder / "work").mkdir(parents=True)
    (folder / "answers").mkdir()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-P", str(HERE / "answering.py"), str(folder / "answers")]
    return subprocess.Popen(words, cwd=folder / "work", env=environ)


def read_answers(folder: Path) -> Mapping[str, bytes]:
    """The answers by the names of the inputs, which are numbered where they are the same."""
    found: dict[str, bytes] = {}
    for number, name in enumerate(json.loads((folder / "answers" / "names.json").read_text())):
        found[f"{name} ({number})" if name in found else name] = (folder / "answers" / str(number)).read_bytes()
    return found


def differences(old: bytes, new: bytes) -> list[str]:
    """The lines that differ, with their signs; of binary data, where they begin to."""
    if b"\0" in old or b"\0" in new:
        first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        return [] if old == new else [f"-{len(old)} bytes", f"+{len(new)} bytes, other ones from byte {first} on"]
    # a JSON document in one line has a line for each member
    before, after = (re.sub(r'(?<=[,{\[])(?=["{\[])', "\n", each.decode(errors="replace")) for each in (old, new))
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def compare(old: Mapping[str, bytes], new: Mapping[str, bytes], intended: Sequence[Mapping[str, str]]) -> list[str]:
    """What differs and is not intended, and intended differences that are none."""
    faults, used = [], set()
    for name in dict.fromkeys([*old, *new]):
        entries = [(number, each) for number, each in enumerate(intended) if fnmatchcase(name, each["inputs"])]
        left = []
        for line in differences(old.get(name, b""), new.get(name, b"")):
            allowed = {number for number, each in entries if re.search(each.get("lines", ""), line)}
            used |= allowed
            if not allowed:
                left.append(line[:160])
        if left:
            more = [f"… {len(left) - SHOWN_LINES} more lines"] if len(left) > SHOWN_LINES else []
            faults.append("\n  ".join([name, *left[:SHOWN_LINES], *more]))
    unused = [each for number, each in enumerate(intended) if number not in used]
    return faults + [f"{each['inputs']}: nothing differs as intended ({each['reason']})" for each in unused]


def main(words: Sequence[str]) -> int:
    """Compare, print, and return the exit code."""
    if not 1 <= len(words) <= 2:
        raise SystemExit("usage: python -m tests.contract.versions WHEEL [REVISION]")
    with make_folder() as folder, tempfile.TemporaryDirectory() as unpacked:
        paths = {
            "old": unpack_old(Path(words[0]), "".join(words[1:]), Path(unpacked)),
            "new": [ROOT / "exporter", ROOT],
        }
        processes = [start(places, folder / side) for side, places in paths.items()]
        codes = [process.wait() for process in processes]
        if any(codes):
            print("a version did not answer all inputs")
            return 1
        old, new = (read_answers(folder / side) for side in paths)
    intended = tomllib.loads((HERE / "intended.toml").read_text()).get("difference", [])
    faults = compare(old, new, intended)
    print("\n".join(faults[:SHOWN_INPUTS]))
    print(f"{len(new)} inputs, {len(faults)} differences that are not intended, {len(intended)} kinds that are")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
