"""An exporter as it is usually written: reads every counter when it is scraped. `client_library_exporter.py TREE PORT`

It uses the Prometheus client library, reads all counters of each port of a sysfs-like tree at each scrape, and serves
until it is terminated.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class Counters(Collector):
    """The counters of all ports of a tree, read when they are collected."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One family per counter, one sample per port."""
        families: dict[str, CounterMetricFamily] = {}
        for port in sorted(self._tree.glob("class/infiniband/*/ports/*")):
            for file in sorted((port / "counters").iterdir()):
                labels = ["device", "port"]
                family = families.setdefault(
                    file.name, CounterMetricFamily(f"ib_{file.name}", file.name, labels=labels)
                )
                family.add_metric([port.parent.parent.name, port.name], int(file.read_text()))
        yield from families.values()


def main(tree: Path, port: int) -> None:
    registry = CollectorRegistry()
    registry.register(Counters(tree))
    start_http_server(port, addr="127.0.0.1", registry=registry)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
