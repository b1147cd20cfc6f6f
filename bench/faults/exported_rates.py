"""Compares the rates, peaks and totals that a daemon exports with the traffic that really flowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.faults.testbed import HEIGHT, PORTS, WINDOW_SECONDS, Testbed
from tests.running import Metrics

# documented: a peak is overstated by this part at most
PEAK_UNCERTAINTY = 0.01
# rates are float32 in the shortest form
ROUNDING = 1e-4
# more than the age of the newest second that the invariants allow, and the time of a scrape
SCRAPE_AGE_SECONDS = 6.0


@dataclass(frozen=True)
class Excess:
    """A number above the truth; `device` is empty for the node."""

    at: float
    device: str
    what: str
    value: float
    bound: float


@dataclass
class ExportedRates:
    """Collects `excesses` from scrapes and windows; `now` is always the monotonic clock in seconds."""

    testbed: Testbed
    excesses: list[Excess] = field(default_factory=list)
    _bytes: dict[tuple[int, str, str], tuple[float, float]] = field(default_factory=dict)
    # the last totals of devices whose comparison begins anew; None before the first
    _outdated: dict[tuple[int, str, str], float | None] = field(default_factory=dict)

    def rebase(self, device: str) -> None:
        """Compare the totals of a device with the truth from now on, because they include traffic that it invented.

        They are compared once they have moved: while the device is left alone, they lack what flowed since.
        """
        for key in [key for key in list(self._bytes) if key[1] == device]:
            del self._bytes[key]
            self._outdated[key] = None

    def compare_scrape(self, now: float, metrics: Metrics, life: int) -> None:
        """Compare the peaks and totals of a scrape in a life of the daemon, whose totals begin at 0."""
        self._compare_peaks(now, metrics)
        self._compare_bytes(now, metrics, life)

    def _compare_peaks(self, now: float, metrics: Metrics) -> None:
        window = f"{WINDOW_SECONDS}s"
        node = "ibpulse_node_bandwidth_peak_bytes_per_second"
        bounds = {node: 2 * PORTS * HEIGHT}
        bounds |= {f"ibpulse_port_{way}_peak_bytes_per_second": HEIGHT for way in ("transmit", "receive")}
        for name, highest in bounds.items():
            for labels, value in metrics.find(name, window=window).items():
                self._compare(now, dict(labels).get("device", ""), name, value, highest * (1 + PEAK_UNCERTAINTY))

    def _compare_bytes(self, now: float, metrics: Metrics, life: int) -> None:
        for way in ("transmit", "receive"):
            for labels, value in metrics.find(f"ibpulse_port_{way}_bytes_total").items():
                device = dict(labels)["device"]
                if self._is_outdated((life, device, way), value):
                    continue
                since, first = self._bytes.setdefault((life, device, way), (now - SCRAPE_AGE_SECONDS, value))
                flowed = self.testbed.true_bytes(since, now)
                self._compare(now, device, f"{way} bytes in {now - since:.0f} s", value - first, flowed)

    def _is_outdated(self, key: tuple[int, str, str], value: float) -> bool:
        if key not in self._outdated:
            return False
        before, self._outdated[key] = self._outdated[key], value
        if before in (None, value):
            return True
        del self._outdated[key]
        return False

    def compare_window(self, now: float, window: dict[str, Any]) -> None:
        """Compare each sample of a window of mean rates with their uncertainty."""
        for series in window["series"]:
            device, what = series["port"].rpartition(":")[0], f"{series['direction']} rate of a sample"
            for value, uncertainty in zip(series["values"], series["uncertainty"], strict=True):
                if value is not None:
                    self._compare(now, device, what, value, HEIGHT * (1 + (uncertainty or 0.0)))

    def _compare(self, now: float, device: str, what: str, value: float, bound: float) -> None:
        if value > bound * (1 + ROUNDING):
            self.excesses.append(Excess(now, device, what, value, bound))
