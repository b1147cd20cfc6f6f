"""What a maintainer needs of a node, as one file: the tree, doctor's answer, versions, settings; all redacted.

It writes the file and reads nothing of the node: what goes into it is passed in.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ibpulse.doctor.fixture import TreeCopy
from ibpulse.doctor.redaction import Redactor
from ibpulse.errors import ConfigError

TOP = "ibpulse-bundle"
GUID_FILES = frozenset({"node_guid", "sys_image_guid"})
DESCRIPTION_FILE = "node_desc"
VERSION_FILES = frozenset({"fw_ver"})
README = """\
A bundle of `ibpulse doctor`.

sys/             the part of the node's sysfs that ibpulse reads, as it was at one instant. It is a fixture:
                 ibpulse serve --path.sysfs=sys
                 A file that could not be read says "N/A (no PMA)" there.
unreadable.json  which files these are, and why
doctor.txt       what doctor found
doctor.json      the same for programs
settings.yaml    the settings
versions.json    versions of the program, of Python, of the kernel

GUIDs, host names, IP and MAC addresses are replaced by made-up ones, the same original by the same one everywhere. The
key was random and is kept nowhere. GIDs, keys, LIDs and serial numbers are left out. Names of devices and interfaces,
PCI addresses, firmware versions and counts are as they were. Look through it before you hand it on.
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a bundle is made of, not redacted yet; `hosts` are names under which the node is known."""

    tree: TreeCopy
    page: str
    document: Mapping[str, object]
    settings: Mapping[str, object]
    versions: Mapping[str, object]
    hosts: tuple[str, ...] = ()


def write_bundle(path: Path, contents: Contents) -> None:
    """Write the bundle to `path`, readable by its owner alone.

    Raises:
        ConfigError: the file cannot be written.
    """
    data = io.BytesIO()
    # without a name: that of the file may be the node's
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
        raise ConfigError([f"--bundle: {path} cannot be written: {error.strerror}; name a file that can be"]) from error


def _list_members(contents: Contents) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    tree = contents.tree
    guids, versions = _find_texts(tree, GUID_FILES), _find_texts(tree, VERSION_FILES)
    redactor = Redactor((*contents.hosts, *_find_hosts(tree)), guids, versions)
    yield _folder(TOP), None
    for name, text in (
        ("README.txt", README),
        ("doctor.txt", redactor.clean(contents.page)),
        ("doctor.json", _write_json(redactor.clean_values(contents.document))),
        ("settings.yaml", _write_yaml(redactor.clean_values(contents.settings))),
        ("versions.json", _write_json(redactor.clean_values(contents.versions))),
        ("unreadable.json", _write_json(_clean_reasons(tree, redactor))),
    ):
        yield _file(f"{TOP}/{name}", text)
    yield from _list_tree(tree, redactor)


def _list_tree(tree: TreeCopy, redactor: Redactor) -> Iterator[tuple[tarfile.TarInfo, bytes | None]]:
    """Folders before what is in them, then files, then links."""
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
        # free text, in which nothing is known to be harmless
        return f"{redactor.host(text.strip())}\n"
    return redactor.clean_hardware(text)


def _clean_reasons(tree: TreeCopy, redactor: Redactor) -> dict[str, str]:
    return {redactor.clean_hardware(path): redactor.clean(reason) for path, reason in tree.unreadable.items()}


def _find_hosts(tree: TreeCopy) -> Iterator[str]:
    """First words of `node_desc`, which by custom are the host's name."""
    types = _find_texts(tree, frozenset({"hca_type"}))
    for text in _find_texts(tree, frozenset({DESCRIPTION_FILE})):
        words = text.split()
        if words and words[0] not in types:
            yield words[0]


def _find_texts(tree: TreeCopy, names: frozenset[str]) -> list[str]:
    """What the files of these names say."""
    return [text.strip() for path, text in tree.files.items() if PurePosixPath(path).name in names]


def _write_json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _write_yaml(value: object) -> str:
    import yaml  # takes longer to import than all else here

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
