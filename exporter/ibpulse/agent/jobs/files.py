"""Sources `file` and `slurm-map`: small files about jobs that root or the daemon's user wrote."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ibpulse.base import owned_files
from ibpulse.base.text import escape_controls, group_remarks, natural_key, split_lines
from ibpulse.core.jobs import ABSENT, FILE, MAX_TEXT, SLURM, SLURM_MAP, Claim, Found, is_job_id, limit_claims

MAX_LISTED = 10_000
# of computing; a directory takes milliseconds
MAX_SECONDS = 1.0
# a file system that fails says nothing about the jobs, nor does a want of descriptors
FAILING = (
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNABORTED, errno.EHOSTDOWN),
    *(errno.EMFILE, errno.ENFILE),
)
STALE = "it is older than the last boot of this node, so its job has ended: remove it."
MAX_HELD = 64
_SCHEDULER = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_ADDRESS = re.compile(r"([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_GPU = re.compile(r"([0-9]{1,3})(?:\.[0-9]{1,3})?", re.ASCII)
# the prolog of jobstats writes a file with the UUID beside each with a number
_TWIN = re.compile(r"GPU-[0-9a-f-]{36}", re.ASCII)
_DIGIT = re.compile(r"[0-9]", re.ASCII)
ODD_NAME = "its name is not like 0 or 0.1, so the GPUs of its job are not known."
ODD_LINE = "it holds something that is not the id of a job, so jobs may be missing."


@dataclass(frozen=True, slots=True)
class Form:
    """The files to read: the form of their names with an example, and how many and how long they may be."""

    names: re.Pattern[str]
    example: str
    most_files: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class SmallFile:
    """One file, as of when it was last written (wall time in ns)."""

    name: str
    content: bytes
    written_ns: int


class JobDirectory:
    """One reading of a directory; `files` are in natural order, without those that may not be read.

    `exists` is false if there is no such directory, and `readable` if none of its files may be read. `whole` is false
    if reading was given up: it took too long, the file system failed, or there are too many files; with a few too many,
    it is `cut` and has the first. `remarks` are pairs of the name of a file and a text. With something `unread`, jobs
    may be missing.
    """

    def __init__(self, directory: Path, form: Form) -> None:
        """Read the directory."""
        self.files: list[SmallFile] = []
        self.remarks: list[tuple[str, str]] = []
        self.exists = self.readable = self.whole = True
        self.unread = self.cut = False
        self._directory, self._form = directory, form
        self._refusal = ""
        try:
            descriptor = owned_files.open_trusted_directory(directory)
        except OSError as error:
            self._refuse(error)
            return
        try:
            # the time of this thread: a slow file system or a busy machine does not shorten it
            self._read(descriptor, time.thread_time() + MAX_SECONDS)
        except OSError as error:
            if error.errno not in FAILING:
                raise
            self._give_up(f"cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)

    def leave_out(self, name: str, text: str) -> None:
        """Remark that a file, or a part of it, was not understood."""
        self.unread = True
        self.remarks.append((name, text))

    def found(self, found: Found) -> Found:
        """The findings of a source in these files: the claims of `found`, and the remarks about the directory."""
        named = [(escape_controls(name[:MAX_TEXT]), text) for name, text in self.remarks]
        remarks = (*(f"{self._directory}: {remark}" for remark in group_remarks(named)), *found.remarks)
        if self._refusal:
            remarks = (self._refusal, *remarks)
        cut = self.cut or found.cut
        return Found(
            found.claims,
            remarks,
            present=self.exists,
            knows=self.readable,
            whole=self.whole and not cut,
            cut=self.whole and cut,
            unread=self.unread or found.unread,
        )

    def _give_up(self, reason: str) -> None:
        self.whole = False
        self._refusal = f"{self._directory} {reason}; showing the jobs known before."

    def _refuse(self, error: OSError) -> None:
        if error.errno in FAILING:
            self._give_up(f"cannot be read: {error.strerror}")
            return
        self.readable = False
        if error.errno == errno.ENOENT:
            self.exists = False
        else:
            self.unread = True
            self._refusal = (
                f"{self._directory} is not read: {error.strerror}; it and its files have to belong to root or to user "
                f"{os.geteuid()}, and no other user may be able to write to them."
            )

    def _read(self, descriptor: int, deadline: float) -> None:
        names = self._choose(descriptor)
        for name in names:
            if time.thread_time() > deadline:
                self._give_up("takes too long to read")
                return
            try:
                self._read_file(name, descriptor)
            except OSError as error:
                if error.errno in FAILING:
                    raise
                # a file may be removed while it is read
                if error.strerror != os.strerror(errno.ENOENT):
                    self.leave_out(name, f"ignored: {error.strerror}.")

    def _choose(self, descriptor: int) -> list[str]:
        with os.scandir(descriptor) as entries:
            listed = [entry.name for entry in itertools.islice(entries, MAX_LISTED)]
            more = next(entries, None) is not None
        names = sorted((name for name in listed if self._form.names.fullmatch(name)), key=natural_key)
        # programs that write a file and rename it begin the name with a dot
        odd = [name for name in listed if not name.startswith(".") and not self._form.names.fullmatch(name)]
        for name in sorted(odd):
            self.leave_out(name, f"ignored, because its name is not like {self._form.example}.")
        self.cut = len(names) > self._form.most_files
        for name in names[self._form.most_files :]:
            self.leave_out(name, f"ignored, because only {self._form.most_files} files are read.")
        if more:
            # the files of jobs may be among those that were not listed
            self._give_up(f"has more than {MAX_LISTED} files, which is too many to read")
        return names[: self._form.most_files] if self.whole else []

    def _read_file(self, name: str, descriptor: int) -> None:
        opened = owned_files.open_trusted(self._directory / name, descriptor)
        try:
            written_ns = os.fstat(opened).st_mtime_ns
            content = os.read(opened, self._form.most_bytes + 1)
        finally:
            os.close(opened)
        if len(content) > self._form.most_bytes:
            self.leave_out(name, f"ignored, because it is longer than {self._form.most_bytes} bytes.")
            return
        self.files.append(SmallFile(name, content, written_ns))


def boot_time_ns() -> int:
    """Wall time of the last boot of this node in ns, by today's wall clock."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


DOCUMENT = Form(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.json", re.ASCII), "42.json", most_files=64, most_bytes=4096
)


def read_job_documents(directory: Path, booted_ns: int, boot_id: str) -> Found:
    """The jobs that documents in a directory describe; `booted_ns` and `boot_id` are those of the last boot.

    Each has a document `ID.json`, written by a prolog or by any scheduler, with the members `id` and `scheduler`, and
    optionally `name`, `namespace`, `gpus` (PCI addresses), `devices` (RDMA devices) and `boot_id`, the kernel's id of
    the boot in which the job began.
    """
    read = JobDirectory(directory, DOCUMENT)
    if not read.exists:
        return ABSENT
    claims = []
    for file in read.files:
        try:
            members = parse_document(file)
        except ValueError as error:
            read.leave_out(file.name, f"ignored: {error}.")
            continue
        if file.written_ns < booted_ns or members.get("boot_id", boot_id) != boot_id:
            read.remarks.append((file.name, STALE))
            continue
        claims.append(make_claim(members))
    return read.found(limit_claims(str(directory), claims))


def parse_document(file: SmallFile) -> Mapping[str, Any]:
    """The members of a document, checked.

    Raises:
        ValueError: it is not a document; the message says what is wrong with it.
    """
    try:
        members = json.loads(file.content.decode(), object_pairs_hook=_refuse_repeated)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError("it is not JSON in UTF-8") from error
    if not isinstance(members, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (a fault of the value)
    for name, value in members.items():
        if name not in _MEMBERS:
            raise ValueError(f"member {name[:64]!r} is not known; use {', '.join(_MEMBERS)}")
        is_valid, form = _MEMBERS[name]
        if not is_valid(value):
            raise ValueError(f"{name} is not {form}")
    for name in ("id", "scheduler"):
        if name not in members:
            raise ValueError(f"{name} is missing")
    if f"{members['id']}.json" != file.name:
        raise ValueError("its name is not its id with .json")
    return members


def make_claim(members: Mapping[str, Any]) -> Claim:
    """The claim of a checked document."""
    return Claim(
        id=members["id"],
        scheduler=members["scheduler"],
        source=FILE,
        name=members.get("name", ""),
        namespace=members.get("namespace", ""),
        gpus=tuple(dict.fromkeys(filter(None, map(normal_address, members.get("gpus", ()))))),
        devices=tuple(dict.fromkeys(members.get("devices", ()))),
    )


def normal_address(text: str) -> str:
    """A PCI address as in sysfs; those of NVIDIA's tools have capital letters and eight digits before the first colon.

    Empty for a text that is not an address.
    """
    found = _ADDRESS.fullmatch(text.lower())
    return f"{int(found[1], 16):04x}{found[2]}" if found else ""


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member is given twice")
    return members


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable()


def _lists(is_item: Callable[[str], object]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, list) or len(value) > MAX_HELD:
            return False
        return all(isinstance(item, str) and is_item(item) for item in value)

    return check


_MEMBERS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "id": (lambda value: isinstance(value, str) and is_job_id(value), "the id of a job, such as 42"),
    "scheduler": (lambda value: isinstance(value, str) and bool(_SCHEDULER.fullmatch(value)), "a word such as slurm"),
    "name": (_is_text, f"a text of at most {MAX_TEXT} printable characters"),
    "namespace": (_is_text, f"a text of at most {MAX_TEXT} printable characters"),
    "gpus": (_lists(normal_address), f"a list of at most {MAX_HELD} PCI addresses such as 0000:3e:00.0"),
    "devices": (_lists(_DEVICE.fullmatch), f"a list of at most {MAX_HELD} RDMA devices such as mlx5_0"),
    "boot_id": (_is_text, "the text of /proc/sys/kernel/random/boot_id"),
}


# 16 GPUs with 7 instances each, and the GPUs themselves, each by its number and its UUID
MAPPING = Form(re.compile(r"[^.].*", re.DOTALL), "0 or 0.1", most_files=512, most_bytes=1024)


def read_slurm_mapping(directory: Path, booted_ns: int) -> Found:
    """The jobs in a mapping directory, with the indexes of their GPUs; `booted_ns` is the wall time of the last boot.

    Its files are named by GPU index and hold job ids, as the prolog for DCGM's exporter writes them. A file `3` (or
    `3.1` for an instance of a MIG GPU) has one job per line, whose first word is its id; jobstats adds the id of the
    user. AMD's exporter has a JSON object with `SLURM_JOB_ID`. An empty file and the id 0 are no job. Files with other
    names, such as UUIDs of GPUs, say which jobs run, and not what they hold.
    """
    read = JobDirectory(directory, MAPPING)
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
