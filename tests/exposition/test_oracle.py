"""The text matches the client library's own output, and its parsers read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibpulse.agent.aggregator import Snapshot
from ibpulse.agent.metrics.page import render
from ibpulse.core.metrics import web
from tests.aggregator.rings import port
from tests.exposition.oracle import ServerCollector, SnapshotCollector
from tests.exposition.snapshots import SERVER, node, snapshot_of

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
Parser = Callable[[str], Iterable[Metric]]

parametrize_format = pytest.mark.parametrize(
    ("accept", "parse"), [("text/plain", parse_text), (OPENMETRICS, parse_openmetrics)]
)


def known(value: float) -> float | str:
    """The value in a comparable form, because NaN does not equal itself."""
    return "NaN" if math.isnan(value) else value


def samples_of(families: Iterable[Metric]) -> dict[tuple[str, str], list[tuple[object, ...]]]:
    return {
        (family.name, family.type): sorted(
            (sample.name, tuple(sorted(sample.labels.items())), known(sample.value)) for sample in family.samples
        )
        for family in families
        if family.samples
    }


def read_both(snapshot: Snapshot, accept: str, parse: Parser) -> tuple[list[Metric], list[Metric]]:
    """Our families and the oracle's, as the client library's parser reads their texts."""
    body, _ = render(snapshot, CollectorRegistry(), accept)
    oracle = CollectorRegistry()
    oracle.register(SnapshotCollector(snapshot))
    encode, _ = choose_encoder(accept)
    return list(parse(body.decode())), list(parse(encode(oracle).decode()))


@parametrize_format
def test_the_parser_reads_the_same_samples_as_from_the_client_library(
    tmp_path: Path, accept: str, parse: Parser
) -> None:
    ours, theirs = read_both(node(tmp_path), accept, parse)
    assert samples_of(ours) == samples_of(theirs)
    assert sum(len(family.samples) for family in ours) > 700


@parametrize_format
def test_help_and_unit_are_those_of_the_client_library(tmp_path: Path, accept: str, parse: Parser) -> None:
    ours, theirs = read_both(node(tmp_path, 2), accept, parse)
    told = {family.name: (family.documentation, family.unit) for family in theirs}
    assert {family.name: (family.documentation, family.unit) for family in ours}.items() <= told.items()


@parametrize_format
def test_labels_survive_any_content(tmp_path: Path, accept: str, parse: Parser) -> None:
    odd = 'quote " back \\ line \n end, comma } {'
    strange = port("mlx5_0:1", source=odd)
    ours, theirs = read_both(snapshot_of(tmp_path, strange), accept, parse)
    assert samples_of(ours) == samples_of(theirs)
    found = [sample for family in ours for sample in family.samples if sample.name == "ibpulse_port_info"]
    assert [sample.labels["source"] for sample in found] == [odd]


def test_both_formats_hold_the_same_samples(tmp_path: Path) -> None:
    snapshot = node(tmp_path)
    text, _ = render(snapshot, CollectorRegistry(), "text/plain")
    openmetrics, _ = render(snapshot, CollectorRegistry(), OPENMETRICS)

    def lines(body: bytes) -> list[str]:
        return [line for line in body.decode().splitlines() if not line.startswith("#")]

    assert lines(text) == lines(openmetrics)


@parametrize_format
def test_the_registry_follows_the_snapshot(tmp_path: Path, accept: str, parse: Parser) -> None:
    registry = CollectorRegistry()
    Gauge("self_metric", "Of the server.", registry=registry).set(4.5)
    body, _ = render(node(tmp_path, 1), registry, accept)
    families = {family.name: family for family in parse(body.decode())}
    assert families["self_metric"].samples[0].value == 4.5
    assert "ibpulse_port_up" in families
    assert body.count(b"# EOF") == (accept == OPENMETRICS)


@parametrize_format
def test_the_families_of_the_server_are_written_as_the_library_writes_them(
    tmp_path: Path, accept: str, parse: Parser
) -> None:
    registry = CollectorRegistry()
    registry.register(ServerCollector())
    encode, _ = choose_encoder(accept)
    snapshot = node(tmp_path, 1)
    body, _ = render(snapshot, CollectorRegistry(), accept, counts=SERVER)
    assert body.endswith(encode(registry))
    assert {family.name for family in parse(encode(registry).decode())} == {row.family for row in web.ROWS}
