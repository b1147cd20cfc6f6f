"""`ibpulse serve` in the machine, as a user without any privilege, asked from the host over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.campaigns.vm.machine import Machine, Program

# Of the daemon that all tests share, of another one beside it, and of a pod's.
WEB_PORTS = WEB_PORT, OTHER_WEB_PORT, POD_WEB_PORT = 10055, 10056, 10057
# The machine's one emulated processor computes the traffic too: a sampler without precedence misses many ticks.
MAY_USE_FIFO = ("prlimit", "--rtprio=10")
# nobody, without capabilities and without a way to get any
UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs")
HTTP_SECONDS = 120


class Daemon:
    """A running daemon."""

    def __init__(
        self, machine: Machine, options: Sequence[str], port: int = WEB_PORT, within: Sequence[str] = ()
    ) -> None:
        """Start it on this port, by the command `within` if there is one, and wait until it is ready."""
        self.machine, self.port = machine, port
        serve = ["ibpulse", "serve", f"--web.listen-address=:{port}", *options]
        self.start([*within, *MAY_USE_FIFO, *UNPRIVILEGED, *serve], f"/tmp/ibpulse-{port}.log")

    def start(self, command: Sequence[str], log_path: str) -> None:
        """Start it by this command, and wait until it is ready."""
        self.program: Program = self.machine.start(command, log_path)
        self.machine.wait_until(self.is_ready, "ibpulse is ready")

    def is_ready(self) -> bool:
        """Whether it runs and says that it is ready."""
        assert self.program.is_running(), self.program.output()
        try:
            self.fetch("/-/ready")
        except OSError:
            return False
        return True

    def fetch(self, path: str, **query: str) -> bytes:
        """Body of an answer."""
        url = f"{self.machine.address(self.port)}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as response:
                body: bytes = response.read()
        except ConnectionError:
            assert self.program.is_running(), f"ibpulse has ended: {self.program.output()}"
            raise
        return body

    def fetch_json(self, path: str, **query: str) -> Any:
        """Parsed body of an answer."""
        return json.loads(self.fetch(path, **query))

    def read_metric(self, name: str, **labels: str) -> float | None:
        """Value of the sample with these labels, among others; None when there is no such sample."""
        return next(self._values(name, labels), None)

    def read_metric_until(self, name: str, **labels: str) -> tuple[float, int]:
        """The same, and the wall time (ms) up to which it counts, of one scrape."""
        page = self.fetch("/metrics")
        until = next(self._values("ibpulse_aggregated_until_timestamp_seconds", {}, page))
        return next(self._values(name, labels, page)), round(until * 1000)

    def _values(self, name: str, labels: Mapping[str, str], page: bytes = b"") -> Iterator[float]:
        for family in text_string_to_metric_families((page or self.fetch("/metrics")).decode()):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample.value

    def read_total(self, direction: str, device: str) -> float:
        """Bytes that a device has moved in one direction, as the daemon counted them."""
        total = self.read_metric(f"ibpulse_port_{direction}_bytes_total", device=device, port="1")
        assert total is not None, f"{device} is in no metric: {self.program.output()}"
        return total

    def list_devices(self) -> list[str]:
        """Names of the devices whose ports it shows as existing, sorted."""
        ports = self.fetch_json("/api/v1/ports")["ports"]
        return sorted({port["device"] for port in ports if port["state"] != "disappeared"})

    def read_rates(self, device: str, direction: str = "transmit", **span: str) -> list[float | None]:
        """Bytes per second, one for each tick of a span; None is a hole."""
        window = self.fetch_json("/api/v1/window", port=f"{device}:1", direction=direction, **span)
        rates: list[float | None] = window["series"][0]["values"]
        return rates

    def wait_for_samples(self, *devices: str) -> None:
        """Return once exactly these devices are shown, and each is sampled and in the metrics."""
        self.machine.wait_until(lambda: self.list_devices() == sorted(devices), f"ibpulse shows {devices}")
        for device in devices:
            self.machine.wait_until(partial(self._is_sampled, device), f"ibpulse samples {device}")

    def wait_for_totals(self, device: str) -> None:
        """Return once everything that a device moved up to now is in its totals."""
        seen = self._observed_seconds(device)
        self.machine.wait_until(lambda: self._observed_seconds(device) > seen + 2, f"ibpulse has summed up {device}")

    def _is_sampled(self, device: str) -> bool:
        try:
            rates = self.read_rates(device, last="500ms")
        except urllib.error.HTTPError:
            return False
        return rates.count(None) < len(rates) / 5 and self._observed_seconds(device) > 0

    def _observed_seconds(self, device: str) -> float:
        return self.read_metric("ibpulse_port_observed_seconds_total", device=device, port="1") or 0.0
