"""Checks of what was measured: samples, the result of a benchmark, and the event log of the running daemon."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ibpulse.agent.doctor.facts import (
    EventFacts,
    Facts,
    Finding,
    Folders,
    Level,
    PortSamples,
    SamplingResult,
    check,
    failed,
    passed,
    warned,
)
from ibpulse.agent.doctor.ports import FLAPS, REQUESTS
from ibpulse.agent.doctor.samples import WHOLE_SECONDS
from ibpulse.agent.doctor.tree import find_renamed, silent_devices
from ibpulse.agent.sampler.adaptive import BUSY_SHARE, stride_of_source
from ibpulse.agent.sampler.loop import MAX_READ
from ibpulse.agent.sampler.signals import FIRMWARE_SHARE
from ibpulse.agent.sysfs.byte_counters import DEFAULT_LIFESPAN_SECONDS, HW_COUNTERS, JIFFY_SECONDS
from ibpulse.base.text import count_text, errno_text, moment_text, names_text, rate_text, time_text
from ibpulse.base.units import GRID_NS, SECOND_NS, format_duration
from ibpulse.core.model import ByteSource, Port, PortId
from ibpulse.core.statistics.rates import stands_still
from ibpulse.core.statistics.signs import MAX_APART_NS

MAX_DOWNS = 2
MAX_LOST = 0.05
# A device whose reads take this many times longer than those of the others is reported.
SLOW_DEVICE = 10.0
MIN_SLOW_SECONDS = 100e-6
# fewer readings of signals may only have waited for the processor
MIN_SLOW_SIGNALS = 10
ASK_FOR_FIRMWARE = (
    "Ask the vendor for firmware that updates its counters on every read; no ibpulse setting can change this."
)


@check("counting")
def check_counting(facts: Facts) -> Iterator[Finding]:
    """Counter resets and failed reads."""
    sampling = facts.sampling
    if sampling is None:
        if facts.no_sampling and facts.options.sample and any(port.source for port in facts.fabric.ports):
            yield failed("", f"Sampling failed: {facts.no_sampling}.", "A daemon would fail the same way.")
        return
    whole = True
    for port, one in sampling.ports.items():
        for finding in _judge_counting(port, one, sampling):
            whole = False
            yield finding
    if whole and sampling.ports:
        source = "the running daemon" if sampling.by_daemon else "doctor itself"
        strides = sorted({one.stride for one in sampling.ports.values()})
        intervals = [format_duration(stride * sampling.interval_ns) for stride in strides]
        every = intervals[0] if len(intervals) == 1 else f"{intervals[0]} to {intervals[-1]}"
        yield passed(
            "",
            f"{count_text(len(sampling.ports), 'port')} had no counter reset and no failed read in "
            f"{sampling.seconds:.1f} s, sampled every {every} by {source}.",
        )


def _judge_counting(port: PortId, one: PortSamples, sampling: SamplingResult) -> Iterator[Finding]:
    there = {found.id for found in sampling.fabrics[-1].ports}
    away = port not in there or port.device in sampling.health.quarantined_devices
    if one.resets:
        times = "once" if one.resets == 1 else f"{one.resets} times"
        yield warned(
            str(port),
            f"was reset: its counters dropped {times} in the last {sampling.history_seconds:.0f} s.",
            "The samples around the reset are missing; totals continue across it.",
            "Find out what resets the card or clears its counters: its driver, its firmware, or another tool.",
        )
    if (one.errors or one.left_alone) and not one.gone and not away:
        rest = "; the sampler retries it once a minute" if one.left_alone else ""
        yield failed(
            str(port),
            f"has failing reads: {errno_text(one.last_errno)}{rest}.",
            "Failed reads become missing samples, never zeros.",
            "Check the kernel log for errors from its driver.",
        )
    elif not one.samples and not away and not one.gone:
        yield failed(
            str(port),
            f"produced no sample in {sampling.seconds:.1f} s.",
            "Its data is missing from all metrics.",
        )


@check(
    "resolution",
    detail="The time between two changes of a counter while traffic flows; unknown without traffic.",
)
def check_resolution(facts: Facts) -> Iterator[Finding]:
    """How often the counters really change, and the kernel's cache."""
    for port in facts.fabric.ports:
        if port.source is not None:
            folders = facts.tree.folders.get(port.id, Folders())
            found = _judge_resolution(port, facts.sampling, folders)
            yield replace(found, sentence=found.sentence + _judge_signals(port, facts.sampling))


def _judge_signals(port: Port, sampling: SamplingResult | None) -> str:
    """A sentence on a port whose signals are more than a second apart, because it is sampled seldom."""
    one = sampling.ports.get(port.id) if sampling and port.signals else None
    if not sampling or not one or one.stride * FIRMWARE_SHARE * sampling.interval_ns <= MAX_APART_NS:
        return ""
    return " Its congestion counters are read too seldom for signs of what limits it."


def _judge_resolution(port: Port, sampling: SamplingResult | None, folders: Folders) -> Finding:
    one = sampling.ports.get(port.id) if sampling else None
    lifespan = f" (lifespan {folders.lifespan_ms} ms)" if folders.lifespan_ms is not None else ""
    if port.source is not None and port.source.netlink:
        return _judge_message(port.id, port.source, sampling, one)
    cached = port.source is not None and any(f"/{HW_COUNTERS}/" in path for path in port.source.transmit)
    if cached and port.source and _is_slow_device(port.source, folders):
        return _judge_slow_device(
            port.id, port.source, one.stride * sampling.interval_ns / 1e9 if sampling and one else None
        )
    by_cache = (
        "Its byte counters are in hw_counters, which the kernel refreshes at most every "
        f"{time_text(port.source.refresh_seconds)}{lifespan}."
        + (f" They are not read by netlink: {port.source.refusal}." if port.source.refusal else "")
        if cached and port.source
        else ""
    )
    if sampling is None or one is None:
        return passed(str(port.id), by_cache or "was not sampled; how often its counters change is unknown.")
    planned = one.stride * sampling.interval_ns / 1e9
    if one.resolution_seconds is not None and stands_still(one.resolution_seconds, planned):
        return warned(
            str(port.id),
            f"is sampled every {time_text(planned)}, but its counters are refreshed only every "
            f"{time_text(one.resolution_seconds)}.",
            "Bursts shorter than that cannot be seen, and no finer statistics are computed for this port.",
            ASK_FOR_FIRMWARE,
        )
    if cached and one.stride > 1:
        return warned(
            str(port.id),
            f"is sampled every {time_text(planned)}. {by_cache}".rstrip(),
            "Sampled faster, a cached counter would show 0, 2x, 0, 2x. Bursts shorter than this cannot be seen.",
            "As root, write 0 to the port's hw_counters/lifespan; this affects every program that reads them.",
        )
    if one.resolution_seconds is None:
        return passed(str(port.id), "carries too little traffic to measure how often its counters change.")
    return passed(str(port.id), f"has counters that change with every sample, each {time_text(planned)}.")


def _judge_message(
    port: PortId, source: ByteSource, sampling: SamplingResult | None, one: PortSamples | None
) -> Finding:
    """A port whose counters are asked for by netlink."""
    how = "Its byte counters are in hw_counters, and are read by netlink, which asks the device at each request."
    if sampling is None or one is None:
        return passed(str(port), how)
    planned = one.stride * sampling.interval_ns / SECOND_NS
    cost = f" A reading takes {time_text(one.reads.p50)}, {time_text(one.reads.p99)} at p99." if one.reads else ""
    changes = "" if one.resolution_seconds is None else f" They change every {time_text(one.resolution_seconds)}."
    sentence = f"is sampled every {time_text(planned)}. {how}{cost}{changes}"
    if one.resolution_seconds is not None and stands_still(one.resolution_seconds, planned):
        return warned(
            str(port),
            sentence,
            "Bursts shorter than that cannot be seen, and no finer statistics are computed for this port.",
            ASK_FOR_FIRMWARE,
        )
    if source.pause_seconds * SECOND_NS > sampling.interval_ns:
        sentence += " It is not asked more often, because this node has many such ports; ports.sources changes that."
    return passed(str(port), sentence)


def _is_slow_device(source: ByteSource, folders: Folders) -> bool:
    """Whether the device itself, not the kernel's cache, limits how often the counters change."""
    lifespan = DEFAULT_LIFESPAN_SECONDS if folders.lifespan_ms is None else folders.lifespan_ms / 1000
    return source.refresh_seconds > lifespan + JIFFY_SECONDS


def _judge_slow_device(port: PortId, source: ByteSource, planned: float | None) -> Finding:
    how = f"The device itself updates its counters every {time_text(source.refresh_seconds)}."
    if planned is None:
        return passed(str(port), how)
    return warned(
        str(port),
        f"is sampled every {time_text(planned)}. {how}",
        "Bursts shorter than that cannot be seen, and one sample can miss an update that the next one then includes.",
        ASK_FOR_FIRMWARE,
    )


@check("links")
def check_links(facts: Facts) -> Iterator[Finding]:
    """Links that went down or recovered while doctor was running."""
    if facts.sampling is None:
        return
    still = True
    for port in facts.sampling.fabrics[-1].ports:
        states = [seen.state for fabric in facts.sampling.fabrics for seen in fabric.ports if seen.id == port.id]
        changes = [state for index, state in enumerate(states) if index == 0 or state != states[index - 1]]
        counts = facts.counts.get(port.id)
        risen = [name for name in FLAPS if counts and counts.rise(name)]
        # the check of the rails reports links that are down now
        if port.active and (len(changes) > 1 or risen):
            still = False
            told = " then ".join(changes) if len(changes) > 1 else f"{names_text(risen)} rose"
            yield warned(
                str(port.id),
                f"flapped while doctor was running: {told}.",
                "While a link is down its traffic stops, and the job waits or fails.",
                "Check the cable, the transceiver and the switch port.",
            )
    if still and facts.sampling.fabrics[-1].ports:
        yield passed("", f"No active link flapped in {facts.sampling.seconds:.1f} s.")


@check(
    "balance",
    detail=f"Compares each rail's traffic over the last {WHOLE_SECONDS} s with the median of the other rails, by the "
    "daemon's rules; rails of different jobs are not compared. A rail without traffic is *idle*. If its queue pairs "
    "still count requests, its counters are *stuck*. If no other counter of the port can distinguish the two, the "
    "finding says so.",
)
def check_balance(facts: Facts) -> Iterator[Finding]:
    """Idle and slow rails, and byte counters that are stuck while traffic flows."""
    sampling = facts.sampling
    rails = [port.id for port in sampling.fabrics[-1].ports if port.rail and port.active] if sampling else []
    seen = {port: one for port in rails if sampling and (one := sampling.ports.get(port)) and one.rates}
    if sampling is None or not seen:
        return
    carried = {port: sum(one.rates or ()) for port, one in seen.items()}
    if max(carried.values()) <= facts.options.active_bytes_per_second:
        yield passed("", "The rails carry no traffic, so their balance is unknown.")
        return
    even = True
    for port, one in seen.items():
        jobs = sampling.owners.get(port)
        siblings = [rate for other, rate in carried.items() if other != port and sampling.owners.get(other) == jobs]
        others = statistics.median(siblings or [0.0])
        finding = _judge_balance(port, one, carried[port], others, facts)
        if finding is not None:
            even = False
            yield finding
    if even:
        yield passed(
            "",
            f"{count_text(len(seen), 'rail')} carry {say_spread(list(carried.values()))} each (both directions).",
        )


def say_spread(rates: Sequence[float]) -> str:
    """The lowest and the highest rate as text, or one of them if they read the same."""
    least, most = rate_text(min(rates)), rate_text(max(rates))
    return least if least == most else f"{least} to {most}"


def _judge_balance(port: PortId, one: PortSamples, rate: float, others: float, facts: Facts) -> Finding | None:
    if one.standing is None or not (one.standing.rail_idle or one.standing.rail_slow):
        return None
    if one.standing.rail_slow:
        return warned(
            str(port),
            f"is slow: it carries {rate_text(rate)}; the median of the other rails is {rate_text(others)}.",
            "The job waits for its slowest rail.",
            "Check its errors, its PCIe path, its cable and its switch port.",
        )
    counts = facts.counts.get(port)
    requests = sum(counts.rise(name) for name in REQUESTS) if counts else 0
    if requests:
        return failed(
            str(port),
            f"has stuck byte counters: they do not change, although it received {count_text(requests, 'request')}.",
            "Its traffic is missing from all metrics of the node.",
            "Reset the card, and ask the vendor about its firmware.",
        )
    doubt = (
        ""
        if counts and any(name in counts.end for name in REQUESTS)
        else " Its counters may also be stuck; this port has no other counter to tell the two apart."
    )
    return warned(
        str(port),
        f"is idle: it carries {rate_text(rate)}; the median of the other rails is {rate_text(others)}.{doubt}",
        "The job does not use this rail and loses its bandwidth.",
        "Check the job's device selection (such as NCCL_IB_HCA) and the GPU next to this rail.",
    )


@check(
    "reads",
    detail=f"A read that takes longer than {MAX_READ:.0%} of the interval counts as missing, because its time is "
    "too uncertain. An interval is reliable if it divides one second, if a p99 read fits in "
    f"{MAX_READ:.0%} of it, and if the p99 of all reads of one sample, done one after the other in a single "
    f"thread, fits in {BUSY_SHARE:.0%} of it.",
    of_machine=True,
)
def check_reads(facts: Facts) -> Iterator[Finding]:
    """Read times, and the shortest reliable interval on this node."""
    sampling = facts.sampling
    costs = {port: one.reads for port, one in sampling.ports.items() if one.reads} if sampling else {}
    if sampling is None or not costs:
        return
    p50 = statistics.median(reads.p50 for reads in costs.values())
    slowest = max(costs, key=lambda port: costs[port].p99)
    tick = sum(reads.both_p99 for reads in costs.values())
    shortest = find_shortest_interval(max(reads.p99 for reads in costs.values()), tick)
    cost = (
        f"One read takes {time_text(p50)} (median), {time_text(costs[slowest].p99)} (p99, on {slowest}), "
        f"{time_text(max(reads.worst for reads in costs.values()))} (maximum); "
        f"all reads of a sample take {time_text(tick)} (p99). "
    )
    if shortest is None or shortest > sampling.interval_ns:
        reliable = "longer than 1s" if shortest is None else format_duration(shortest)
        yield warned(
            "",
            f"{cost}The shortest reliable interval is {reliable}, but "
            f"sampler.interval is {format_duration(sampling.interval_ns)}.",
            "A read that takes over a tenth of the interval is a missing sample; the others are correct.",
            f"Set sampler.interval to {reliable}." if shortest else "Find the slow device and check its driver.",
        )
    else:
        yield passed("", f"{cost}The shortest reliable interval is {format_duration(shortest)}.")
    yield from _find_lengthened(facts, sampling)
    usual = statistics.median(reads.p99 for reads in costs.values())
    for port, reads in costs.items():
        if len(costs) > 2 and reads.p99 > SLOW_DEVICE * usual and reads.p99 > MIN_SLOW_SECONDS:
            yield warned(
                str(port),
                f"has slow reads: {time_text(reads.p99)} at p99, compared with {time_text(usual)} on the other ports.",
                "The firmware of this card is busy or faulty; its slow reads delay the samples of the other ports.",
                "Check the kernel log for errors from its driver, and find out what else queries this card.",
            )


def _find_lengthened(facts: Facts, sampling: SamplingResult) -> Iterator[Finding]:
    """Ports whose bytes or congestion counters are read less often than planned because their reads are slow."""
    for port in facts.fabric.ports:
        one = sampling.ports.get(port.id)
        if one and port.source and one.stride > stride_of_source(port.source, sampling.interval_ns):
            yield warned(
                str(port.id),
                f"is sampled only every {time_text(one.stride * sampling.interval_ns / 1e9)}, as its reads are slow.",
                "Its data is correct at that interval, but shorter bursts are not seen.",
                "Set a longer sampler.interval, or find out what makes this card slow.",
            )
        if one and one.slow_signals >= MIN_SLOW_SIGNALS:
            yield warned(
                str(port.id),
                f"had {one.slow_signals:,} readings of its congestion counters that hung or took over a quarter of the "
                "interval; they rest after each.",
                "Signs of what limits it are unknown during rests; its bytes are not affected.",
                "Find out what makes this card slow, or set sampler.signals=0s.",
            )


def find_shortest_interval(read_seconds: float, tick_seconds: float) -> int | None:
    """The shortest interval in ns with a tenth for one read and half for all reads of a sample; None above a second."""
    least = 1e9 * max(read_seconds / MAX_READ, tick_seconds / BUSY_SHARE)
    return next((interval for interval in GRID_NS if interval >= least), None)


@check(
    "ticks",
    detail=f"More than {MAX_LOST:.0%} missed samples is a warning. A sampler that is short of CPU time misses "
    "samples, but never invents any.",
    of_machine=True,
)
def check_ticks(facts: Facts) -> Iterator[Finding]:
    """Samples captured and missed, and the sampler's wake-up delay."""
    sampling = facts.sampling
    if sampling is None or not sampling.ticks:
        return
    lost = sampling.missed_ticks / (sampling.ticks + sampling.missed_ticks)
    late = "".join(
        f"; {words} wake-up delay up to {time_text(value)}"
        for value, words in ((sampling.lateness_p50, "median"), (sampling.lateness_p99, "p99"))
        if value is not None
    )
    sentence = f"{sampling.ticks} of {sampling.ticks + sampling.missed_ticks} samples captured{late}."
    # a hanging device costs the others some samples, and is reported by a check of its own
    if lost > MAX_LOST and not sampling.health.quarantined_devices:
        yield warned(
            "",
            sentence,
            "Averages stay correct, but peaks may be missed.",
            "Give the sampler more CPU time: remove the CPU limit, set sampler.scheduler=fifo or a longer "
            "sampler.interval.",
        )
    else:
        yield passed("", sentence)


@check(
    "events",
    detail=f"Only with a running daemon. More than {MAX_DOWNS} link-downs of a port within an hour are a warning. The "
    "check `devices` reports ports that disappeared, with the time from the event log.",
)
def check_events(facts: Facts) -> Iterator[Finding]:
    """The running daemon's event log: renamed and replaced devices, unreadable ports, flapping links, clock steps."""
    log = facts.events
    if log is None:
        return
    if log.problem:
        yield warned(
            "",
            f"The {log.problem}.",
            "Doctor does not know what happened before it ran.",
            "Run doctor as a user who may read ring.dir, and with the version of the daemon.",
        )
        return
    if not log.events:
        yield passed("", "The event log is empty.")
        return
    findings = [
        *_find_renamed(facts),
        *_find_replaced(log),
        *_find_unreadable(facts, log),
        *_find_flaps(log),
        *_find_steps(log),
    ]
    yield from findings
    if all(finding.level is Level.OK for finding in findings):
        events = count_text(len(log.events), "event")
        yield passed("", f"{events} since {moment_text(min(event.time_ns for event in log.events))}.")


def _find_renamed(facts: Facts) -> Iterator[Finding]:
    for name, (event, new) in find_renamed(facts).items():
        yield warned(
            name,
            f"was renamed at {moment_text(event.time_ns)}: its GUID is now that of {new}.",
            "Its earlier data has the old name, also in Prometheus.",
            "Make the names permanent with a udev rule, or adapt ports.roles and your queries to the new name.",
        )


def _find_replaced(log: EventFacts) -> Iterator[Finding]:
    for event in {event.subject: event for event in log.recent("replaced")}.values():
        yield warned(
            event.subject,
            f"is another device since {moment_text(event.time_ns)}: {event.text.partition(': ')[2]}.",
            "Earlier data with its name, also in Prometheus, is that of the device before.",
            "If no card was replaced, make the names permanent with a udev rule.",
        )


def _find_unreadable(facts: Facts, log: EventFacts) -> Iterator[Finding]:
    here, silent = {str(port.id) for port in facts.fabric.ports}, silent_devices(facts)
    for name, event in log.unreadable_ports().items():
        # the check of the devices reports silent ones
        if name in here and event.device not in silent:
            reason = event.text.removeprefix(f"{name}: ").rstrip(".")
            yield warned(
                name,
                f"cannot be read by the daemon since {moment_text(event.time_ns)}: {reason}.",
                "Its samples or its state are missing since then.",
                "Check the kernel log for errors from its driver. If doctor can read it, check the daemon's user.",
            )


def _find_flaps(log: EventFacts) -> Iterator[Finding]:
    last = {event.subject: event for event in log.recent("link-down", "link-flap")}
    for name, downs in log.link_downs().items():
        sentence = f"went down {count_text(downs, 'time')} in the last hour, last at {moment_text(last[name].time_ns)}."
        if downs > MAX_DOWNS:
            yield warned(
                name,
                sentence,
                "While a link is down its traffic stops, and the job waits or fails.",
                "Check the cable, the transceiver and the switch port.",
            )
        else:
            yield passed(name, sentence)


def _find_steps(log: EventFacts) -> Iterator[Finding]:
    steps = log.recent("clock-step")
    if steps:
        yield warned(
            "",
            f"The wall clock was stepped {count_text(len(steps), 'time')} in the last hour, last at "
            f"{moment_text(steps[-1].time_ns)}.",
            "Each step leaves missing or repeated data in every history.",
            "Configure the time service to slew the clock instead of stepping it.",
        )
