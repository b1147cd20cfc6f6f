"""Writes metrics in the Prometheus text formats: rows of a table, and the families of the client library.

The two text formats differ only in the headers. Everything before a value is cached, because only the numbers change
from scrape to scrape.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from functools import cache, lru_cache

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client import Metric as LibraryFamily
from prometheus_client.exposition import choose_encoder

from ibpulse.core.metrics import web
from ibpulse.core.metrics.row import CountAndSum, Histogram, Labels, Metric, Sample, read_families

# numbers that Python spells differently
_ODD = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
# enough for 256 ports with all their series
CACHED_PREFIXES = 2**15
END_MARK = b"# EOF\n"


class TextFormat(Enum):
    """The two text formats and their content types."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    # the hash of Enum is a Python function, and a scrape needs one for each family
    __hash__ = object.__hash__


def choose_format(accept: str | None) -> TextFormat:
    """OpenMetrics if it has the highest weight in the `Accept` header, otherwise the Prometheus text format.

    Among equal weights (`q`) the first wins, as in the client library. A client that accepts neither format gets the
    Prometheus text, as RFC 9110, 12.4.1 permits.
    """
    best, chosen = 0.0, TextFormat.PROMETHEUS
    for media, parameters in _ranges(accept):
        text_format = _format_of(media, parameters.get("version"))
        weight = _weight(parameters)
        if text_format is not None and weight > best:
            best, chosen = weight, text_format
    return chosen


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Whether the client accepts gzip, by name or by `*`, with a weight above 0."""
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
    """The `q` of a member; 0, which never wins, if it is not a number."""
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


def family_lines(metric: Metric, samples: Sequence[Sample]) -> list[str]:
    """The lines of a family's samples, without its header."""
    lines: list[str] = []
    if metric.type == "histogram":
        for labels, value in samples:
            assert isinstance(value, Histogram)
            buckets, total, count = _prefixes(metric, labels, value.bounds)
            lines += [f"{prefix}{number}" for prefix, number in zip(buckets, value.cumulative, strict=True)]
            lines += [total + format_number(value.total), f"{count}{value.cumulative[-1]}"]
        return lines
    if metric.type == "summary":
        for labels, value in samples:
            assert isinstance(value, CountAndSum)
            _, total, count = _prefixes(metric, labels)
            lines += [count + format_number(value.count), total + format_number(value.total)]
        return lines
    # a single expression, because this loop is most of the cost of a scrape
    return [_prefix(metric, labels) + _ODD.get(text := repr(value), text) for labels, value in samples]


@cache
def header(metric: Metric, text_format: TextFormat) -> str:
    """The header lines of a family. HELP texts are not escaped; a test checks that none needs it."""
    if text_format is TextFormat.PROMETHEUS:
        kind = "gauge" if metric.type == "info" else metric.type
        return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {kind}"
    unit = f"\n# UNIT {metric.family} {metric.unit}" if metric.unit else ""
    return f"# HELP {metric.family} {metric.help}\n# TYPE {metric.family} {metric.type}{unit}"


@lru_cache(maxsize=CACHED_PREFIXES)
def _prefix(metric: Metric, labels: Labels) -> str:
    """The line of a sample up to its value."""
    optional = metric.subject.optional
    pairs = zip(metric.labels, labels, strict=True)
    return _line(metric.name, [(name, value) for name, value in pairs if value or name not in optional])


@lru_cache(maxsize=CACHED_PREFIXES)
def _prefixes(metric: Metric, labels: Labels, bounds: tuple[float, ...] = ()) -> tuple[tuple[str, ...], str, str]:
    """The lines of a histogram or a summary up to their values: buckets, which a summary does not have, sum, count."""
    pairs = list(zip(metric.labels, labels, strict=True))
    limits = [*map(format_number, bounds), "+Inf"]
    buckets = tuple(_line(f"{metric.name}_bucket", [*pairs, ("le", limit)]) for limit in limits)
    return buckets, _line(f"{metric.name}_sum", pairs), _line(f"{metric.name}_count", pairs)


def _line(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{label}="{escape_label(value)}"' for label, value in pairs)
    return f"{name}{{{inside}}} " if inside else f"{name} "


def escape_label(value: str) -> str:
    """A label value, escaped for either format."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def format_number(value: float) -> str:
    """A number as written in both formats; integers keep all their digits."""
    text = repr(value)
    return _ODD.get(text, text)


def process_registry() -> CollectorRegistry:
    """A registry with the client library's own families about the process and Python."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def render_page(
    rows: Iterable[Metric],
    source: object,
    registry: CollectorRegistry,
    counts: web.WebCounts | None,
    accept: str | None = None,
    names: Collection[str] = (),
) -> tuple[bytes, str]:
    """Body and content type of a page: the rows of a source, then the families of the process and of the web server.

    `accept` is the request's `Accept` header. `names` are the values of `name[]`; if there are any, the body contains
    only the families and samples with these names. Without `counts`, the families of the web server are omitted.
    """
    text_format, wanted = choose_format(accept), frozenset(names)
    parts = [table_text(rows, source, text_format, wanted).encode(), registry_text(registry, text_format, wanted)]
    if counts is not None:
        parts.append(table_text(web.ROWS, counts, text_format, wanted).encode())
    if text_format is TextFormat.OPENMETRICS:
        parts.append(END_MARK)
    return b"".join(parts), text_format.value


def compress(body: bytes) -> bytes:
    """The body compressed at gzip level 1: most of the gain in a tenth of the time of the default level."""
    return gzip.compress(body, compresslevel=1, mtime=0)


def table_text(rows: Iterable[Metric], source: object, text_format: TextFormat, wanted: Collection[str]) -> str:
    """The text of the rows' families, limited to the names in `wanted` unless that is empty."""
    parts: list[str] = []
    for metric, samples in read_families(rows, source):
        lines = family_lines(metric, samples)
        if wanted and not {metric.name, metric.family} & set(wanted):
            lines = [line for line in lines if line.partition(" ")[0].partition("{")[0] in wanted]
        if lines:
            parts.append(header(metric, text_format))
            parts += lines
    return "\n".join([*parts, ""]) if parts else ""


def registry_text(registry: CollectorRegistry, text_format: TextFormat, wanted: Collection[str] = frozenset()) -> bytes:
    """The families of the registry as the client library writes them, without the OpenMetrics end mark."""
    encode, _ = choose_encoder(text_format.value)
    return encode(_Chosen(registry, wanted)).removesuffix(END_MARK)


class _Chosen:
    """The wanted families of a registry, without the `_created` series, which are of no use here."""

    def __init__(self, registry: CollectorRegistry, wanted: Collection[str]) -> None:
        self._registry = registry
        self._wanted = wanted

    def collect(self) -> Iterator[LibraryFamily]:
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
