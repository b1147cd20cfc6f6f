"""What a client accepts: which text format, and whether gzip. Headers in, choices out."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum


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
