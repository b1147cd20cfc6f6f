"""A daemon that reads `hw_counters`, as on kernels before 7.2, and a fast square wave of real traffic beside the truth.

`guest/truth.py` reads the same traffic from `counters/`, which this kernel computes at every read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from tests.campaigns.vm.daemon import OTHER_WEB_PORT, Daemon
from tests.campaigns.vm.link import SENDER, Link, Traffic
from tests.campaigns.vm.machine import Machine

ON_MS, OFF_MS, CYCLES = 20, 20, 150
WAVE_SECONDS = (ON_MS + OFF_MS) * CYCLES / 1000
WAVE_HERTZ = 1000 / (ON_MS + OFF_MS)
ATTEMPTS = 4
ACTIVE_BYTES_PER_SECOND = 1e6
HW_ONLY = ("env", "PYTHONPATH=/guest/hw_only")
OPTIONS = ("--sampler.scheduler=fifo", "--slow.interval=2s", "--analysis.active-threshold=1MB/s", "--ring.dir=/run/hw")


@contextmanager
def serving(machine: Machine, *options: str) -> Iterator[Daemon]:
    """A daemon that reads `hw_counters`."""
    machine.run("rm -rf /run/hw && install -d -o 65534 -g 65534 /run/hw")
    daemon = Daemon(machine, [*OPTIONS, *options], OTHER_WEB_PORT, HW_ONLY)
    try:
        yield daemon
    finally:
        assert daemon.program.stop() == 0, daemon.program.output()


def wait_for_interval(daemon: Daemon, seconds: float, device: str = SENDER) -> None:
    """Return once a device is sampled this often; on a busy host its reads are slow for a while."""
    name = "ibpulse_port_sampling_interval_seconds"
    daemon.machine.wait_until(lambda: daemon.read_metric(name, device=device) == seconds, f"{device} every {seconds} s")


def count_bytes(link: Link, *daemons: Daemon) -> list[list[float]]:
    """Bytes of some traffic, transmitted and received, as counted by the kernel and by each of the daemons."""
    machine = daemons[0].machine
    files = [f"/sys/class/infiniband/{SENDER}/ports/1/hw_counters/{name}" for name in ("sent_bytes", "rcvd_bytes")]

    def read() -> list[list[float]]:
        totals = [[daemon.read_total(way, SENDER) for way in ("transmit", "receive")] for daemon in daemons]
        return [[float(text) for text in machine.run(f"cat {' '.join(files)}").stdout.split()], *totals]

    before = read()
    traffic = Traffic(messages=300, message_bytes=65536)
    link.send(traffic)
    for daemon in daemons:
        daemon.wait_for_totals(SENDER)
    moved = [[new - old for new, old in zip(*pair, strict=True)] for pair in zip(read(), before, strict=True)]
    assert moved[0][0] >= traffic.data_bytes()
    return moved


@dataclass(frozen=True, slots=True)
class Wave:
    """What samples of 10 ms show of a square wave."""

    mean: float
    duty: float
    cv: float
    burst_ms: float
    strongest_hertz: float
    missing: float
    repeated: float

    @classmethod
    def of(cls, rates: npt.NDArray[np.float64]) -> Wave:
        known = rates[~np.isnan(rates)]
        active = rates > ACTIVE_BYTES_PER_SECOND
        points = 8 * len(rates)
        spectrum = np.abs(np.fft.rfft(np.nan_to_num(rates - known.mean()), points))
        return cls(
            mean=float(known.mean()),
            duty=float((known > ACTIVE_BYTES_PER_SECOND).mean()),
            cv=float(known.std() / known.mean()),
            burst_ms=10 * float(np.mean([len(list(run)) for key, run in groupby(active) if key])),
            strongest_hertz=float(np.fft.rfftfreq(points, 0.01)[spectrum.argmax()]),
            missing=float(np.isnan(rates).mean()),
            repeated=float((np.diff(rates) == 0).mean()),
        )


def bin_truth(read: list[tuple[int, int]], first_ms: int, ticks: int) -> npt.NDArray[np.float64]:
    """The rate of each tick of 10 ms, NaN without a read at both ends."""
    rates = np.full(ticks, np.nan)
    for (before_ns, before), (now_ns, now) in pairwise(read):
        tick = now_ns // 10_000_000 - first_ms // 10
        if 0 <= tick < ticks and now_ns - before_ns < 15_000_000:
            rates[tick] = (now - before) / (now_ns - before_ns) * 1e9
    return rates


def send_wave(link: Link, daemon: Daemon) -> tuple[Wave, Wave]:
    """What a daemon shows of a square wave, and what is true of it; again if a busy host sent something else."""
    for _ in range(ATTEMPTS):
        shown, true = _send_wave(link, daemon)
        print(f"shown {shown}\ntrue  {true}")
        if abs(true.strongest_hertz - WAVE_HERTZ) < 0.5:
            return shown, true
    raise AssertionError(f"each of {ATTEMPTS} times this host was too busy to send the wave")


def _send_wave(link: Link, daemon: Daemon) -> tuple[Wave, Wave]:
    machine = daemon.machine
    receiver, sender = link.start(Traffic(messages=10_000_000, message_bytes=4096), options=("-t", "16"))
    machine.wait_until(lambda: link.read_counter(SENDER, "port_xmit_data") > 100_000, "traffic flows")
    counter = f"/sys/class/infiniband/{SENDER}/ports/1/counters/port_xmit_data"
    read = f"python3 /guest/truth.py {counter} 4 {WAVE_SECONDS + 6} > /tmp/truth.json"
    pulse = f"python3 /guest/pulse.py {sender.pid} {ON_MS} {OFF_MS} {CYCLES}"
    runs = json.loads(machine.run(f"{read} & {pulse}; wait", timeout_seconds=240).stdout)
    sender.kill()
    receiver.kill()
    first_ms, last_ms = (runs[place][0] // 10_000_000 * 10 for place in (0, -1))
    rates = daemon.read_rates(SENDER, **{"from": str(first_ms), "to": str(last_ms)})
    truth = json.loads(machine.run("cat /tmp/truth.json").stdout)
    shown = np.array([np.nan if rate is None else rate for rate in rates])
    return Wave.of(shown), Wave.of(bin_truth(truth, first_ms, (last_ms - first_ms) // 10))
