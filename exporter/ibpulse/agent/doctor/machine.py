"""The machine that doctor runs on, and checks of its CPUs, scheduler, quota, clock, kernel, space and web address."""

from __future__ import annotations

import errno
import http.client
import math
import os
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ibpulse.agent.doctor.facts import (
    DoctorOptions,
    Facts,
    Finding,
    Level,
    Machine,
    Space,
    WebPort,
    check,
    failed,
    passed,
    warned,
)
from ibpulse.agent.doctor.tree import find_mount
from ibpulse.agent.sampler.kernel import quota_cpus
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.base.clocks import read_clock_state
from ibpulse.base.deadline import call_all
from ibpulse.base.limits import read_fields
from ibpulse.base.owned_files import find_directories
from ibpulse.base.text import count_text, names_text, size_text, time_text
from ibpulse.core.ring import layout as at

_FAILING = re.compile(r"Internal errors in ([a-z, ]{1,200}); see the log")
ANSWER_SECONDS = 2.0
WEB_SECONDS = 1.0
# The oldest samples of the ring cannot be read while the sampler overwrites them.
SPARE_NS = 2_000_000_000
MEMORY_TYPES = ("tmpfs", "ramfs", "hugetlbfs", "")
DEFAULT_SLACK_NS = 50_000
Version = tuple[int, int]


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
        available_bytes=read_fields(options.root / "proc/meminfo").get("MemAvailable:"),
        spaces=tuple(space for name in spaces if isinstance(space := found.get(name), Space)),
        web=web if isinstance(web, WebPort) else None,
    )


def ring_bytes(options: DoctorOptions, ports: int) -> int:
    """Bytes that the ring needs for this number of ports; the rest of the file is sparse."""
    capacity = (options.history_ns + SPARE_NS) // options.interval_ns
    readings = SupervisorOptions(signal_ticks=options.signal_ticks).count_readings(capacity)
    return at.RECORD_TABLE * at.WORD + ports * at.port_bytes(capacity, readings)


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


@check("affinity", of_machine=True)
def check_affinity(facts: Facts) -> Iterator[Finding]:
    """The sampler's CPU, and the CPUs near the rails."""
    rails = {port.id.device for port in facts.fabric.ports if port.rail}
    places = [place for place in facts.fabric.topology.devices if place.device in rails]
    cpu = facts.options.cpu
    if cpu is None:
        nodes = sorted({str(place.numa_node) for place in places if place.numa_node is not None})
        where = f"the rails are on NUMA {'node' if len(nodes) == 1 else 'nodes'} {', '.join(nodes)}" if nodes else ""
        yield passed("", "The sampler is not pinned to a CPU" + (f"; {where}." if where else "."))
        return
    refused = facts.sampling is not None and facts.sampling.health.cpu_actual != str(cpu)
    if cpu not in facts.machine.allowed_cpus or refused:
        yield warned(
            "sampler.cpu",
            f"{cpu} is not a CPU that this process may use.",
            "The sampler runs on any CPU.",
            "Choose a CPU of the cpuset, or unset sampler.cpu.",
        )
        return
    known = [parse_cpus(place.local_cpus) for place in places if place.local_cpus]
    if known and not any(cpu in cpus for cpus in known):
        yield warned(
            "sampler.cpu",
            f"{cpu} is not local to any rail.",
            "Each read crosses the socket boundary, which makes it slightly slower.",
            f"Choose one of {names_text(sorted({place.local_cpus for place in places if place.local_cpus}))}.",
        )
    else:
        near = " and local to a rail" if known else ""
        yield passed("sampler.cpu", f"{cpu} is available to the sampler{near}.")


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs in a kernel CPU list such as `0-47,96`; parts that are not numbers are ignored."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last or first).isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


@check("scheduler", of_machine=True)
def check_scheduler(facts: Facts) -> Iterator[Finding]:
    """The sampler's scheduling policy and timer slack."""
    sampling = facts.sampling
    if sampling is None:
        yield passed("", f"sampler.scheduler is {facts.options.scheduler}; not tested without sampling.")
        return
    asked, actual = sampling.health.scheduler_requested, sampling.health.scheduler_actual
    if asked != actual:
        yield warned(
            "",
            f"sampler.scheduler={asked} was refused; the sampler runs as {actual}.",
            "On a busy node the sampler wakes up later and misses more samples.",
            "Give it CAP_SYS_NICE; in a cgroup on a kernel with CONFIG_RT_GROUP_SCHED that is not sufficient.",
        )
    else:
        yield passed("", f"The sampler runs with the requested scheduling policy: {actual}.")
    slack = sampling.timer_slack_ns
    if slack is not None and slack >= DEFAULT_SLACK_NS and actual != "fifo":
        yield warned(
            "",
            f"The sampler's timers may fire up to {time_text(slack / 1e9)} late (timer slack).",
            "Each sample starts that much later, which is little compared with 10 ms.",
            "Find out what blocks prctl(PR_SET_TIMERSLACK), such as a seccomp profile.",
        )


@check("cpu", of_machine=True)
def check_cpu(facts: Facts) -> Iterator[Finding]:
    """CPU quota and throttling."""
    sampling = facts.sampling
    quota = sampling.quota_cpus if sampling else facts.machine.quota_cpus
    if quota is not None and not math.isinf(quota):
        throttled = (sampling.throttled_periods if sampling else None) or 0
        seen = f" and has been throttled in {count_text(throttled, 'period')}" if throttled else ""
        yield warned(
            "",
            f"The sampler's cgroup has a quota of {quota:.3g} CPUs{seen}.",
            "A quota stops the sampler for up to 100 ms at a time: a limit of 200m loses a tenth of the samples.",
            "Remove the CPU limit and set a CPU request instead.",
        )
    else:
        yield passed("", "The sampler has no CPU quota.")


@check("clock", of_machine=True)
def check_clock(facts: Facts) -> Iterator[Finding]:
    """Whether the wall clock is synchronised."""
    clock, steps = facts.machine.clock, facts.sampling.clock_steps if facts.sampling else 0
    if steps:
        yield warned(
            "",
            f"The wall clock was stepped {count_text(steps, 'time')} while doctor was running.",
            "Each step leaves missing or repeated data in every history.",
            "Configure the time service to slew the clock instead of stepping it.",
        )
    if clock is None:
        yield passed("", "The state of the kernel's clock is not accessible.")
    elif not clock.synchronised:
        yield warned(
            "",
            "The wall clock is not synchronised.",
            "Rates are correct, but this node's samples do not line up with those of other nodes.",
            "Run chrony, ntpd, systemd-timesyncd or ptp4l with phc2sys on the host.",
        )
    else:
        yield passed(
            "", f"The wall clock is synchronised, with an error of at most {time_text(clock.max_error_seconds)}."
        )


@dataclass(frozen=True, slots=True)
class Trap:
    """A known problem of kernels from version `since` up to but not including `until`, if `matters` on this node."""

    since: Version
    until: Version | None
    matters: Callable[[Facts], bool]
    level: Level
    sentence: str
    meaning: str
    advice: str = ""


TRAPS: tuple[Trap, ...] = (
    Trap(
        (0, 0),
        (4, 5),
        lambda facts: bool(facts.fabric.ports),
        Level.WARN,
        "Before Linux 4.5 the 64-bit counters are in counters_ext, which ibpulse does not read.",
        "Ports whose other counters have 32 bits are not sampled.",
        "Use a newer kernel.",
    ),
    Trap(
        (0, 0),
        (6, 15),
        lambda facts: facts.tree.is_other_namespace and bool(facts.tree.shared),
        Level.WARN,
        "Before Linux 6.15 a pod's own sysfs shows the device's hw_counters, and reading them can crash the kernel.",
        "ibpulse never reads them, but other tools in pods may. Stable kernels may include the fix of March 2025.",
        "Update the kernel, and let exporters read the host's /sys.",
    ),
    Trap(
        (5, 16),
        None,
        lambda facts: any(port.identity.driver.startswith("mlx5") for port in facts.fabric.ports),
        Level.OK,
        "Since Linux 5.16, each hw_counters read of mlx5 costs a refresh, unless rx_write_requests is read first.",
        "ibpulse reads that file first. Tools that do not cost the firmware 2 to 4 commands per file.",
    ),
    Trap(
        (0, 0),
        None,
        lambda facts: any(port.source and port.source.refresh_seconds for port in facts.fabric.ports),
        Level.OK,
        "Some bytes are counted in hw_counters, which the kernel refreshes one clock tick after their lifespan.",
        "To avoid aliasing, ibpulse samples these at three times that interval or more, but at least once a second.",
    ),
)


def parse_version(release: str) -> Version | None:
    """Major and minor version of a kernel release such as `6.8.0-45-generic`; None for any other text."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else None


def find_traps(facts: Facts) -> list[Trap]:
    """The known problems of this kernel that matter on this node; empty for a release that cannot be parsed."""
    version = parse_version(facts.machine.kernel)
    if version is None:
        return []
    return [
        trap
        for trap in TRAPS
        if trap.since <= version and (trap.until is None or version < trap.until) and trap.matters(facts)
    ]


@check("kernel", of_machine=True)
def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Known problems of this kernel version."""
    traps = find_traps(facts)
    for trap in traps:
        yield Finding(trap.level, "", trap.sentence, trap.meaning, trap.advice)
    if not traps:
        yield passed("", f"Linux {facts.machine.kernel} has no known problem that matters here.")


@check("space")
def check_space(facts: Facts) -> Iterator[Finding]:
    """Memory and disk space for the ring, the captures and other files."""
    for space in facts.machine.spaces:
        yield from _judge_captures(space) if space.setting == "capture.dir" else _judge_space(space, facts)


def _judge_captures(space: Space) -> Iterator[Finding]:
    """At worst a warning, because sampling and metrics work without captures."""
    if not space.writable:
        sentence, advice = f"{space.path} is not writable for this user.", "Set capture.dir to a writable directory."
    elif space.free_bytes is not None and space.free_bytes < space.needed_bytes:
        free, wanted = size_text(space.free_bytes), size_text(space.needed_bytes)
        sentence = f"{space.path} has {free} free, but capture.min-free reserves {wanted}."
        advice = "Free space for capture.dir, or lower capture.min-free."
    else:
        yield passed(space.setting, "has enough free space for captures.")
        return
    meaning = "No capture is written. Sampling and metrics are not affected."
    yield warned(space.setting, sentence, meaning, advice)


def _judge_space(space: Space, facts: Facts) -> Iterator[Finding]:
    needed = size_text(space.needed_bytes)
    available = facts.machine.available_bytes
    in_memory = space.type in MEMORY_TYPES
    if not space.writable and not (facts.sampling and facts.sampling.by_daemon):
        yield warned(
            space.setting,
            f"{space.path} is not writable for this user.",
            "The daemon cannot start as this user.",
            f"Set {space.setting} to a writable directory, preferably on tmpfs.",
        )
    elif space.free_bytes is not None and space.free_bytes < space.needed_bytes:
        yield failed(
            space.setting,
            f"needs {needed}, but {space.path} has only {size_text(space.free_bytes)} free.",
            "The daemon cannot store its samples.",
            f"Free space for {space.setting}, or shorten sampler.history.",
        )
    elif in_memory and available is not None and available < 2 * space.needed_bytes:
        yield warned(
            space.setting,
            f"needs {needed} of memory, but only {size_text(available)} is available.",
            "The node may run out of memory.",
            "Shorten sampler.history.",
        )
    elif space.setting == "ring.dir" and not in_memory and facts.tree.is_kernel:
        yield warned(
            space.setting,
            f"{space.path} is on {space.type}, not in memory.",
            "Every sample is eventually written to disk, which can stall the sampler.",
            "Set ring.dir to a directory on tmpfs, such as /dev/shm/ibpulse or an emptyDir with medium Memory.",
        )
    else:
        yield passed(space.setting, f"needs {needed}, which is available.")


@check("web")
def check_web(facts: Facts) -> Iterator[Finding]:
    """The web server's address is free or used by ibpulse itself."""
    web = facts.machine.web
    address = f"{facts.options.host}:{facts.options.port}"
    if web is None:
        yield passed("web.listen-address", f"{address} could not be checked in time.")
    elif web.holder == "free":
        yield passed("web.listen-address", f"{address} is free.")
    elif web.holder == "ibpulse":
        yield passed("web.listen-address", f"{address} is used by ibpulse.")
        if web.reason:
            yield warned(
                "daemon",
                f"the daemon at {address} has internal errors in {web.reason}.",
                "Samples, statistics or captures may be missing; the daemon retries.",
                "See the notices on its page and its log.",
            )
    elif web.holder == "other" and facts.sampling and facts.sampling.by_daemon:
        yield passed("web.listen-address", f"{address} is in use, probably by the daemon that runs here.")
    else:
        reason = web.reason or "another program uses it"
        yield failed(
            "web.listen-address",
            f"cannot listen on {address}: {reason}.",
            "The daemon cannot start.",
            "Stop the program that uses it, or choose another --web.listen-address.",
        )
