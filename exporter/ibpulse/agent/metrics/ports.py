"""The metrics of ports: identity, totals, windows and traffic."""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter

from ibpulse.agent.aggregator.snapshot import (
    UTILIZATION_BUCKETS,
    DirectionSnapshot,
    PortSnapshot,
    PortTraffic,
    Snapshot,
    UtilizationMoments,
)
from ibpulse.core.answers.summary import DirectionStatistics, RailStatistics
from ibpulse.core.events.watch import DISAPPEARED, KnownPort
from ibpulse.core.metrics.row import Labels, Metric, Subject
from ibpulse.core.model import DIRECTIONS, PROBLEMS, Port, PortId

PORT_LABELS = ("device", "port")
IDENTITY_LABELS = (
    *("link_layer", "rate", "guid", "board", "hca_type", "firmware", "driver", "pci_address", "numa_node", "netdev"),
    *("kind", "gpu", "gpu_distance"),
)
_identity = attrgetter(*IDENTITY_LABELS)


@lru_cache(maxsize=1024)
def port_values(port: PortId) -> tuple[str, str]:
    """The values of the labels of a port."""
    return port.device, str(port.port)


def _infos(snapshot: Snapshot) -> list[tuple[Labels, PortSnapshot]]:
    return [
        ((*port_values(port.port.id), *_identity(port.port.identity), *_use(port)), port) for port in snapshot.ports
    ]


def _use(port: PortSnapshot) -> tuple[str, str, str]:
    found = port.port
    return "true" if found.rail else "false", found.role, found.source.name if found.source else ""


def _ports(snapshot: Snapshot) -> list[tuple[Labels, PortSnapshot]]:
    return [(port_values(port.port.id), port) for port in snapshot.ports]


def _sampled(snapshot: Snapshot) -> list[tuple[Labels, PortSnapshot]]:
    return [(port_values(port.port.id), port) for port in snapshot.ports if port.directions]


INFO = Subject((*PORT_LABELS, *IDENTITY_LABELS, "rail", "role", "source"), _infos)
PORT = Subject(PORT_LABELS, _ports)


def _rail_ports(snapshot: Snapshot) -> list[tuple[Labels, Port]]:
    return [(port_values(port.port.id), port.port) for port in snapshot.ports if port.port.rail]


def _existing(snapshot: Snapshot) -> list[tuple[Labels, KnownPort]]:
    return [(port_values(known.port.id), known) for known in snapshot.known_ports if known.state is not None]


def _problems(snapshot: Snapshot) -> list[tuple[Labels, KnownPort]]:
    return [
        ((*port_values(known.port.id), problem), known)
        for known in snapshot.known_ports
        if (problem := known.state.problem if known.state else DISAPPEARED)
    ]


EXISTING = Subject(PORT_LABELS, _existing)
RAIL_PORT = Subject(PORT_LABELS, _rail_ports)
PROBLEM = Subject((*PORT_LABELS, "problem"), _problems)
# a port with a byte source and a slot in the ring
SAMPLED = Subject(PORT_LABELS, _sampled)

_PORT_ROWS = (
    INFO.info(
        "ibpulse_port_info",
        "Identity of the port as reported by the kernel, kind of function, nearest GPUs and their distance, whether "
        "the port is a rail (its role is compute), its role, and the source of its byte counters. Always 1.",
    ),
    PORT.gauge("ibpulse_port_up", "1 while the port is ACTIVE, otherwise 0.", lambda port: int(port.port.active)),
    PORT.gauge(
        "ibpulse_port_rate_bytes_per_second",
        "Data rate of one direction after line coding. Absent while the port is not ACTIVE, because the kernel then "
        "shows a placeholder.",
        lambda port: port.port.rate_bytes_per_second,
        "bytes_per_second",
    ),
    RAIL_PORT.gauge(
        "ibpulse_port_trained_down",
        "1 while the rail is ACTIVE at a lower rate than other rails of its make, otherwise 0.",
        lambda port: int(port.trained_down),
    ),
    SAMPLED.counter(
        "ibpulse_port_observed_seconds_total",
        "Time covered by good samples (both directions read at both ends, no reset) while the port was ACTIVE.",
        lambda port: port.observed_seconds,
        "seconds",
    ),
    SAMPLED.counter(
        "ibpulse_port_resets_total",
        "Samples at which a byte counter was lower than before (a counter reset, never counted as traffic), and times "
        "at which another device took the name: its totals begin at 0.",
        lambda port: port.resets,
    ),
    SAMPLED.counter(
        "ibpulse_port_jumps_total",
        "Samples at which a byte counter had increased by more than the line carries in the time since the sample "
        "before and a second, or four sampling intervals, more: a corrupt counter, never counted as traffic.",
        lambda port: port.jumps,
    ),
    SAMPLED.gauge(
        "ibpulse_port_sampling_interval_seconds",
        "Time between two samples of the port. Longer than the sampler's interval for counters that the kernel caches.",
        lambda port: port.sampling_interval_seconds,
        "seconds",
    ),
    SAMPLED.gauge(
        "ibpulse_port_effective_resolution_seconds",
        "Lower quartile of the time between changes of the port's counters under traffic, over the last minute. Absent "
        "until enough changes were seen. A value above the sampling interval means that the device refreshes its "
        "counters slowly, or that the traffic consists of regular bursts of a single sample.",
        lambda port: port.effective_resolution_seconds,
        "seconds",
    ),
    SAMPLED.gauge(
        "ibpulse_port_left_alone",
        "1 while counter files of the port that failed repeatedly are no longer sampled, only retried from time to "
        "time.",
        lambda port: int(port.left_alone),
    ),
    SAMPLED.counter(
        "ibpulse_sampler_read_errors_total",
        "Reads of the port's byte counters that failed.",
        lambda port: port.read_errors,
    ),
    SAMPLED.counter(
        "ibpulse_sampler_uncertain_reads_total",
        "Samples discarded because their time is uncertain: reading the port took over a tenth of the sampling "
        "interval, or came less than half an interval after a delayed sample.",
        lambda port: port.uncertain_reads,
    ),
    SAMPLED.counter(
        "ibpulse_port_implausible_samples_total",
        "Samples above the line rate, because the counter or its read was late. Each is merged with the fewest samples "
        "before it, at most four, whose mean is possible.",
        lambda port: port.implausible_samples,
    ),
    EXISTING.counter(
        "ibpulse_port_down_seconds_total",
        "Time since this process started during which the port's link was not ACTIVE, read every second.",
        lambda known: known.down_seconds,
        "seconds",
    ),
    EXISTING.counter(
        "ibpulse_port_state_changes_total",
        "Changes of the port's link to ACTIVE or from it. One that came and went between two readings counts as two if "
        "the kernel's link_downed counter shows it.",
        lambda known: known.state_changes,
    ),
    PROBLEM.gauge(
        "ibpulse_port_problem",
        f"1 while the port has no samples for this reason: {', '.join(PROBLEMS)}. A port that disappeared is listed "
        "until the history has passed it.",
        lambda known: 1,
    ),
)


def _direction_rows(way: int) -> tuple[Metric, ...]:
    """The rows of one direction of a port: totals, utilisation sums over good samples, rolling windows."""
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"

    def directions(snapshot: Snapshot) -> list[tuple[Labels, DirectionSnapshot]]:
        return [(port_values(port.port.id), port.directions[way]) for port in snapshot.ports if port.directions]

    direction = Subject(PORT_LABELS, directions)
    totals = (
        direction.counter(
            f"{name}_bytes_total",
            f"Bytes in the {word} direction since this process started; continues across missing data and counter "
            "resets.",
            lambda side: side.bytes_total,
            "bytes",
        ),
        direction.counter(
            f"{name}_active_seconds_total",
            f"Time covered by good samples whose {word} rate was above the threshold. Its rate ÷ the rate of observed "
            "seconds is the duty cycle.",
            lambda side: side.active_seconds,
            "seconds",
        ),
    )
    return (*totals, *_utilization_rows(way), *_window_rows(way))


def _utilization_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"

    def moments(snapshot: Snapshot) -> list[tuple[Labels, UtilizationMoments]]:
        placed = [port for port in snapshot.ports if port.directions]
        return [(port_values(port.port.id), sums) for port in placed if (sums := port.directions[way].moments)]

    # ports whose data rate is known
    rated = Subject(PORT_LABELS, moments)
    return (
        rated.counter(
            f"{name}_utilization_seconds_total",
            f"Sum of {word} utilisation x time over good samples. Its rate ÷ the rate of observed seconds is the mean "
            "utilisation.",
            lambda sums: sums.utilization_seconds,
            "seconds",
        ),
        rated.counter(
            f"{name}_utilization_squared_seconds_total",
            f"Sum of squared {word} utilisation x time over good samples, for the variance over any time range.",
            lambda sums: sums.utilization_squared_seconds,
            "seconds",
        ),
        rated.counter(
            f"{name}_active_utilization_seconds_total",
            f"Sum of {word} utilisation x time over active samples.",
            lambda sums: sums.active_utilization_seconds,
            "seconds",
        ),
        rated.counter(
            f"{name}_active_utilization_squared_seconds_total",
            f"Sum of squared {word} utilisation x time over active samples, for their coefficient of variation over "
            "any time range.",
            lambda sums: sums.active_utilization_squared_seconds,
            "seconds",
        ),
        rated.histogram(
            f"{name}_utilization_ratio",
            f"Utilisation of the {word} direction at every tick covered by a good sample. Sampled by ibpulse's own "
            "timer, independent of scrapes.",
            lambda sums: sums.histogram,
            "ratio",
            UTILIZATION_BUCKETS,
        ),
    )


def _window_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]
    name = f"ibpulse_port_{word}"

    def windows(snapshot: Snapshot) -> list[tuple[Labels, DirectionStatistics]]:
        return [
            ((*port_values(port.port.id), window), values)
            for port in snapshot.ports
            if port.directions
            for window, values in zip(snapshot.windows, port.directions[way].windows, strict=True)
        ]

    window = Subject((*PORT_LABELS, "window"), windows)
    return (
        window.gauge(
            f"{name}_peak_bytes_per_second",
            f"Highest {word} rate of a single sample in the window. Scrapes do not reset it.",
            lambda values: values.peak_bytes_per_second,
            "bytes_per_second",
        ),
        window.gauge(
            f"{name}_duty_cycle_ratio",
            f"Fraction of the window's observed time during which the {word} rate was above the threshold.",
            lambda values: values.duty_cycle_ratio,
            "ratio",
        ),
        window.gauge(
            f"{name}_burstiness_cv",
            f"Coefficient of variation of the active {word} samples in the window, at the port's sampling interval.",
            lambda values: values.burstiness_cv,
        ),
    )


ROWS = (*_PORT_ROWS, *_direction_rows(0), *_direction_rows(1))


def _with_traffic(snapshot: Snapshot) -> list[tuple[Labels, PortTraffic]]:
    return [(port_values(port.port.id), port.traffic) for port in snapshot.ports if port.traffic]


def _rails(snapshot: Snapshot) -> list[tuple[Labels, RailStatistics]]:
    return [(labels, traffic.rail) for labels, traffic in _with_traffic(snapshot) if traffic.rail]


TRAFFIC = Subject(PORT_LABELS, _with_traffic)
RAIL = Subject(PORT_LABELS, _rails)


def _saturation_rows(way: int) -> tuple[Metric, ...]:
    word = DIRECTIONS[way]

    def state(traffic: PortTraffic) -> int | None:
        saturated = traffic.saturated[way]
        return None if saturated is None else int(saturated)

    return (
        TRAFFIC.gauge(
            f"ibpulse_port_{word}_saturated",
            f"1 while the median {word} utilisation of the last saturation window is at or above the saturation level.",
            state,
        ),
        TRAFFIC.counter(
            f"ibpulse_port_{word}_saturated_seconds_total",
            f"Observed time during which the {word} direction was saturated.",
            lambda traffic: traffic.saturated_seconds[way],
            "seconds",
        ),
    )


TRAFFIC_ROWS = (
    TRAFFIC.counter(
        "ibpulse_port_bursts_total",
        "Bursts of the port's bandwidth (transmit + receive) that began after an idle gap. Those that begin in "
        "three or more missing samples are not seen: divide by ibpulse_port_observed_seconds_total to get the least "
        "number per second.",
        lambda traffic: traffic.bursts,
    ),
    TRAFFIC.counter(
        "ibpulse_port_burst_seconds_total",
        "Time the port spent in bursts, including bursts of unknown length. Divide by "
        "ibpulse_port_observed_seconds_total to get the share of the time.",
        lambda traffic: traffic.burst_seconds,
        "seconds",
    ),
    RAIL.gauge(
        "ibpulse_port_rail_share_ratio",
        "The rail's share of the bytes of all rails of its job, or of the rails without a job, over the last seconds "
        "with traffic; 1/n if all n of them carry the same.",
        lambda rail: rail.rail_share_ratio,
        "ratio",
    ),
    RAIL.gauge(
        "ibpulse_port_rail_idle",
        "1 while the rail carries less than 5 % of the median of the other rails of its job, or of those without a "
        "job, and they are active, over 3 s.",
        lambda rail: int(bool(rail.rail_idle)),
    ),
    RAIL.gauge(
        "ibpulse_port_rail_slow",
        "1 while the rail carries less than 75 % of the median of the other rails of its job, or of those without a "
        "job, in its mean or its mean while active, over 10 s, and is not idle.",
        lambda rail: int(bool(rail.rail_slow)),
    ),
    *_saturation_rows(0),
    *_saturation_rows(1),
)
