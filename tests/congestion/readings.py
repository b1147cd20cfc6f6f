"""Gives simulated counters to ibpulse as its sampler would read them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ibpulse.agent.sysfs.error_counters import choose_signals
from ibpulse.core.defaults import ACTIVE_BYTES_PER_SECOND
from ibpulse.core.signals import SignalSource
from ibpulse.core.statistics import gains, signs
from ibpulse.core.statistics.signs import RailSamples, find_rail_signs
from tests.congestion.drivers import COUNTERS, MISSING, Observation
from tests.congestion.network import TICKS_PER_READING

UNKNOWN = signs.SIGNS[-1]
LABELS = signs.SIGNS
START_NS, TICK_NS = 1_700_000_000_000_000_000, 10_000_000
# the daemon reads the state and the rate of a link every second
STATUS_TICKS = 100
# kernel module and link layer
DRIVERS = {
    "mlx5 InfiniBand": ("mlx5_core", "InfiniBand"),
    "mlx5 InfiniBand, waiting full": ("mlx5_core", "InfiniBand"),
    "mlx5 RoCE": ("mlx5_core", "Ethernet"),
    "mlx5 RoCE, pauses only": ("mlx5_core", "Ethernet"),
    "bnxt_re": ("bnxt_en", "Ethernet"),
    "ionic": ("ionic", "Ethernet"),
    "irdma": ("ice", "Ethernet"),
    "efa": ("efa", "Unknown"),
    "rxe": ("rdma_rxe", "Ethernet"),
}
# families whose bytes change once a second: such ports are sampled so seldom that readings are more than a second apart
SELDOM_READ, SELDOM = ("bnxt_re",), 11
OF_PORT = {"port_xmit_wait", "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors"}


@cache
def find_signals(family: str) -> SignalSource:
    """The signals that ibpulse chooses for a port whose files are those of the family."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COUNTERS[family]:
            file = Path(folder, "counters" if name in OF_PORT else "hw_counters", name)
            file.parent.mkdir(exist_ok=True)
            file.write_text("0\n")
        driver, link_layer = DRIVERS[family]
        source = choose_signals(folder, link_layer, driver, netlink=False)
    assert source is not None
    return source


def read_port(seen: Observation, port: int) -> gains.SignalReadings:
    """All readings of the signals of a port, at the wall times of the samples before them; a skipped one is missing."""
    source = find_signals(seen.scenario.family)
    values = np.stack([seen.counters[Path(file).name][port] for file in source.files], axis=-1)
    if seen.scenario.family in SELDOM_READ:
        values[np.arange(len(values)) % SELDOM > 0] = MISSING
    counters = np.where(values == MISSING, gains.MISSING, values.astype(np.uint64))
    ticks = port + TICKS_PER_READING * np.arange(len(values))
    return gains.SignalReadings(
        source.signals,
        START_NS + ticks * TICK_NS,
        np.broadcast_to(seen.reading_times[port][:, None], counters.shape),
        counters,
    )


def sample_port(seen: Observation, port: int) -> RailSamples:
    """The transmit samples of a port; the first of a run has no rate."""
    seconds = np.diff(seen.sample_times[port]) / 1e9
    ticks = np.arange(1, len(seconds) + 1)
    first = seen.scenario.seed * 7 % STATUS_TICKS
    read = first + (ticks - first) // STATUS_TICKS * STATUS_TICKS
    rate = seen.link_rate[port, np.maximum(read, 0)]
    return RailSamples(
        START_NS + TICK_NS,
        TICK_NS,
        np.diff(seen.transmit[port]) / seconds,
        seconds,
        np.where(rate > 0, rate, seen.scenario.nominal),
        rate > 0,
        DRIVERS[seen.scenario.family][1] == "InfiniBand",
        seen.scenario.nominal,
    )


def label(seen: Observation, port: int) -> Any:
    """The label between each two readings of a port, as an index of `LABELS`."""
    samples, readings = sample_port(seen, port), read_port(seen, port)
    found = find_rail_signs(samples, readings, ACTIVE_BYTES_PER_SECOND, None, float(seen.usual_peak[port]))
    ticks = port + TICKS_PER_READING * np.arange(len(readings.wall_ns) - 1)
    codes = found.codes[np.searchsorted(found.readings.bounds, ticks)]
    return np.array([LABELS.index(signs.NAMES[code] or UNKNOWN) for code in codes])
