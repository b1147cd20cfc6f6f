"""Asks a running daemon: samples, statistics, events, jobs, and captures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from ibpulse.base.errors import CaptureError, DaemonError
from ibpulse.base.instants import format_rfc3339
from ibpulse.base.text import count_text
from ibpulse.base.units import SECOND_NS
from ibpulse.core.answers.jobs import PendingAnswer
from ibpulse.core.answers.node import PortsAnswer
from ibpulse.core.answers.summary import SummaryAnswer
from ibpulse.core.client import TIMEOUT_SECONDS
from ibpulse.core.client.connection import DaemonConnection, ask_events, ask_job, ask_ports, gateway_nodes
from ibpulse.core.recordings import RecordingMeta
from ibpulse.workbench.pictures.options import Theme, Unit
from ibpulse.workbench.pictures.still import Picture, draw_runs, sum_of_each
from ibpulse.workbench.python.samples import SampledRates, Time, read_span, span_query
from ibpulse.workbench.python.tables import Events, Jobs, SpanSummary
from ibpulse.workbench.recorder.from_daemon import (
    DaemonSamples,
    DaemonSource,
    ask_jobs,
    ask_meta,
    ask_samples,
    with_past,
)

CAPTURES = "/api/v1/captures"
SOURCE = "daemon"
POLL_SECONDS = 0.25
# a capture is written within seconds after its window ends
WRITING_SECONDS = 60.0


def connect(url: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> NodeConnection:
    """A connection to the daemon at a URL such as `http://node7:10055`, `node7` or `https://user:password@node7`.

    Of a gateway, only `job()` works.

    >>> node = ibpulse.connect(url)
    >>> node.ports().ports[0].name
    'mlx5_0:1'

    Raises:
        DaemonError: the URL is invalid, or no ibpulse daemon answers there.
    """
    node = NodeConnection(url, timeout_seconds)
    node.check()
    return node


class NodeConnection:
    """A connection to a running daemon. Every method asks the daemon, and raises `DaemonError` if it does not answer.

    Times are texts as in `2026-11-21T12:00:00Z`, or `datetime` with a time zone. Not thread-safe.
    """

    def __init__(self, url: str, timeout_seconds: float, name: str = "") -> None:
        self._url, self._timeout_seconds, self._name = url.rstrip("/"), timeout_seconds, name
        self._connection = DaemonConnection(url, timeout_seconds)

    @property
    def place(self) -> str:
        """The address of the daemon, without a password; of a node of a job, its name."""
        return self._name or self._connection.place

    def check(self) -> None:
        """Check that a daemon or a gateway answers."""
        try:
            self.ports()
        except DaemonError as error:
            if error.status != HTTPStatus.NOT_FOUND or gateway_nodes(self._connection) is None:
                raise

    def job(self, identity: str) -> JobNodes:
        """The nodes of a job of a gateway, by its id, or by scheduler and id (`slurm:4711`).

        Raises:
            DaemonError: this is no gateway, or it does not know the job.
        """
        places = ask_job(self._connection, identity)
        nodes = {each.node: NodeConnection(self._url + each.path, self._timeout_seconds, each.node) for each in places}
        return JobNodes(identity, nodes, {each.node: each.ports for each in places})

    def ports(self) -> PortsAnswer:
        """The ports of the node, their states, and the sampling interval."""
        return ask_ports(self._connection)

    def window(
        self, last: str | None = None, *, start: Time | None = None, end: Time | None = None, ports: Sequence[str] = ()
    ) -> SampledRates:
        """The samples of the `last` part (default: 5s), or from `start` to before `end`, with their events and jobs.

        Samples from before the history of the daemon are missing (NaN). `ports` are names of ports or devices.

        >>> window = node.window("500ms")
        >>> len(window), window.interval_seconds
        (50, 0.01)

        Raises:
            ValueError: a time or a port is invalid.
            FabricError: the node has no ports.
        """
        daemon = DaemonSamples(self._meta())
        newest = self._connection.ask_window(daemon.query())
        now_ns = newest.start_ns + newest.head.points * newest.step_ns
        last = "5s" if (last, start, end) == (None, None, None) else last
        begin, finish = read_span(0, now_ns, start, end, last)
        if start is None and last is None:
            raise ValueError("end needs start or last; give one of them")
        finish = min(finish, now_ns)
        if begin >= finish:
            newest_text = format_rfc3339(now_ns // SECOND_NS * SECOND_NS)
            raise ValueError(f"there is nothing between these times; the newest sample is of {newest_text}")
        recording = ask_samples(self._connection, daemon, begin, finish)
        recording = with_past(self._connection, recording, ask_events(self._connection, recording.start_ns).values)
        samples = SampledRates(recording, self.place)
        return samples.select(*ports) if ports else samples

    def _meta(self) -> RecordingMeta:
        """The description of the samples, before any is fetched."""
        host = self._name or self.place.partition("://")[2].rpartition(":")[0]
        return replace(ask_meta(self._connection), host=host, source=SOURCE, reason="")

    def summary(
        self, last: str | None = None, *, start: Time | None = None, end: Time | None = None, job: str | None = None
    ) -> SpanSummary:
        """Every statistic of the `last` part in whole seconds (default: 1m), or from `start` to before `end`.

        With `job`, those of the ports that this job had, while it had them.

        Raises:
            ValueError: a time is invalid.
        """
        query = span_query(last, start, end)
        if job is not None:
            query.append(("job", job))
        found = self._connection.ask(SummaryAnswer, "/api/v1/summary", query)
        return SpanSummary(found.model_dump(exclude=None if found.job else {"job"}), self.place)

    def events(self, last: str | None = None, *, start: Time | None = None, end: Time | None = None) -> Events:
        """The events of the `last` part, or from `start` to `end`; by default all that the daemon keeps.

        >>> node.events().of("started")[0].kind
        'started'

        Raises:
            ValueError: a time is invalid.
            DaemonError: the daemon does not answer, or refuses.
        """
        begin_ns = end_ns = None
        if (last, start, end) != (None, None, None):
            begin_ns, end_ns = read_span(0, time.time_ns(), start, end, last)
        answer = ask_events(self._connection, begin_ns, end_ns)
        return Events(answer.values, answer.left_out)

    def jobs(self) -> Jobs:
        """The jobs that run, and those that ended within the history.

        >>> [record.job.claim.id for record in node.jobs()]
        []
        """
        return Jobs(ask_jobs(self._connection))

    def stream(self) -> Iterator[SampledRates]:
        """New samples as they arrive, each once and in order, in pieces of about a quarter of a second, without end.

        If the daemon stops answering, the samples that it still has follow when it answers again.

        >>> stream = node.stream()
        >>> first, second = next(stream), next(stream)
        >>> first.end == second.start
        True

        Raises:
            FabricError: the node has no ports.
        """
        source = DaemonSource(self._connection, self._meta())
        while True:
            for piece in source.read():
                yield SampledRates(piece, self.place)
            time.sleep(POLL_SECONDS)

    def capture(
        self,
        reason: str = "request",
        *,
        before: str | None = None,
        after: str | None = None,
        labels: Mapping[str, str] | None = None,
        path: str | Path | None = None,
    ) -> SampledRates:
        """Let the daemon take a capture around now, wait for it, and return its samples; with `path`, save the file.

        `before` and `after` are times such as `30s` (default: the daemon's settings). Needs a user in the URL, or a
        daemon with `capture.allow-unauthenticated`.

        Raises:
            DaemonError: the daemon refuses; the message says why.
            CaptureError: the capture was not written in time.
            RecordingError: `path` exists, or cannot be written.
        """
        if path is not None and Path(path).exists():
            raise CaptureError(f"capture {path} exists; name another file")
        members = {"reason": reason, "labels": labels, "before": before, "after": after}
        given = {name: value for name, value in members.items() if value}
        pending = self._connection.post(PendingAnswer, CAPTURES, given)
        content = self._wait_for(pending.url, pending.ready_ms)
        from ibpulse.core.recordings import load  # pyarrow is optional

        name = pending.url.rpartition("/")[2].removesuffix(".parquet")
        with tempfile.TemporaryDirectory(prefix="ibpulse-") as scratch:
            place = Path(scratch) / "capture.parquet" if path is None else Path(path)
            place.write_bytes(content)
            return SampledRates(load(place), name)

    def _wait_for(self, url: str, ready_ms: int) -> bytes:
        deadline = time.monotonic() + max(0.0, ready_ms / 1000 - time.time()) + WRITING_SECONDS
        while True:
            try:
                return self._connection.get(url).body
            except DaemonError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
            if time.monotonic() > deadline:
                raise CaptureError(f"capture {url} was not written within a minute; the daemon's log says why")
            time.sleep(min(1.0, max(POLL_SECONDS, ready_ms / 1000 - time.time())))

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._connection.close()

    def __enter__(self) -> NodeConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ibpulse.NodeConnection to {self.place}>"


class JobNodes(Mapping[str, NodeConnection]):
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ibpulse.JobNodes of job {self.id!r}: {count_text(len(self), 'node')}>"
