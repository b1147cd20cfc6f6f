"""The whole answer to a scrape: the families of the snapshot, of the process, and of the web server, as lines of text.

The format is the one that the client accepts; the lines of samples are the same in both, the headers differ. Prefixes
are cached: at a scrape, only the numbers are new.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache, lru_cache

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client import Metric as LibraryFamily
from prometheus_client.exposition import choose_encoder

from ibpulse.aggregator.snapshot import Histogram, Snapshot
from ibpulse.metrics import web
from ibpulse.metrics.row import CountAndSum, Labels, Metric, Sample, read_families
from ibpulse.metrics.table import rows_of


class TextFormat(Enum):
    """The two text formats, each by its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def choose_format(accept: str | None) -> TextFormat:
    """OpenMetrics where the client names it with the highest weight, else the Prometheus text.

    Weights (`q`) are honoured; of equal ones the first counts, as in the client library. A client that accepts
    neither gets the Prometheus text: an answer that it may throw away is better than none (RFC 9110, 12.4.1).
    """
    best, chosen = 0.0, TextFormat.PROMETHEUS
    for media, parameters in _ranges(accept):
        text_format = _format_of(media, parameters.get("version"))
        weight = _weight(parameters)
        if text_format is not None and weight > best:
            best, chosen = weight, text_format
    return chosen


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether the client takes gzip, by name or by `*`, with a weight above 0."""
    weights = {coding: _weight(parameters) for coding, parameters in _ranges(accept_encoding)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _format_of(media: str, version: str | None) -> TextFormat | None:
    if media == "application/openmetrics-text":
        return TextFormat.OPENMETRICS if version in (None, "1.0.0") else None
    return TextFormat.PROMETHEUS if media in ("text/plain", "text/*", "*/*") else None


def _ranges(header: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Each member of a header with its parameters, names in lower case."""
    for member in (header or "").split(","):
        name, *rest = member.split(";")
        pairs = (parameter.partition("=") for parameter in rest)
        yield name.strip().lower(), {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}


def _weight(parameters: dict[str, str]) -> float:
    """The `q` of a member; one that is no number counts as 0, so that it is never chosen."""
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


# Numbers that Python writes in another way than the formats.
_ODD = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
# 256 ports, each with all its series
CACHED_PREFIXES = 2**15


def family_lines(metric: Metric, samples: Sequence[Sample]) -> list[str]:
    """The lines of a family's samples, without its header."""
    lines: list[str] = []
    if metric.type == "histogram":
        for labels, value in samples:
            assert isinstance(value, Histogram)
            _add_histogram(lines, metric, labels, value)
        return lines
    if metric.type == "summary":
        for labels, value in samples:
            assert isinstance(value, CountAndSum)
            count, total = _summary_prefixes(metric, labels)
            lines += [count + format_number(value.count), total + format_number(value.total)]
        return lines
    # one expression for each sample: this is most of a scrape
    return [_prefix(metric, labels) + _ODD.get(text := repr(value), text) for labels, value in samples]


def _add_histogram(lines: list[str], metric: Metric, labels: Labels, value: Histogram) -> None:
    buckets, total, count = _histogram_prefixes(metric, labels, value.bounds)
    lines += [f"{prefix}{number}" for prefix, number in zip(buckets, value.cumulative, strict=True)]
    lines.append(total + format_number(value.total))
    lines.append(f"{count}{value.cumulative[-1]}")


@cache
def header(metric: Metric, text_format: TextFormat) -> str:
    """The lines that open a family. The table's texts need no escaping, which a test keeps true."""
    if text_format is TextFormat.PROMETHEUS:
        kind = "gauge" if metric.type == "info" else metric.type
        return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {kind}"
    unit = f"\n# UNIT {metric.family} {metric.unit}" if metric.unit else ""
    return f"# HELP {metric.family} {metric.help}\n# TYPE {metric.family} {metric.type}{unit}"


@lru_cache(maxsize=CACHED_PREFIXES)
def _prefix(metric: Metric, labels: Labels) -> str:
    """A sample's line up to its value."""
    return _line(metric.name, zip(metric.labels, labels, strict=True))


@lru_cache(maxsize=CACHED_PREFIXES)
def _histogram_prefixes(metric: Metric, labels: Labels, bounds: tuple[float, ...]) -> tuple[tuple[str, ...], str, str]:
    """The lines of a histogram up to their values: buckets, sum, count."""
    pairs = list(zip(metric.labels, labels, strict=True))
    limits = [*map(format_number, bounds), "+Inf"]
    buckets = tuple(_line(f"{metric.name}_bucket", [*pairs, ("le", limit)]) for limit in limits)
    return buckets, _line(f"{metric.name}_sum", pairs), _line(f"{metric.name}_count", pairs)


@lru_cache(maxsize=CACHED_PREFIXES)
def _summary_prefixes(metric: Metric, labels: Labels) -> tuple[str, str]:
    """The lines of a summary up to their values: count, sum."""
    pairs = list(zip(metric.labels, labels, strict=True))
    return _line(f"{metric.name}_count", pairs), _line(f"{metric.name}_sum", pairs)


def _line(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{label}="{escape_label(value)}"' for label, value in pairs)
    return f"{name}{{{inside}}} " if inside else f"{name} "


def escape_label(value: str) -> str:
    """A label's value as both formats write it between its quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def format_number(value: float) -> str:
    """A number as both formats write it; whole Python integers keep all their digits."""
    text = repr(value)
    return _ODD.get(text, text)


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
