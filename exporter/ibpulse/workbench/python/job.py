"""The nodes of a job, asked through a gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from ibpulse.base.text import count_text
from ibpulse.workbench.pictures.options import Theme, Unit
from ibpulse.workbench.pictures.still import Picture, draw_runs, sum_of_each
from ibpulse.workbench.python.samples import SampledRates, Time
from ibpulse.workbench.python.tables import SpanSummary

if TYPE_CHECKING:
    from ibpulse.workbench.python.node import NodeConnection


class JobNodes(Mapping[str, "NodeConnection"]):
    """The nodes of a job, by name, each as `ibpulse.connect` gives it. Their samples are those of the job's ports.

    Times are those of the clock of each node.
    """

    def __init__(self, job: str, nodes: Mapping[str, NodeConnection], ports: Mapping[str, tuple[str, ...]]) -> None:
        self.id, self.ports = job, ports
        self._nodes = nodes

    def __getitem__(self, name: str) -> NodeConnection:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def window(
        self, last: str | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> dict[str, SampledRates]:
        """The samples of each node, as `NodeConnection.window`."""
        return {
            name: node.window(last, start=start, end=end, ports=self.ports[name]) for name, node in self._nodes.items()
        }

    def summary(
        self, last: str | None = None, *, start: Time | None = None, end: Time | None = None
    ) -> dict[str, SpanSummary]:
        """The statistics of the job on each node, as `NodeConnection.summary`."""
        return {name: node.summary(last, start=start, end=end, job=self.id) for name, node in self._nodes.items()}

    def plot(self, last: str | None = None, *, unit: Unit = "GB/s", theme: Theme = "light") -> Picture:
        """A heatmap with a row for each node, the sum over its rails.

        Raises:
            PictureError: matplotlib is not installed, or the nodes have different intervals.
        """
        recordings = {name: samples.recording for name, samples in self.window(last).items()}
        run = sum_of_each(recordings, f"job {self.id}")
        return draw_runs([run], "heatmap", unit=unit, theme=theme, row="node", total="sum of all nodes:")

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        for node in self._nodes.values():
            node.close()

    def __enter__(self) -> JobNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ibpulse.JobNodes of job {self.id!r}: {count_text(len(self), 'node')}>"
