"""The whole answer to a scrape: the families of the snapshot, of the process, and of the web server."""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client import Metric as LibraryFamily
from prometheus_client.exposition import choose_encoder

from ibpulse.aggregator.snapshot import Snapshot
from ibpulse.exposition.lines import TextFormat, choose_format, family_lines, header
from ibpulse.metrics import web
from ibpulse.metrics.row import Metric, read_families
from ibpulse.metrics.table import rows_of

END_MARK = b"# EOF\n"


def process_registry() -> CollectorRegistry:
    """The families about the process and Python that the client library gives."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def render(
    snapshot: Snapshot,
    registry: CollectorRegistry,
    accept: str | None = None,
    names: Sequence[str] = (),
    counts: web.WebCounts | None = None,
) -> tuple[bytes, str]:
    """Body and content type of `/metrics`.

    `accept` is the request's header. `names` are the values of `name[]`: with any, only families of such a name, or
    samples of such a name, are in the body. Without `counts` there are no families of the web server.
    """
    text_format = choose_format(accept)
    wanted = frozenset(names)
    parts = [
        table_text(rows_of(snapshot), snapshot, text_format, wanted).encode(),
        registry_text(registry, text_format, wanted),
    ]
    if counts is not None:
        parts.append(table_text(web.ROWS, counts, text_format, wanted).encode())
    if text_format is TextFormat.OPENMETRICS:
        parts.append(END_MARK)
    return b"".join(parts), text_format.value


def compress(body: bytes) -> bytes:
    """The body as gzip at level 1: most of the gain at a tenth of the time of the default level."""
    return gzip.compress(body, compresslevel=1, mtime=0)


def table_text(rows: Iterable[Metric], source: object, text_format: TextFormat, wanted: Collection[str]) -> str:
    """The families of the rows, read from the source; all if `wanted` is empty."""
    parts: list[str] = []
    for metric, samples in read_families(rows, source):
        lines = family_lines(metric, samples)
        if wanted and not {metric.name, metric.family} & set(wanted):
            lines = [line for line in lines if _sample_name(line) in wanted]
        if lines:
            parts.append(header(metric, text_format))
            parts += lines
    return "\n".join([*parts, ""]) if parts else ""


def _sample_name(line: str) -> str:
    return line.partition(" ")[0].partition("{")[0]


def registry_text(registry: CollectorRegistry, text_format: TextFormat, wanted: Collection[str] = frozenset()) -> bytes:
    """The families of the registry as the client library writes them, without the end mark of OpenMetrics."""
    encode, _ = choose_encoder(text_format.value)
    return encode(_Chosen(registry, wanted)).removesuffix(END_MARK)


class _Chosen:
    """The wanted families of a registry, without the `_created` series, which only cost."""

    def __init__(self, registry: CollectorRegistry, wanted: Collection[str]) -> None:
        self._registry = registry
        self._wanted = wanted

    def collect(self) -> Iterable[LibraryFamily]:
        return list(self._chosen())

    def _chosen(self) -> Iterator[LibraryFamily]:
        for metric in self._registry.collect():
            whole = not self._wanted or metric.name in self._wanted
            chosen = LibraryFamily(metric.name, metric.documentation, metric.type, metric.unit)
            chosen.samples = [
                sample
                for sample in metric.samples
                if not sample.name.endswith("_created") and (whole or sample.name in self._wanted)
            ]
            if chosen.samples:
                yield chosen
