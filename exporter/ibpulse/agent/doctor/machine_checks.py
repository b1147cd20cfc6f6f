"""Checks of the machine: CPU affinity, scheduler, CPU quota, clock, known kernel problems, space, web address."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ibpulse.agent.doctor.facts import Facts, Space
from ibpulse.agent.doctor.finding import Finding, Level, check, passed
from ibpulse.base.text import count_text, names_text, size_text, time_text

MEMORY_TYPES = ("tmpfs", "ramfs", "hugetlbfs", "")

DEFAULT_SLACK_NS = 50_000


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
        yield Finding(
            Level.WARN,
            "sampler.cpu",
            f"{cpu} is not a CPU that this process may use.",
            "The sampler runs on any CPU.",
            "Choose a CPU of the cpuset, or unset sampler.cpu.",
        )
        return
    known = [parse_cpus(place.local_cpus) for place in places if place.local_cpus]
    if known and not any(cpu in cpus for cpus in known):
        yield Finding(
            Level.WARN,
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
        yield Finding(
            Level.WARN,
            "",
            f"sampler.scheduler={asked} was refused; the sampler runs as {actual}.",
            "On a busy node the sampler wakes up later and misses more samples.",
            "Give it CAP_SYS_NICE; in a cgroup on a kernel with CONFIG_RT_GROUP_SCHED that is not sufficient.",
        )
    else:
        yield passed("", f"The sampler runs with the requested scheduling policy: {actual}.")
    slack = sampling.timer_slack_ns
    if slack is not None and slack >= DEFAULT_SLACK_NS and actual != "fifo":
        yield Finding(
            Level.WARN,
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
        yield Finding(
            Level.WARN,
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
        yield Finding(
            Level.WARN,
            "",
            f"The wall clock was stepped {count_text(steps, 'time')} while doctor was running.",
            "Each step leaves missing or repeated data in every history.",
            "Configure the time service to slew the clock instead of stepping it.",
        )
    if clock is None:
        yield passed("", "The state of the kernel's clock is not accessible.")
    elif not clock.synchronised:
        yield Finding(
            Level.WARN,
            "",
            "The wall clock is not synchronised.",
            "Rates are correct, but this node's samples do not line up with those of other nodes.",
            "Run chrony, ntpd, systemd-timesyncd or ptp4l with phc2sys on the host.",
        )
    else:
        yield passed(
            "", f"The wall clock is synchronised, with an error of at most {time_text(clock.max_error_seconds)}."
        )


Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Trap:
    """A known problem of kernels from version `since` up to but not including `until`, if `matters` on this node."""

    name: str
    since: Version
    until: Version | None
    matters: Callable[[Facts], bool]
    level: Level
    sentence: str
    meaning: str
    advice: str = ""


def _has_driver(prefix: str) -> Callable[[Facts], bool]:
    return lambda facts: any(port.identity.driver.startswith(prefix) for port in facts.fabric.ports)


TRAPS: tuple[Trap, ...] = (
    Trap(
        "counters_ext",
        (0, 0),
        (4, 5),
        lambda facts: bool(facts.fabric.ports),
        Level.WARN,
        "Before Linux 4.5 the 64-bit counters are in counters_ext, which ibpulse does not read.",
        "Ports whose other counters have 32 bits are not sampled.",
        "Use a newer kernel.",
    ),
    Trap(
        "hw_counters in pods",
        (0, 0),
        (6, 15),
        lambda facts: facts.tree.is_other_namespace and bool(facts.tree.shared),
        Level.WARN,
        "Before Linux 6.15 a pod's own sysfs shows the device's hw_counters, and reading them can crash the kernel.",
        "ibpulse never reads them, but other tools in pods may. Stable kernels may include the fix of March 2025.",
        "Update the kernel, and let exporters read the host's /sys.",
    ),
    Trap(
        "hw_counters of mlx5",
        (5, 16),
        None,
        _has_driver("mlx5"),
        Level.OK,
        "Since Linux 5.16, each hw_counters read of mlx5 costs a refresh, unless rx_write_requests is read first.",
        "ibpulse reads that file first. Tools that do not cost the firmware 2 to 4 commands per file.",
    ),
    Trap(
        "hw_counters alias",
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
        yield Finding(Level.OK, space.setting, "has enough free space for captures.")
        return
    meaning = "No capture is written. Sampling and metrics are not affected."
    yield Finding(Level.WARN, space.setting, sentence, meaning, advice)


def _judge_space(space: Space, facts: Facts) -> Iterator[Finding]:
    needed = size_text(space.needed_bytes)
    available = facts.machine.available_bytes
    in_memory = space.type in MEMORY_TYPES
    if not space.writable and not (facts.sampling and facts.sampling.by_daemon):
        yield Finding(
            Level.WARN,
            space.setting,
            f"{space.path} is not writable for this user.",
            "The daemon cannot start as this user.",
            f"Set {space.setting} to a writable directory, preferably on tmpfs.",
        )
    elif space.free_bytes is not None and space.free_bytes < space.needed_bytes:
        yield Finding(
            Level.FAIL,
            space.setting,
            f"needs {needed}, but {space.path} has only {size_text(space.free_bytes)} free.",
            "The daemon cannot store its samples.",
            f"Free space for {space.setting}, or shorten sampler.history.",
        )
    elif in_memory and available is not None and available < 2 * space.needed_bytes:
        yield Finding(
            Level.WARN,
            space.setting,
            f"needs {needed} of memory, but only {size_text(available)} is available.",
            "The node may run out of memory.",
            "Shorten sampler.history.",
        )
    elif space.setting == "ring.dir" and not in_memory and facts.tree.is_kernel:
        yield Finding(
            Level.WARN,
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
            yield Finding(
                Level.WARN,
                "daemon",
                f"the daemon at {address} has internal errors in {web.reason}.",
                "Samples, statistics or captures may be missing; the daemon retries.",
                "See the notices on its page and its log.",
            )
    elif web.holder == "other" and facts.sampling and facts.sampling.by_daemon:
        yield passed("web.listen-address", f"{address} is in use, probably by the daemon that runs here.")
    else:
        reason = web.reason or "another program uses it"
        yield Finding(
            Level.FAIL,
            "web.listen-address",
            f"cannot listen on {address}: {reason}.",
            "The daemon cannot start.",
            "Stop the program that uses it, or choose another --web.listen-address.",
        )
