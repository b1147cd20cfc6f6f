"""SRV records (RFC 2782), asked for with the resolver of the system (`res_search`) and its `/etc/resolv.conf`."""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from ibpulse.base.errors import DiscoveryError

_CLASS_IN, _TYPE_SRV = 1, 33
MAX_MESSAGE = 65_535
MAX_JUMPS = 128
# include/netdb.h
_HOST_NOT_FOUND, _TRY_AGAIN, _NO_RECOVERY, _NO_DATA = 1, 2, 3, 4
_REASONS = {
    _HOST_NOT_FOUND: "there is no such name",
    _TRY_AGAIN: "the name server does not answer",
    _NO_RECOVERY: "the name server refuses",
    _NO_DATA: "the name has no SRV records",
}


class ServiceRecord(NamedTuple):
    """Host and port of a record."""

    host: str
    port: int


def find_services(name: str) -> tuple[ServiceRecord, ...]:
    """The records of a name, sorted. Blocks.

    Raises:
        DiscoveryError: there are none, or no name server answers.
    """
    library = _resolver()
    buffer = ctypes.create_string_buffer(MAX_MESSAGE)
    length = library.res_search(name.encode("ascii"), _CLASS_IN, _TYPE_SRV, buffer, MAX_MESSAGE)
    if length < 0:
        # errors of the resolver are in h_errno, which is a function per thread
        library.__h_errno_location.restype = ctypes.POINTER(ctypes.c_int)
        reason = _REASONS.get(library.__h_errno_location().contents.value, "the lookup failed")
        raise DiscoveryError([f"{name} cannot be resolved: {reason}"])
    try:
        return read_services(buffer.raw[: min(length, MAX_MESSAGE)])
    except (ValueError, struct.error, IndexError) as error:
        raise DiscoveryError([f"{name} cannot be resolved: the answer is not one of DNS"]) from error


def _resolver() -> ctypes.CDLL:
    """The library with the resolver: the C library itself, or a part of older versions of glibc."""
    for name in (None, "libresolv.so.2"):
        try:
            library = ctypes.CDLL(name)
            # dlsym knows it if the library has it
            library.res_search  # noqa: B018
        except (OSError, AttributeError):
            continue
        return library
    raise DiscoveryError(["this system has no resolver for SRV records; use dns+NAME:PORT"])


def read_services(message: bytes) -> tuple[ServiceRecord, ...]:
    """The SRV records in a message of DNS (RFC 1035), sorted.

    Raises:
        ValueError, struct.error, IndexError: it is not such a message.
    """
    _, _, questions, answers, _, _ = struct.unpack_from("!6H", message)
    at = 12
    for _ in range(questions):
        _, at = _read_name(message, at)
        at += 4
    found = set()
    for _ in range(answers):
        _, at = _read_name(message, at)
        kind, group, _, length = struct.unpack_from("!HHIH", message, at)
        at += 10
        if (kind, group) == (_TYPE_SRV, _CLASS_IN):
            host, _ = _read_name(message, at + 6)
            found.add(ServiceRecord(host, struct.unpack_from("!H", message, at + 4)[0]))
        at += length
    return tuple(sorted(found))


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    """The name at a place, and the place after it; names may point back to others."""
    parts: list[str] = []
    after = -1
    for _ in range(MAX_JUMPS):
        length = message[at]
        if length >= 0xC0:
            after = at + 2 if after < 0 else after
            at = (length & 0x3F) << 8 | message[at + 1]
        elif length == 0:
            return ".".join(parts), at + 1 if after < 0 else after
        else:
            parts.append(message[at + 1 : at + 1 + length].decode("ascii"))
            at += 1 + length
    raise ValueError("a name without an end")
