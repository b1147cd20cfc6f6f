"""Checks of the samples: resets, resolution, flaps, balance, cost of reads, ticks kept and lost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from ibpulse.analysis.resolution import stands_still
from ibpulse.doctor.facts import Facts, Folders, PortSamples, SamplingResult
from ibpulse.doctor.finding import Finding, Level, check, passed
from ibpulse.doctor.ring_facts import WHOLE_SECONDS
from ibpulse.doctor.tree_facts import FLAPS, REQUESTS
from ibpulse.model import ByteSource, Port, PortId
from ibpulse.sampler.loop import LONGEST_READ
from ibpulse.sampler.sampling_interval import BUSY_SHARE, stride_for
from ibpulse.sysfs.byte_counters import DEFAULT_LIFESPAN_SECONDS, HW_COUNTERS, JIFFY_SECONDS
from ibpulse.text import count_text, errno_text, names_text, rate_text, time_text
from ibpulse.units import GRID_NS, format_duration

MOST_LOST = 0.05

# A device whose reads take this many times the usual is worth a look.
SLOW_DEVICE = 10.0

LEAST_SLOW_SECONDS = 100e-6

ASK_FOR_FIRMWARE = (
    "Ask the vendor for firmware that renews its counters at each read; nothing can be set for it in ibpulse."
)


@check("counting")
def check_counting(facts: Facts) -> Iterator[Finding]:
    """Counters that fell, reads that failed."""
    sampling = facts.sampling
    if sampling is None:
        if facts.no_sampling and facts.options.sample and any(port.source for port in facts.fabric.ports):
            yield Finding(
                Level.FAIL, "", f"Nothing could be sampled: {facts.no_sampling}.", "A daemon would fail the same way."
            )
        return
    whole = True
    for port, one in sampling.ports.items():
        for finding in _judge_counting(port, one, sampling):
            whole = False
            yield finding
    if whole and sampling.ports:
        source = "a running daemon" if sampling.by_daemon else "a sampler of doctor's own"
        yield passed(
            "",
            f"{count_text(len(sampling.ports), 'port')} counted without a reset or a failed read in "
            f"{sampling.seconds:.1f} s, sampled every {format_duration(sampling.interval_ns)} by {source}.",
        )


def _judge_counting(port: PortId, one: PortSamples, sampling: SamplingResult) -> Iterator[Finding]:
    there = {found.id for found in sampling.fabrics[-1].ports}
    away = port not in there or port.device in sampling.health.quarantined_devices
    if one.resets:
        times = "once" if one.resets == 1 else f"{one.resets} times"
        yield Finding(
            Level.WARN,
            str(port),
            f"was reset: its counters fell {times} in the last {sampling.history_seconds:.0f} s.",
            "The samples across the reset are holes; totals count on.",
            "Find what resets the card or clears its counters: its driver, firmware, or another tool.",
        )
    if (one.errors or one.left_alone) and not one.gone and not away:
        rest = ", and is left alone for a minute at a time" if one.left_alone else ""
        yield Finding(
            Level.FAIL,
            str(port),
            f"has reads that fail with {errno_text(one.last_errno)}{rest}.",
            "What was not read is a hole, never 0.",
            "Look in the kernel's log for errors of its driver.",
        )
    elif not one.samples and not away and not one.gone:
        yield Finding(
            Level.FAIL, str(port), f"gave no sample in {sampling.seconds:.1f} s.", "It is a hole in every number."
        )


@check(
    "resolution",
    detail="The time between two changes of a counter while traffic flows. Without traffic it is unknown.",
)
def check_resolution(facts: Facts) -> Iterator[Finding]:
    """How often the counters really change; the kernel's cache."""
    for port in facts.fabric.ports:
        if port.source is not None:
            folders = facts.tree.folders.get(port.id, Folders())
            yield _judge_resolution(port, facts.sampling, folders)


def _judge_resolution(port: Port, sampling: SamplingResult | None, folders: Folders) -> Finding:
    one = sampling.ports.get(port.id) if sampling else None
    lifespan = f" (lifespan {folders.lifespan_ms} ms)" if folders.lifespan_ms is not None else ""
    cached = port.source is not None and any(f"/{HW_COUNTERS}/" in path for path in port.source.transmit)
    if cached and port.source and _is_slow_device(port.source, folders):
        return _judge_slow_device(
            port.id, port.source, one.stride * sampling.interval_ns / 1e9 if sampling and one else None
        )
    by_cache = (
        "Its bytes are in hw_counters, which the kernel renews every "
        f"{time_text(port.source.refresh_seconds)} at best{lifespan}."
        if cached and port.source
        else ""
    )
    if sampling is None or one is None:
        return passed(str(port.id), by_cache or "Its counters were not sampled, so how often they change is not known.")
    planned = one.stride * sampling.interval_ns / 1e9
    if one.resolution_seconds is not None and stands_still(one.resolution_seconds, planned):
        return Finding(
            Level.WARN,
            str(port.id),
            f"has counters that are refreshed only every {time_text(one.resolution_seconds)}, "
            f"and is sampled every {time_text(planned)}.",
            "Bursts shorter than that cannot be seen; nothing finer is computed from this port.",
            ASK_FOR_FIRMWARE,
        )
    if cached and one.stride > 1:
        return Finding(
            Level.WARN,
            str(port.id),
            f"is sampled every {time_text(planned)}. {by_cache}".rstrip(),
            "Sampled faster, a cached counter would show 0, 2x, 0, 2x; bursts shorter than this cannot be seen.",
            "As root, write 0 into the port's hw_counters/lifespan; that is for every reader of the node.",
        )
    if one.resolution_seconds is None:
        return passed(str(port.id), "carries too little to tell how often its counters change: not known.")
    return passed(str(port.id), f"has counters that change at every sample of {time_text(planned)}.")


def _is_slow_device(source: ByteSource, folders: Folders) -> bool:
    """Whether it is the device, and not the kernel's cache, that renews the counters so seldom."""
    lifespan = DEFAULT_LIFESPAN_SECONDS if folders.lifespan_ms is None else folders.lifespan_ms / 1000
    return source.refresh_seconds > lifespan + JIFFY_SECONDS


def _judge_slow_device(port: PortId, source: ByteSource, planned: float | None) -> Finding:
    how = f"The device itself renews its counters every {time_text(source.refresh_seconds)}."
    if planned is None:
        return passed(str(port), how)
    return Finding(
        Level.WARN,
        str(port),
        f"is sampled every {time_text(planned)}. {how}",
        "Bursts shorter than that cannot be seen, and one sample can show no renewal, the next one two.",
        ASK_FOR_FIRMWARE,
    )


@check("links")
def check_links(facts: Facts) -> Iterator[Finding]:
    """Links that went down or recovered while doctor looked."""
    if facts.sampling is None:
        return
    still = True
    for port in facts.sampling.fabrics[-1].ports:
        states = [seen.state for fabric in facts.sampling.fabrics for seen in fabric.ports if seen.id == port.id]
        changes = [state for index, state in enumerate(states) if index == 0 or state != states[index - 1]]
        counts = facts.counts.get(port.id)
        risen = [name for name in FLAPS if counts and counts.rise(name)]
        # one that is down now has its line among the rails
        if port.active and (len(changes) > 1 or risen):
            still = False
            told = " then ".join(changes) if len(changes) > 1 else f"{names_text(risen)} rose"
            yield Finding(
                Level.WARN,
                str(port.id),
                f"flapped while it was looked at: {told}.",
                "While a link is down its traffic stops, and the job waits or fails.",
                "Look at cable, transceiver and switch port.",
            )
    if still and facts.sampling.fabrics[-1].ports:
        yield passed("", f"No link that is up now went down in {facts.sampling.seconds:.1f} s.")


@check(
    "balance",
    detail=f"The rails over the last {WHOLE_SECONDS} s, compared with the median of their siblings, by the rules "
    "of the daemon. A rail that carries nothing is *idle*. If its queue pairs nevertheless count requests, its "
    "counters are *stuck*. If nothing else on the port distinguishes the two, the finding says so.",
)
def check_balance(facts: Facts) -> Iterator[Finding]:
    """Idle and slow rails, and counters that are stuck while traffic flows."""
    sampling = facts.sampling
    rails = [port.id for port in sampling.fabrics[-1].ports if port.rail and port.active] if sampling else []
    seen = {port: one for port in rails if sampling and (one := sampling.ports.get(port)) and one.rates}
    if sampling is None or not seen:
        return
    carried = {port: sum(one.rates or ()) for port, one in seen.items()}
    if max(carried.values()) <= facts.options.active_bytes_per_second:
        yield passed("", "No traffic flows on the rails, so how evenly they carry it is not known.")
        return
    even = True
    for port, one in seen.items():
        others = statistics.median([rate for other, rate in carried.items() if other != port] or [0.0])
        finding = _judge_balance(port, one, carried[port], others, facts)
        if finding is not None:
            even = False
            yield finding
    if even:
        yield passed(
            "", f"{count_text(len(seen), 'rail')} carry {say_spread(list(carried.values()))} each, both ways together."
        )


def say_spread(rates: Sequence[float]) -> str:
    """The least and the most of some rates."""
    least, most = rate_text(min(rates)), rate_text(max(rates))
    return least if least == most else f"{least} to {most}"


def _judge_balance(port: PortId, one: PortSamples, rate: float, others: float, facts: Facts) -> Finding | None:
    if one.standing is None or not (one.standing.idle or one.standing.slow):
        return None
    if one.standing.slow:
        return Finding(
            Level.WARN,
            str(port),
            f"is slow: it carries {rate_text(rate)}, the median of the other rails {rate_text(others)}.",
            "The job waits for its slowest rail.",
            "Look at its errors, its PCIe path, its cable and its switch port.",
        )
    counts = facts.counts.get(port)
    requests = sum(counts.rise(name) for name in REQUESTS) if counts else 0
    if requests:
        return Finding(
            Level.FAIL,
            str(port),
            f"has counters that are stuck: its bytes stand still, yet it received {count_text(requests, 'request')}.",
            "Its traffic is missing in every number of the node.",
            "Reset the card, and ask the vendor about its firmware.",
        )
    doubt = (
        "" if counts and any(name in counts.end for name in REQUESTS) else " Or its counters are stuck: nothing tells."
    )
    return Finding(
        Level.WARN,
        str(port),
        f"is idle: it carries {rate_text(rate)}, the median of the other rails {rate_text(others)}.{doubt}",
        "The job does not use this rail, and loses its bandwidth.",
        "Look at the job's choice of devices (NCCL_IB_HCA and the like), and at the GPU next to it.",
    )


@check(
    "reads",
    detail=f"A read that takes longer than {LONGEST_READ:.0%} of the interval counts as missing, because the time at "
    "which its counter was taken is too uncertain. The shortest reliable interval is therefore the shortest one that "
    f"divides a second, that is long enough for a p99 read to fit in {LONGEST_READ:.0%} of it, and for the p99 of all "
    f"reads of a sample, done one after the other in a single thread, to fit in {BUSY_SHARE:.0%} of it.",
    of_machine=True,
)
def check_reads(facts: Facts) -> Iterator[Finding]:
    """Cost of a read, and the shortest honest interval on this node."""
    sampling = facts.sampling
    costs = {port: one.reads for port, one in sampling.ports.items() if one.reads} if sampling else {}
    if sampling is None or not costs:
        return
    p50 = statistics.median(reads.p50 for reads in costs.values())
    slowest = max(costs, key=lambda port: costs[port].p99)
    tick = sum(reads.both_p99 for reads in costs.values())
    shortest = find_shortest_interval(max(reads.p99 for reads in costs.values()), tick)
    cost = (
        f"One read takes {time_text(p50)} (median), {time_text(costs[slowest].p99)} at p99 on {slowest}, "
        f"{time_text(max(reads.worst for reads in costs.values()))} at worst; "
        f"all of a tick {time_text(tick)} at p99. "
    )
    if shortest is None or shortest > sampling.interval_ns:
        honest = "longer than 1s" if shortest is None else format_duration(shortest)
        yield Finding(
            Level.WARN,
            "",
            f"{cost}The shortest honest interval is {honest}, "
            f"sampler.interval is {format_duration(sampling.interval_ns)}.",
            "A read that takes over a tenth of the interval is a hole; what remains is true, but not whole.",
            f"Set sampler.interval to {honest}." if shortest else "Look for the device that is so slow.",
        )
    else:
        yield passed("", f"{cost}The shortest honest interval is {format_duration(shortest)}.")
    yield from _find_lengthened(facts, sampling)
    usual = statistics.median(reads.p99 for reads in costs.values())
    for port, reads in costs.items():
        if len(costs) > 2 and reads.p99 > SLOW_DEVICE * usual and reads.p99 > LEAST_SLOW_SECONDS:
            yield Finding(
                Level.WARN,
                str(port),
                f"takes {time_text(reads.p99)} for a read at p99, the other ports {time_text(usual)}.",
                "The firmware of this card is busy or sick; its slow reads hold up the others' ticks.",
                "Look in the kernel's log for its driver, and for what else asks this card.",
            )


def _find_lengthened(facts: Facts, sampling: SamplingResult) -> Iterator[Finding]:
    """Ports that the sampler reads more seldom than it should, because their reads take so long."""
    for port in facts.fabric.ports:
        one = sampling.ports.get(port.id)
        if one and port.source and one.stride > stride_for(port.source.refresh_seconds, sampling.interval_ns):
            yield Finding(
                Level.WARN,
                str(port.id),
                f"is sampled every {time_text(one.stride * sampling.interval_ns / 1e9)}, since its reads take so long.",
                "What it shows is true at that interval; shorter bursts are not seen.",
                "Set sampler.interval to what the node can keep, or look for what makes this card slow.",
            )


def find_shortest_interval(read_seconds: float, tick_seconds: float) -> int | None:
    """The shortest interval in ns whose tenth holds a read and whose half holds all of a tick; None above a second."""
    least = 1e9 * max(read_seconds / LONGEST_READ, tick_seconds / BUSY_SHARE)
    return next((interval for interval in GRID_NS if interval >= least), None)


@check(
    "ticks",
    detail=f"More than {MOST_LOST:.0%} missed samples is a warning. A sampler that is short of CPU time misses "
    "samples, but never invents any.",
    of_machine=True,
)
def check_ticks(facts: Facts) -> Iterator[Finding]:
    """Ticks kept and lost, and how late they were."""
    sampling = facts.sampling
    if sampling is None or not sampling.ticks:
        return
    lost = sampling.missed_ticks / (sampling.ticks + sampling.missed_ticks)
    late = "".join(
        f", {time_text(value)} late at most {words}"
        for value, words in ((sampling.lateness_p50, "half of the time"), (sampling.lateness_p99, "at p99"))
        if value is not None
    )
    sentence = f"{sampling.ticks} of {sampling.ticks + sampling.missed_ticks} ticks were kept{late}."
    # a device that hangs costs the others some ticks, and has a line of its own
    if lost > MOST_LOST and not sampling.health.quarantined_devices:
        yield Finding(
            Level.WARN,
            "",
            sentence,
            "What was not sampled is a hole; averages stay true, peaks may be missed.",
            "Give the sampler CPU time: no CPU limit, sampler.scheduler=fifo, a longer sampler.interval.",
        )
    else:
        yield passed("", sentence)
