"""Writes a bundle: everything that a maintainer needs from a node, in one redacted archive."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ibpulse.doctor.redaction import Redactor
from ibpulse.doctor.tree_copy import TreeCopy
from ibpulse.errors import ConfigError
from ibpulse.events.event import JOB_KINDS, Event, to_json

TOP = "ibpulse-bundle"
GUID_FILES = frozenset({"node_guid", "sys_image_guid"})
DESCRIPTION_FILE = "node_desc"
VERSION_FILES = frozenset({"fw_ver"})
MAX_EVENTS_BYTES = 2_000_000


README = """\
A bundle of `ibpulse doctor`.

sys/             the part of the node's sysfs that ibpulse reads, at one instant. Use it as a fixture:
                 ibpulse serve --path.sysfs=sys
                 A file that could not be read contains "N/A (no PMA)".
unreadable.json  these files, with the reason
doctor.txt       the findings of doctor
doctor.json      the same as JSON
settings.yaml    the settings
versions.json    the versions of ibpulse, Python and the kernel
events.jsonl     the newest events of the running daemon, one per line

GUIDs, host names, IP and MAC addresses, serial numbers, UUIDs and names of users are replaced by pseudonyms, the same
original by the same pseudonym everywhere. They were made with a random key that was not stored. GIDs, keys and LIDs are
not included, nor are the reasons and labels of captures, or the ids and names of jobs. Names of devices and interfaces,
PCI addresses, firmware versions and counts are unchanged. Review the bundle before sharing it.
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a bundle before redaction; `hosts` are the names of the node, `homes` home directories.

    Of `events` the newest are written, at most `MAX_EVENTS_BYTES`.
    """

    tree: TreeCopy
    page: str
    document: Mapping[str, object]
    settings: Mapping[str, object]
    versions: Mapping[str, object]
    hosts: tuple[str, ...] = ()
    events: Sequence[Event] = ()
    homes: tuple[str, ...] = ()


def write_bundle(path: Path, contents: Contents) -> None:
    """Write the bundle to `path`, readable only by its owner.

    Raises:
        ConfigError: the file cannot be written.
    """
    data = io.BytesIO()
    # without a file name, which may contain the name of the node
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=data, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member, content in _list_members(contents):
            archive.addfile(member, None if content is None else io.BytesIO(content))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data.getvalue())
    except OSError as error:
        raise ConfigError([f"--bundle: cannot write {path}: {error.strerror}; choose another file"]) from error


def _list_members(contents: Contents) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    tree = contents.tree
    guids, versions = _find_texts(tree, GUID_FILES), _find_texts(tree, VERSION_FILES)
    redactor = Redactor((*contents.hosts, *_find_hosts(tree)), guids, versions, contents.homes)
    yield _folder(TOP), None
    for name, text in (
        ("README.txt", README),
        ("doctor.txt", redactor.clean(contents.page)),
        ("doctor.json", _write_json(redactor.clean_values(contents.document))),
        ("settings.yaml", _write_yaml(redactor.clean_values(contents.settings))),
        ("versions.json", _write_json(redactor.clean_values(contents.versions))),
        ("unreadable.json", _write_json(_clean_reasons(tree, redactor))),
        ("events.jsonl", _write_events(contents.events, redactor)),
    ):
        yield _file(f"{TOP}/{name}", text)
    yield from _list_tree(tree, redactor)


def _list_tree(tree: TreeCopy, redactor: Redactor) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Folders, outer ones first, then files, then links."""
    above = {str(part) for path in (*tree.files, *tree.links, *tree.folders) for part in PurePosixPath(path).parents}
    for folder in sorted(above | tree.folders, key=lambda path: path.split("/")):
        yield _folder(_place(folder, redactor)), None
    for path, text in tree.files.items():
        yield _file(_place(path, redactor), _clean_file(path, text, redactor))
    for path, target in tree.links.items():
        link = tarfile.TarInfo(_place(path, redactor))
        link.type, link.linkname, link.mode = tarfile.SYMTYPE, redactor.clean_hardware(target), 0o777
        yield link, None


def _place(path: str, redactor: Redactor) -> str:
    return f"{TOP}/sys" if path == "." else f"{TOP}/sys/{redactor.clean_hardware(path)}"


def _clean_file(path: str, text: str, redactor: Redactor) -> str:
    name = PurePosixPath(path).name
    if name in GUID_FILES:
        return f"{redactor.guid(text.strip())}\n"
    if name == DESCRIPTION_FILE:
        # free text, any part of which may identify the node
        return f"{redactor.host(text.strip())}\n"
    return redactor.clean_hardware(text)


def _clean_reasons(tree: TreeCopy, redactor: Redactor) -> dict[str, str]:
    return {redactor.clean_hardware(path): redactor.clean(reason) for path, reason in tree.unreadable.items()}


def _write_events(events: Sequence[Event], redactor: Redactor) -> str:
    """The newest events as JSON, one per line, in the order of the log."""
    lines: list[str] = []
    room = MAX_EVENTS_BYTES
    for event in reversed(events):
        # names of jobs, and reasons and labels of captures, are free text, any part of which may identify the node
        free = event.kind in ("capture", *JOB_KINDS)
        known = replace(event, text="", details={}) if free else event
        line = json.dumps(redactor.clean_values(to_json(known), keys=True)) + "\n"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    return "".join(reversed(lines))


def _find_hosts(tree: TreeCopy) -> Iterator[str]:
    """First words of `node_desc`, by convention the host name."""
    types = _find_texts(tree, frozenset({"hca_type"}))
    for text in _find_texts(tree, frozenset({DESCRIPTION_FILE})):
        words = text.split()
        if words and words[0] not in types:
            yield words[0]


def _find_texts(tree: TreeCopy, names: frozenset[str]) -> list[str]:
    """The contents of the files of these names."""
    return [text.strip() for path, text in tree.files.items() if PurePosixPath(path).name in names]


def _write_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _write_yaml(value: object) -> str:
    import yaml  # slower to import than the rest of this module together

    return str(yaml.safe_dump(value, sort_keys=False))


def _folder(name: str) -> tarfile.TarInfo:
    folder = tarfile.TarInfo(name)
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return folder


def _file(name: str, text: str) -> tuple[tarfile.TarInfo, bytes]:
    content = text.encode()
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), 0o644
    return file, content
