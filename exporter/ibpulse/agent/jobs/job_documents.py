"""Source `file`: one JSON document per job, `ID.json`, written by a prolog or by any scheduler.

The members are `id` and `scheduler`, and optionally `name`, `namespace`, `gpus` (PCI addresses), `devices` (RDMA
devices) and `boot_id`, the kernel's id of the boot in which the job began.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ibpulse.agent.jobs.job_directory import STALE, Form, JobDirectory, SmallFile
from ibpulse.core.jobs.claims import ABSENT, FILE, MAX_TEXT, Claim, Found, is_job_id, limit_claims

FORM = Form(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.json", re.ASCII), "42.json", most_files=64, most_bytes=4096)
MAX_LISTED = 64
_SCHEDULER = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_ADDRESS = re.compile(r"([0-9a-f]{4,8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


def read_job_documents(directory: Path, booted_ns: int, boot_id: str) -> Found:
    """The jobs that documents in a directory describe; `booted_ns` and `boot_id` are those of the last boot."""
    read = JobDirectory(directory, FORM)
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
        if not isinstance(value, list) or len(value) > MAX_LISTED:
            return False
        return all(isinstance(item, str) and is_item(item) for item in value)

    return check


_MEMBERS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "id": (lambda value: isinstance(value, str) and is_job_id(value), "the id of a job, such as 42"),
    "scheduler": (lambda value: isinstance(value, str) and bool(_SCHEDULER.fullmatch(value)), "a word such as slurm"),
    "name": (_is_text, f"a text of at most {MAX_TEXT} printable characters"),
    "namespace": (_is_text, f"a text of at most {MAX_TEXT} printable characters"),
    "gpus": (_lists(normal_address), f"a list of at most {MAX_LISTED} PCI addresses such as 0000:3e:00.0"),
    "devices": (_lists(_DEVICE.fullmatch), f"a list of at most {MAX_LISTED} RDMA devices such as mlx5_0"),
    "boot_id": (_is_text, "the text of /proc/sys/kernel/random/boot_id"),
}
