"""The line rate of a node and its peak utilisation are the same in every view of the same data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from ibpulse.agent.aggregator import Aggregator, AggregatorOptions
from ibpulse.agent.metrics.page import render
from ibpulse.core.events import Event, EventLog
from ibpulse.core.events.watch import KnownPort
from ibpulse.core.model import PortState
from ibpulse.core.recordings import RecordedPort, Recording, RecordingMeta, concatenate, load, save
from ibpulse.core.recordings.from_ring import RecordedTicks, events_in, ports_at_begin, read_pieces
from ibpulse.workbench.top.ring import RingWatcher
from ibpulse.workbench.top.screen import BLOCKS, lay_out
from tests.aggregator.rings import MS, Ring, follow, port, update
from tests.reports.recordings import run_of
from tests.terminal.test_watchers import Clocked
from tests.web.conftest import make_client
from tests.web.events import listening
from tests.web.rings import Node
from tests.web.test_stream import served, settle

BUSY, PEAKY, IDLE, DOWN, STORAGE = (f"mlx5_{number}:1" for number in range(5))
FIRST, LAST = 1401, 2400
UP = PortState("ACTIVE", "LinkUp", True, 50e9, True)
RATES = {BUSY: 50e9, PEAKY: 50e9, IDLE: 50e9, DOWN: 25e9}
STATES = {name: replace(UP, rate_bytes_per_second=rate) for name, rate in RATES.items()}
STORED = replace(UP, rail=False, role="storage")
FELL = replace(STATES[DOWN], state="DOWN", physical="Polling", active=False)
SLOWER = replace(UP, rate_bytes_per_second=5e9)
NEVER = replace(FELL, rate_bytes_per_second=None)


def sent(name: str, tick: int, down_from: int) -> float:
    """The rate out of a port, and into it, in the interval that ends at a tick."""
    if name == PEAKY:
        return 44e9 if tick == 2222 else 33e9 if tick % 10 == 0 else 1e9
    return {BUSY: 20e9, DOWN: 12e9 if tick < down_from else 0.0, STORAGE: 30e9}.get(name, 0.0)


@dataclass
class Story:
    """A ring, the states of its ports, and what a plain loop makes of the last ten seconds."""

    ring: Ring
    log: EventLog
    line: float
    peak_utilization: float


def story(path: Path, *changes: tuple[int, str, PortState | None], down: PortState = FELL) -> Story:
    """`DOWN` is `down` from the first of the changes on it, the others are changes of other ports."""
    down_from = min((tick for tick, name, _ in changes if name == DOWN), default=1)
    ring = Ring.create(path, *(port(name) for name in RATES), port(STORAGE, rail=False))
    for each in (*RATES, STORAGE):
        traffic = (lambda tick, name=each: sent(name, tick, down_from),) * 2
        ring.write(each, traffic, 1, LAST + 100)
    log, states = EventLog(), {**STATES, DOWN: STATES[DOWN] if down_from > 1 else down}
    for name, state in (*states.items(), (STORAGE, STORED)):
        log.history.begin(name, state)
    for tick, name, after in sorted(changes, key=lambda change: change[0]):
        log.add(Event(tick * 10 * MS, "link-down", name, "words", 0, log.history.now(name), after, tick=tick))
    utilizations = []
    for tick in range(FIRST, LAST + 1):
        at_tick = [log.history.at(name, tick) for name in RATES]
        rates = [state.rate_bytes_per_second for state in at_tick if state is not None]
        fastest = max(rate for rate in rates if rate is not None)
        line = 2 * sum(fastest if rate is None else rate for rate in rates)
        utilizations.append(2 * sum(sent(name, tick, down_from) for name in RATES) / line)
    ring.change(*(show(each, log.history.now(str(each.id))) for each in ring.fabric.ports))
    return Story(ring, log, line, max(utilizations))


def show(each: Any, state: PortState | None) -> Any:
    """A port as a scan finds it: one whose link is down has no rate. One that disappeared is as in the last scan."""
    if state is None:
        return each
    rate = state.rate_bytes_per_second if state.active else None
    return replace(each, active=state.active, state=state.state, rate_bytes_per_second=rate)


def record(told: Story, file: Path) -> Recording:
    """The ten seconds as a file, as `ibpulse record` and the flight recorder write it."""
    reader, ticks = told.ring.reader, RecordedTicks(FIRST, LAST + 1, FIRST * 10 * MS)
    existed = told.log.history.during(FIRST, LAST + 1)
    ports = [RecordedPort.of(each, "counters", 1) for each in told.ring.fabric.ports if str(each.id) in existed]
    events, _ = events_in(told.log, reader, ticks)
    meta = RecordingMeta("node7", 10 * MS, ports_at_begin(ports, told.log.history, ticks), "record", events=events)
    save(file, concatenate(list(read_pieces(reader, meta, FIRST, LAST, ticks.start_ns, 100))))
    return load(file)


Found = tuple[float | None, float | None]


async def every_view(told: Story, path: Path) -> dict[str, Found]:
    """Line rate and peak utilisation of the last ten seconds, by view."""
    ring, history = told.ring, told.log.history
    aggregator = Aggregator(ring.reader, AggregatorOptions(), history)
    snapshot = follow(ring, aggregator, 2, LAST // 100)
    page = render(snapshot, CollectorRegistry(), "text/plain")[0].decode()
    families = {family.name: family.samples for family in text_string_to_metric_families(page)}
    lines = families.get("ibpulse_node_line_rate_bytes_per_second", [])
    peaks = families.get("ibpulse_node_bandwidth_peak_utilization_ratio", [])
    found: dict[str, Found] = {
        "metrics": (
            next((each.value for each in lines), None),
            next((each.value for each in peaks if each.labels["window"] == "10s"), None),
        )
    }
    parts = Node(ring.file, ring.file.slots(), LAST).parts(
        reader=ring.reader,
        snapshot=lambda: snapshot,
        summarize=lambda seconds, end_ns, had: aggregator.summarize(ring.fabric.ports, seconds, end_ns, had=had),
    )
    async with make_client(parts) as client:
        answer = await client.get("/api/v1/summary", params={"from": str(LAST / 100 - 10), "to": str(LAST / 100)})
    assert answer.status_code == 200, answer.text
    found["summary"] = node_members(answer.json()["node"], answer.json()["node"])
    async with served(parts) as client, listening(client, "?every=100ms") as listener:
        await settle(listener)
        second = await listener.next("summary")
    found["stream"] = node_members(second.data["node"], second.data["node"]["windows"]["10s"])
    values = run_of(record(told, path / "a.parquet")).values
    found["report"] = values["line_bytes_per_second"], values["peak_utilization_ratio"]
    reader = Clocked(ring.file)
    reader.now_tick = LAST
    known = tuple(KnownPort(each, history.now(str(each.id))) for each in ring.fabric.ports)
    view = RingWatcher(reader, lambda: known, lambda: 0, AggregatorOptions(), "", told.log).fetch(20, 100 * MS)
    screen = "\n".join("".join(span.text for span in row) for row in lay_out(view, 120, 40, BLOCKS))
    said = f"({told.peak_utilization * 100:.2f} % of line rate {told.line / 1e9:.1f})"
    assert (said in screen) == (found["summary"][0] is not None)
    assert view.summary
    node = view.summary.node
    found["top"] = node.line_rate_bytes_per_second, node.bandwidth_peak_utilization_ratio
    return found


def node_members(node: dict[str, Any], window: dict[str, Any]) -> Found:
    return node["line_rate_bytes_per_second"], window["bandwidth_peak_utilization_ratio"]


GONE = [(800, DOWN, FELL), (900, DOWN, None)]
# the highest sample comes at 2222, when the line rate is higher again
CHANGED = [(800, DOWN, FELL), (2120, IDLE, SLOWER), (2180, IDLE, UP)]
GOES = [(800, DOWN, FELL), (1651, DOWN, None)]


@pytest.mark.parametrize(
    ("changes", "down", "line", "mean", "peak"),
    [
        pytest.param([(800, DOWN, FELL)], FELL, 350e9, 350e9, None, id="down before"),
        pytest.param([(2050, DOWN, FELL)], FELL, 350e9, 350e9, None, id="down within"),
        pytest.param([], FELL, 350e9, 350e9, None, id="down from the beginning, with a rate that is known"),
        pytest.param([], NEVER, 400e9, 400e9, None, id="of unknown rate, so as fast as the fastest"),
        pytest.param(GONE, FELL, 300e9, 300e9, None, id="disappeared before"),
        pytest.param(
            CHANGED, FELL, 350e9, 350e9 - 2 * 45e9 * 0.06, 2 * (20 + 33) / 260, id="another rate for part of a second"
        ),
        pytest.param(GOES, FELL, 300e9, 300e9 + 2 * 25e9 * 0.25, 2 * (20 + 44) / 300, id="disappeared within"),
    ],
)
async def test_every_view_has_the_line_rate_and_the_peak_of_the_line_rate_at_its_sample(
    tmp_path: Path,
    changes: list[tuple[int, str, PortState | None]],
    down: PortState,
    line: float,
    mean: float,
    peak: float | None,
) -> None:
    told = story(tmp_path, *changes, down=down)
    assert peak is None or told.peak_utilization == pytest.approx(peak)
    found = await every_view(told, tmp_path)
    assert {name: each for name, (_, each) in found.items()} == dict.fromkeys(
        ("metrics", "summary", "stream", "report", "top"), pytest.approx(told.peak_utilization, rel=1e-6)
    )
    # a report has the mean of the whole span, the others what is in force at its end
    assert found.pop("report")[0] == pytest.approx(mean, rel=1e-4)
    assert told.line == line
    assert {name: value for name, (value, _) in found.items()} == dict.fromkeys(found, line)


def test_a_rate_that_is_assumed_is_said_while_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = story(tmp_path, down=NEVER)
    told.log.history.change(DOWN, 2150, NEVER, STATES[DOWN])
    aggregator = Aggregator(told.ring.reader, AggregatorOptions(), told.log.history)
    said = [update(told.ring, aggregator, second).fabric.notices for second in range(20, 25)]
    text = (
        "mlx5_3:1 is a rail whose data rate was never known: the line rate of the node assumes that of the fastest "
        "other rail. Its link has not been ACTIVE since the event log began, or its driver does not report the rate"
    )
    assert said == [(text,), (text,), (), (), ()]
    assert [each for each in caplog.messages if "never known" in each] == [text]
