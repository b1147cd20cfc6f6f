"""Facts of the machine that doctor runs on: clock, quota, memory, free space, the address of the web server."""

from __future__ import annotations

import errno
import http.client
import os
import re
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ibpulse.agent.doctor.facts import DoctorOptions, Machine, Space, WebPort
from ibpulse.agent.doctor.tree_facts import find_mount
from ibpulse.agent.sampler.kernel import quota_cpus
from ibpulse.base.clocks import read_clock_state
from ibpulse.base.deadline import call_all
from ibpulse.base.owned_files import find_directories
from ibpulse.base.text import split_lines
from ibpulse.core.ring import layout as at

_FAILING = re.compile(r"Internal errors in ([a-z, ]{1,200}); see the log")
ANSWER_SECONDS = 2.0
WEB_SECONDS = 1.0
# The oldest samples of the ring cannot be read while the sampler overwrites them.
SPARE_NS = 2_000_000_000


def read_machine(options: DoctorOptions, ports: int) -> Machine:
    """Facts of the machine; `ports` is the number of ports that the daemon samples."""
    spaces = {"ring.dir": (options.ring_dir, ring_bytes(options, ports))}
    spaces |= {setting: (path, needed) for setting, path, needed in options.keep}
    calls: dict[str, Callable[[], object]] = {
        name: partial(find_space, options.root, name, path, needed) for name, (path, needed) in spaces.items()
    }
    calls["web"] = lambda: find_web_holder(options.host, options.port)
    found = call_all(calls, ANSWER_SECONDS).values
    web = found.get("web")
    return Machine(
        kernel=os.uname().release,
        clock=read_clock_state(),
        quota_cpus=quota_cpus(options.root),
        allowed_cpus=frozenset(os.sched_getaffinity(0)),
        available_bytes=read_available(options.root),
        spaces=tuple(space for name in spaces if isinstance(space := found.get(name), Space)),
        web=web if isinstance(web, WebPort) else None,
    )


def ring_bytes(options: DoctorOptions, ports: int) -> int:
    """Bytes that the ring needs for this number of ports; the rest of the file is sparse."""
    capacity = (options.history_ns + SPARE_NS) // options.interval_ns
    return (at.RECORD_TABLE + ports * capacity * at.RECORD_WORDS) * at.WORD


def find_space(root: Path, setting: str, path: Path, needed_bytes: int) -> Space:
    """The space at `path`, or at its nearest existing parent. The space of an existing ring counts as free."""
    here = next((folder for folder in (path, *path.parents) if folder.is_dir()), Path("/"))
    system = os.statvfs(here)
    used_bytes = max(_used_bytes(each / "ring") for each in find_directories(path) if path in (each, each.parent))
    mount = find_mount(root, str(here))
    return Space(
        setting=setting,
        path=str(path),
        needed_bytes=needed_bytes,
        free_bytes=system.f_bavail * system.f_frsize + used_bytes,
        writable=os.access(here, os.W_OK | os.X_OK),
        type=mount.type if mount else "",
    )


def _used_bytes(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except OSError:
        return 0


def read_available(root: Path) -> int | None:
    """Bytes of memory available without swapping (proc(5), meminfo)."""
    try:
        lines = split_lines((root / "proc/meminfo").read_text())
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    words = fields.get("MemAvailable", "").split()
    return int(words[0]) * 1024 if words else None


def find_web_holder(host: str, port: int) -> WebPort:
    """Whether the address is free, and if not, whether ibpulse uses it."""
    if port == 0:
        return WebPort("free")
    try:
        _try_to_listen(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return WebPort("refused", error.strerror or str(error))
        if not _ask(host, port, "/-/healthy").startswith(("Healthy: ", "Not healthy: ")):
            return WebPort("other")
        failing = _FAILING.search(_ask(host, port, "/-/ready"))
        return WebPort("ibpulse", failing.group(1) if failing else "")
    return WebPort("free")


def _try_to_listen(host: str, port: int) -> None:
    """Bind the address as the web server would, without listening. Raises OSError."""
    both = not host and socket.has_dualstack_ipv6()
    family, *_, address = (
        (socket.AF_INET6, ("", port))
        if both
        else socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    )
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if both:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)


def _ask(host: str, port: int, path: str) -> str:
    """The beginning of the answer to a request; empty without one."""
    near = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    connection = http.client.HTTPConnection(near, port, timeout=WEB_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(2000).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
