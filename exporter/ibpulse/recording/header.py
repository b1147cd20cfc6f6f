"""What a recording says of itself, as the JSON that its file carries. It must not know files.

A new version of the format gets a new entry in `_READERS`; the old ones stay.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import orjson

from ibpulse.recording.recording import RecordingMeta

if TYPE_CHECKING:
    from pydantic import TypeAdapter

KEY = b"ibpulse_recording"
"""The key of the JSON among the metadata of the file's schema."""
VERSION_MEMBER = "ibpulse_recording_version"
VERSION = 1
MAX_HEADER_BYTES = 4_000_000


def write_header(meta: RecordingMeta) -> bytes:
    """The JSON of `meta`."""
    return orjson.dumps({VERSION_MEMBER: VERSION, **dataclasses.asdict(meta)})


def read_header(raw: bytes) -> RecordingMeta:
    """The `meta` that `write_header` wrote, of this version or an older one.

    Raises:
        ValueError: it is not that; the message goes on behind the name of the file.
    """
    if len(raw) > MAX_HEADER_BYTES:
        raise ValueError(f"has metadata of {len(raw)} bytes; at most {MAX_HEADER_BYTES} are read")
    try:
        members = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ValueError("has metadata that is no JSON; copy the file again from where it was made") from error
    version = members.get(VERSION_MEMBER) if isinstance(members, dict) else None
    reader = _READERS.get(version) if type(version) is int else None
    if reader is None:
        shown = repr(version)[:20]
        raise ValueError(f"is of version {shown}, this program reads version {_versions()}; use a newer ibpulse")
    return reader(raw)


def _versions() -> str:
    return ", ".join(map(str, _READERS))


@cache
def _adapter() -> TypeAdapter[RecordingMeta]:
    # who only writes does without pydantic, which takes 9 MB
    from pydantic import TypeAdapter

    return TypeAdapter(RecordingMeta)


def _read_v1(raw: bytes) -> RecordingMeta:
    from pydantic import ValidationError

    try:
        return _adapter().validate_json(raw, strict=True)
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))[:100] or "the whole"
        raise ValueError(f"has metadata that cannot be used: {place}: {fault['msg'][:200]}") from error


_READERS: dict[int, Callable[[bytes], RecordingMeta]] = {1: _read_v1}
