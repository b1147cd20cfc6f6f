"""Faults that the unit tests must find, each with what a user would see of it."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A change of one file: `old`, which occurs exactly once, becomes `new`; one of the `tests` must fail then."""

    name: str
    file: str
    old: str
    new: str
    seen: str
    tests: tuple[str, ...]


SAMPLER = "exporter/ibpulse/agent/sampler/"
SYSFS = "exporter/ibpulse/agent/sysfs/"
RING = "exporter/ibpulse/core/ring/"
STATISTICS = "exporter/ibpulse/core/statistics/"
AGGREGATOR = "exporter/ibpulse/agent/aggregator/"
EVENTS = "exporter/ibpulse/core/events/"
HTTP = "exporter/ibpulse/core/http/"
WEB = "exporter/ibpulse/agent/web/"
OVERLAP = "exporter/ibpulse/workbench/overlap/"
MODELS = "exporter/ibpulse/workbench/models/"

PLANTED = (
    Fault(
        "steady-lateness",
        SAMPLER + "steady.py",
        "late_ns.append(late if late > 0 else 0)",
        "late_ns.append(0)",
        "the wake-up delay is 0 on a machine that samples late",
        ("tests/sampler/test_steady_times.py",),
    ),
    Fault(
        "steady-doubt",
        SAMPLER + "steady.py",
        "if after - before > longest:",
        "if False:",
        "constant traffic has peaks on a device whose reads are slow",
        ("tests/sampler/test_steady_times.py",),
    ),
    Fault(
        "steady-stale-reply",
        SAMPLER + "steady.py",
        "others if tick & 1 else messages",
        "messages",
        "after a reply that nobody took, a port shows its traffic a sample late, for ever",
        ("tests/sampler/test_loop_messages.py",),
    ),
    Fault(
        "netlink-renamed-device",
        SYSFS + "netlink.py",
        "if (reply.device, reply.device_index, reply.port) != (self._device, index, self._port):",
        "if False:",
        "a renamed device is sampled under its old name",
        ("tests/sysfs/test_netlink.py", "tests/sampler/test_loop_messages.py"),
    ),
    Fault(
        "loop-another-device",
        SAMPLER + "source.py",
        "if self._inode and self._folder.stat().st_ino != self._inode:",
        "if False:",
        "after a swap of names and a restart of the sampler, a total grows by the difference of two cards",
        ("tests/sampler/test_counter_file.py",),
    ),
    Fault(
        "starvation-late",
        SAMPLER + "adaptive.py",
        " - (now.late - before.late)",
        "",
        "a device is slow and keeps its interval, because the sampler wakes late",
        ("tests/sampler/test_starvation.py",),
    ),
    Fault(
        "quarantine-steady-since",
        SAMPLER + "quarantine.py",
        "        held.steady_since = None\n        return False",
        "        return False",
        "a device that hangs again during its trial is released at once and stops all others",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "ring-words-before-mark",
        RING + "reader.py",
        """            copies[:, :, at.R_TICK] = records[:, :, at.R_TICK]
            copies[:, :, : at.R_TICK] = records[:, :, : at.R_TICK]
""",
        """            copies[:, :, : at.R_TICK] = records[:, :, : at.R_TICK]
            copies[:, :, at.R_TICK] = records[:, :, at.R_TICK]
""",
        "a sample has the counters of another one, a whole ring earlier: a false reset or peak",
        ("tests/ring/test_reader.py",),
    ),
    Fault(
        "lateness-floor",
        STATISTICS + "lateness.py",
        'series.width("transmit", "end_before"), COINCIDE_MS)',
        'series.width("transmit", "end_before"), 0.0)',
        "the lateness of a node is stated more exactly than the ends of a collective coincide",
        ("tests/fleet/test_lateness.py",),
    ),
    Fault(
        "merge-count-at-first-read",
        STATISTICS + "plausible.py",
        ".astype(np.float64) - 1\n    widths",
        ".astype(np.float64)\n    widths",
        "at the line rate, a counter with a large scale has samples named implausible",
        ("tests/statistics/test_plausible.py",),
    ),
    Fault(
        "steady-doubt-direction",
        SAMPLER + "steady.py",
        "(before, between, after), (transmit, receive))",
        "(before, after, after), (transmit, receive))",
        "a slow read of one direction costs the other direction its sample, and a doubtful value stays",
        ("tests/sampler/test_steady_times.py",),
    ),
    Fault(
        "clock-late-wake-up",
        SAMPLER + "deadlines.py",
        "if max(deadline, now) < earliest:",
        "if deadline < earliest:",
        "a tick that could still be sampled is skipped: missing data after slow reads on a busy machine",
        ("tests/sampler/test_deadlines.py",),
    ),
    Fault(
        "adaptive-relapse",
        SAMPLER + "adaptive.py",
        "now - known.shortened_at < LENGTHENED_SOON_PATIENCES * known.patience",
        "now - known.shortened_at < known.patience",
        "a device that is slow every few minutes changes its interval every few minutes",
        ("tests/sampler/test_adaptive.py",),
    ),
    Fault(
        "lane-starved-supervisor",
        SAMPLER + "lane.py",
        "if now - before < MAX_PAUSE_SECONDS else now",
        "",
        "after a suspend, a healthy device is quarantined as hung",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "quarantine-released-by-a-plan",
        SAMPLER + "quarantine.py",
        "if held.slow and device not in slow]",
        "if device not in slow]",
        "every new plan releases a hung device, which stops all others again",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "quarantine-two-readers",
        SAMPLER + "quarantine.py",
        "if not held.slow or main >= held.generation else None",
        "",
        "a slow device is read by two processes at once, and both write its records",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "quarantine-lost-process",
        SAMPLER + "quarantine.py",
        "lane = self._held[device].lane if device in self._held else None",
        "lane = None",
        "a slow device that hangs gets a second process, and the first is never ended",
        ("tests/sampler/test_quarantine.py",),
    ),
    Fault(
        "window-complete-after-a-change",
        RING + "spans.py",
        "stride = int(block.strides[index, -(MAX_BEFORE + 1) * widest :].max())",
        "stride = widest",
        "after a device recovered, the newest seconds of a window are missing",
        ("tests/ring/test_spans.py",),
    ),
    Fault(
        "window-merges-of-another-port",
        RING + "spans.py",
        "found.merges.of_rows(chosen)",
        "found.merges",
        "merged samples are marked at another port",
        ("tests/ring/test_spans.py",),
    ),
    Fault(
        "rates-reset-of-another-stride",
        STATISTICS + "rates.py",
        "out.reset[some, :, step:] |= found.fell",
        "out.reset[some, :, step:] = found.fell",
        "a counter reset is not reported if the sampling interval changed in the same span",
        ("tests/statistics/test_rates.py",),
    ),
    Fault(
        "merge-counted-twice",
        STATISTICS + "plausible.py",
        "np.where(last < end, self.counts, 0)[kept]",
        "self.counts[kept]",
        "implausible samples at the end of a second are counted twice",
        ("tests/aggregator/test_ports.py",),
    ),
    Fault(
        "peaks-unread-counter",
        STATISTICS + "series.py",
        " or counters[..., 0].min() < 0:",
        ":",
        "the first value of a counter after a failed read is a peak of exabytes",
        ("tests/statistics/test_series.py",),
    ),
    Fault(
        "peaks-below-the-resolution",
        AGGREGATOR + "node.py",
        "np.where(np.isnan(found.peak), np.nan, highest),",
        "highest,",
        "a node whose counters are slow has a peak utilisation, which nothing measured",
        ("tests/aggregator/test_node.py",),
    ),
    Fault(
        "merges-before-the-start",
        AGGREGATOR + "ports.py",
        """\
        if counting:
            np.add.at(self.counts.implausible""",
        """\
        if True:
            np.add.at(self.counts.implausible""",
        "ibpulse_port_implausible_samples_total starts above 0 after a restart",
        ("tests/aggregator/test_ports.py",),
    ),
    Fault(
        "notice-of-another-port",
        AGGREGATOR + "ports.py",
        "for array in vars(self).values():\n            array[row] = 0",
        "self.until[row] = self.bytes_total[row] = 0",
        "a notice says that a new port exceeds its line rate, because an earlier port did",
        ("tests/aggregator/test_ports.py",),
    ),
    Fault(
        "fairness-of-unseen-rails",
        STATISTICS + "balance.py",
        "np.count_nonzero(~np.isnan(each.share))",
        "len(each.share)",
        "rails without data change the fairness of the node",
        ("tests/statistics/test_balance.py",),
    ),
    Fault(
        "job-step-of-the-job-before",
        AGGREGATOR + "jobs.py",
        "min(self._options.traffic_window_ns, age * SECOND_NS)",
        "self._options.traffic_window_ns",
        "a new job has the step time of the job before it",
        ("tests/aggregator/test_jobs.py",),
    ),
    Fault(
        "events-renamed-device",
        EVENTS + "watch.py",
        "min([self._clock.time_ns(), *(time_ns for name, time_ns in seen.items() if name not in existing)])",
        "self._clock.time_ns()",
        "a renamed device appears before it disappears, so the two names overlap",
        ("tests/events/test_watch.py",),
    ),
    Fault(
        "events-appeared-since",
        EVENTS + "watch.py",
        """\
        since_ns = max(since_ns, self._listed_ns)
""",
        "",
        "the time of a port that came back is uncertain by its whole absence",
        ("tests/events/test_watch.py",),
    ),
    Fault(
        "events-clock-of-the-segment",
        EVENTS + "watch.py",
        "(newest - segments[-1][1]) * reader.interval_ns",
        "newest * reader.interval_ns",
        "after a clock step, the time at which an earlier daemon ended is wrong",
        ("tests/events/test_watch.py",),
    ),
    Fault(
        "events-rate-of-an-unread-link",
        EVENTS + "watch.py",
        "rate is None and not (port.active and known)",
        "rate is None and not port.active",
        "a link that cannot be read for a moment loses its line rate, and the utilisation with it",
        ("tests/events/test_watch.py",),
    ),
    Fault(
        "auth-same-site-writes",
        HTTP + "access.py",
        'OWN_SITES = (b"same-origin", b"none")',
        'OWN_SITES = (b"same-origin", b"same-site", b"none")',
        "a page of a sibling domain may delete captures with the browser of a user",
        ("tests/web/test_access.py",),
    ),
    Fault(
        "auth-old-password",
        HTTP + "access.py",
        "key = self._digest(user, stored, password)",
        "key = self._digest(user, password)",
        "a password that was just changed still logs in whoever used it in the last ten minutes",
        ("tests/web/test_access.py",),
    ),
    Fault(
        "auth-damaged-hash",
        HTTP + "web_config.py",
        "_BCRYPT.fullmatch(text)",
        "_BCRYPT.match(text)",
        "a damaged password hash is accepted, and its user can never log in",
        ("tests/web/test_web_config.py",),
    ),
    Fault(
        "queue-lost-place",
        HTTP + "admission.py",
        """\
            elif turn.exception() is None:
                self.leave(client)
""",
        "",
        "each client that disconnects at the wrong moment keeps its place, until every request gets a 503",
        ("tests/web/test_admission.py",),
    ),
    Fault(
        "window-unexplained-of-both-directions",
        "exporter/ibpulse/core/window_values.py",
        "int(np.isin(merges.unexplained[:, 1], plan.directions).sum())",
        "len(merges.unexplained)",
        "a window of one direction counts the implausible samples of the other",
        ("tests/web/test_window.py",),
    ),
    Fault(
        "window-limit-without-uncertainty",
        WEB + "window.py",
        "* (2 if plan.uncertainty else 1)",
        "",
        "a window with uncertainties may have twice the values that the limit allows",
        ("tests/web/test_problems.py",),
    ),
    Fault(
        "alerts-without-fingerprints",
        HTTP + "requests.py",
        "alert.fingerprint or repr(sorted(alert.labels.items()))",
        "alert.fingerprint",
        "the second of two different alerts takes no capture",
        ("tests/web/test_captures.py",),
    ),
    Fault(
        "lateness-clock-of-the-others",
        STATISTICS + "lateness.py",
        "unsure + medians_of_others(unsure[:, np.newaxis])[:, 0]",
        "unsure",
        "the ends of a node are called apart within the error of the clocks",
        ("tests/fleet/test_lateness.py",),
    ),
    Fault(
        "lateness-edges-of-the-others",
        STATISTICS + "lateness.py",
        "(widths + medians_of_others(widths)) if widths.any()",
        "widths if widths.any()",
        "a node is called late within the error of its peers",
        ("tests/fleet/test_lateness.py",),
    ),
    Fault(
        "exposed-outside-of-steps",
        OVERLAP + "exposed.py",
        "outside = (communication - union(begins[1:], ends[1:])).total_ns",
        "outside = communication.total_ns - sum(one.communication_ns for one in each)",
        "overlapping steps make the communication outside of steps too small, even negative",
        ("tests/overlap/test_exposed.py",),
    ),
    Fault(
        "wire-missing-port",
        OVERLAP + "exposed.py",
        "np.isnan(every).any(axis=0) & ~active",
        "np.isnan(every).any(axis=0)",
        "traffic counts as not measured because one port lacks a sample",
        ("tests/overlap/test_exposed.py",),
    ),
    Fault(
        "wire-explained-by-the-trace",
        OVERLAP + "exposed.py",
        "busy = active & within",
        "busy = active",
        "a recording longer than the trace says that other traffic was on the wire",
        ("tests/overlap/test_exposed.py",),
    ),
    Fault(
        "model-latency-of-one-operation",
        MODELS + "prediction.py",
        "latency_seconds=over(lambda flow: flow.operations * latency_seconds(flow.operation, flow.group)),",
        "latency_seconds=over(lambda flow: latency_seconds(flow.operation, flow.group)),",
        "the latency of a source is that of one of its thousands of operations",
        ("tests/models/test_prediction.py",),
    ),
    Fault(
        "model-without-nvlink",
        MODELS + "prediction.py",
        "latency + max(flow.wire / hardware.node_bytes_per_second, flow.nvlink / hardware.nvlink_bytes_per_second)",
        "latency + flow.wire / hardware.node_bytes_per_second",
        "tensor parallelism within a node takes no time",
        ("tests/models/test_prediction.py",),
    ),
    Fault(
        "model-send-within-a-node",
        MODELS + "collectives.py",
        """\
    if not group.crosses_wire:
        between = 0
""",
        "",
        "a send within a node is as slow as over the network",
        ("tests/models/test_collectives.py",),
    ),
)
