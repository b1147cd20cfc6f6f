"""The aggregator's settings, and its results, frozen.

None means unknown; the only NaN is a job's step that was not found. Tuples named `windows` are parallel to
`Snapshot.windows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ibpulse.base.units import MILLISECOND_NS, SECOND_NS
from ibpulse.core.answers.summary import DirectionStatistics, NodeConclusions, NodeRails, NodeWindow, RailStatistics
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND, TRAFFIC_WINDOW_NS
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.jobs import Key, PlacedJob
from ibpulse.core.metrics.row import Histogram
from ibpulse.core.model import CaptureCounts, Fabric, Port, PortId, SamplerHealth
from ibpulse.core.ring import layout
from ibpulse.core.statistics.signature import MoeSaturationOptions, SaturationOptions, SignatureOptions
from ibpulse.core.statistics.steps.phases import Phase

# labels of metrics, which rules and dashboards name
WINDOWS_NS = (10 * SECOND_NS, 60 * SECOND_NS, 300 * SECOND_NS)
TIMESCALES_NS = (10 * MILLISECOND_NS, 50 * MILLISECOND_NS, 100 * MILLISECOND_NS, SECOND_NS)


@dataclass(frozen=True, slots=True)
class AggregatorOptions:
    """Threshold for active traffic, rolling windows (whole seconds), and time scales of the node's burstiness.

    A time scale that is not a whole number of ticks, or does not divide one second, has no value. `traffic_window_ns`
    is the window for the step period and the signature. Rail balance uses the first of `balance_spans_seconds` with
    active rails: the short span detects a dead rail within seconds, the longer spans cover steps with long idle gaps.
    `xmit_wait_tick_bytes` is the number of bytes that a port can send during one count of its stall counter, None if
    unknown.
    """

    active_bytes_per_second: float = ACTIVE_BYTES_PER_SECOND
    windows_ns: tuple[int, ...] = WINDOWS_NS
    timescales_ns: tuple[int, ...] = TIMESCALES_NS
    traffic_window_ns: int = TRAFFIC_WINDOW_NS
    balance_spans_seconds: tuple[int, ...] = (3, 10, 60)
    signature: SignatureOptions = field(default_factory=SignatureOptions)
    saturation: SaturationOptions = field(default_factory=SaturationOptions)
    moe_saturation: MoeSaturationOptions = field(default_factory=MoeSaturationOptions)
    xmit_wait_tick_bytes: int | None = None

    def window_seconds(self) -> tuple[int, ...]:
        """The windows in seconds."""
        return tuple(period_ns // SECOND_NS for period_ns in self.windows_ns)

    def longest_seconds(self) -> int:
        """The longest span of any rolling value."""
        return max(*self.window_seconds(), self.traffic_window_ns // SECOND_NS)


# upper bounds of all histograms, without infinity

# fine near 0 (0.002 of 400 Gb/s is the default threshold for active traffic) and near 1
UTILIZATION_BUCKETS = (0.002, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
# half a tick of 10 ms above whole ticks, so that jitter does not move a run to another bucket
DURATION_BUCKETS = (0.005, 0.015, 0.025, 0.035, 0.055, 0.105, 0.155, 0.255, 0.505, 1.005, 2.005, 5.005, 15.005, 60.005)
# the sampler itself counts into these two
LATENESS_BUCKETS = tuple(bound / SECOND_NS for bound in layout.LATENESS_BOUNDS_NS)
TICK_DURATION_BUCKETS = tuple(bound / SECOND_NS for bound in layout.DURATION_BOUNDS_NS)
# the states of a rail in one second
CARRYING, QUIET, IDLE, DOWN = "carrying", "quiet", "idle", "down"


@dataclass(frozen=True, slots=True)
class UtilizationMoments:
    """Sums of utilisation x seconds since the process started."""

    utilization_seconds: float
    utilization_squared_seconds: float
    active_utilization_seconds: float
    active_utilization_squared_seconds: float
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class DirectionSnapshot:
    """One direction of a port; `bytes_total` is None until the counter has been read once."""

    bytes_total: int | None
    active_seconds: float
    moments: UtilizationMoments | None
    windows: tuple[DirectionStatistics, ...]


@dataclass(frozen=True, slots=True)
class PortSnapshot:
    """One port; `directions` (transmit, receive) is empty if it has no byte source or no slot in the ring.

    `resets` includes the `replacements` of its device by another one. `balance` compares a rail with the others.
    `saturated` has one value per direction, None while the data rate is unknown.
    """

    port: Port
    directions: tuple[DirectionSnapshot, ...] = ()
    observed_seconds: float = 0.0
    resets: int = 0
    replacements: int = 0
    jumps: int = 0
    read_errors: int = 0
    uncertain_reads: int = 0
    implausible_samples: int = 0
    left_alone: bool = False
    sampling_interval_seconds: float = 0.0
    effective_resolution_seconds: float | None = None
    bursts: int = 0
    burst_seconds: float = 0.0
    balance: RailStatistics | None = None
    saturated: tuple[bool | None, ...] = (None, None)
    saturated_seconds: tuple[float, ...] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CounterTotal:
    """One error counter: its metric `name`, its `file`, its total across resets, and whether it is saturated."""

    name: str
    file: str
    total: int
    saturated: bool


@dataclass(frozen=True, slots=True)
class PortCounters:
    """The last readings of a port's error counters; `stalled_ratio` is None if unknown."""

    port: PortId
    totals: tuple[CounterTotal, ...]
    stalled_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """The traffic of the sum over the rails.

    `bursts` began in `burst_watched_seconds`; in the rest of the time, samples are missing.
    `utilization` is None until the line rate of the node is known.
    """

    utilization: Histogram | None
    burst_durations: Histogram
    gap_durations: Histogram
    bursts: int
    burst_watched_seconds: float
    burst_bytes: float
    concluded: NodeConclusions
    saturated: bool
    saturated_seconds: float
    moe_saturated: bool
    moe_saturated_seconds: float


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The rails of one job over the last minute, or since the job was first seen.

    `step_seconds` is None before the first search, NaN if no period was found; while the job is silent, it is that of
    its last steps.
    """

    job_id: str
    duty_cycle_ratio: float | None
    active_bytes_per_second: float | None
    fairness: float | None
    step_seconds: float | None
    last_traffic_ns: int | None


@dataclass(frozen=True, slots=True)
class PortLimits:
    """The seconds in which a rail transmitted, by what limited it, and the usual peak of transmit; NaN if unknown."""

    port: PortId
    seconds: Mapping[str, float]
    usual_peak: float


@dataclass(frozen=True, slots=True)
class Observation:
    """The traffic of one second, which ended at `end_tick`.

    `rate_bytes_per_second` is the sum over all rails, None if too many samples are missing. `rails` maps port names to
    the state of each rail: carrying, quiet (like all rails), idle (while others carry traffic) or down.
    """

    end_tick: int
    end_wall_ns: int
    rate_bytes_per_second: float | None
    step_seconds: float | None
    signature: str
    moe_saturated: bool
    rails: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SamplerSnapshot:
    """Counts of the main sampler since the ring was created."""

    interval_seconds: float
    ticks: int
    missed_ticks: int
    clock_steps: int
    cpu_seconds: float
    lateness: Histogram
    tick_duration: Histogram


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete state at one second. `end_tick` is its last tick; before the first, it is 0 and `end_wall_ns` None.

    The daemon adds what its other parts know: `health` of the sampler, the `captures` of the flight recorder,
    `known_ports`, also those that disappeared within the history, `event_counts` of each kind since the process
    started, `expected_rails`, None where nobody counts them, `jobs_known`, false if there may be other jobs, and
    `job_stalls`, whether each job that has moved bytes is stalled.

    `phases` are those found since the last snapshot, in ticks, and `seconds` those aggregated since then.
    `last_traffic_ns` is the wall time of the last active sample of the sum over the rails, None if there was none in
    the history. `jobs` is None if no source can list the jobs; some have `job_statistics`.
    """

    end_tick: int
    end_wall_ns: int | None
    windows: tuple[str, ...]
    fabric: Fabric
    sampler: SamplerSnapshot
    ports: tuple[PortSnapshot, ...]
    rails: NodeRails
    node: tuple[NodeWindow, ...]
    traffic: NodeTraffic
    skipped_seconds: int
    counters: tuple[PortCounters, ...] = ()
    health: SamplerHealth = field(default_factory=SamplerHealth)
    captures: CaptureCounts = field(default_factory=CaptureCounts)
    known_ports: tuple[KnownPort, ...] = ()
    event_counts: Mapping[str, int] = field(default_factory=dict)
    expected_rails: int | None = None
    phases: tuple[Phase, ...] = ()
    seconds: tuple[Observation, ...] = ()
    last_traffic_ns: int | None = None
    jobs: tuple[PlacedJob, ...] | None = None
    jobs_known: bool = True
    job_statistics: tuple[JobSnapshot, ...] = ()
    job_stalls: Mapping[str, bool] = field(default_factory=dict)
    limits: tuple[PortLimits, ...] = ()

    def statistics_of(self, key: Key) -> JobSnapshot | None:
        """The statistics of a job; None if it has none, for example because it shares a port."""
        # the statistics are by id, which two schedulers may both use
        owners = [job.claim.key for job in self.jobs or () if job.claim.id == key[1]]
        found = [each for each in self.job_statistics if each.job_id == key[1]]
        return found[0] if owners == [key] and found else None
