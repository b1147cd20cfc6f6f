"""What the page knows of the past, in the browser: unknown is never drawn as a hole, and a hole never as a value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaigns.pages.browser import Live

pytestmark = pytest.mark.needs("chromium")

# a tile of 50 ms bins begins there
START = 1_763_683_200_000 - 1_763_683_200_000 % 25_600
BEGIN = (
    f"const start = {START};"
    + """
const { Store } = await import('/static/store.js');
const store = new Store();
store.describe({ interval_ms: 10, history_ms: 60000, ports: [{ port: 'a:1' }] });
const batch = (at, values) => store.add({ start_ms: at, megabytes_per_second: [values, values.map(() => 1)] });
const fetched = (tile, at, values) => store.fill(tile, [Float32Array.from(values), Float32Array.from(values)],
  { start_ms: at, points: values.length, end_ms: at + values.length * tile.widthMs });
const word = (value) => (value === undefined ? 'unknown' : Number.isNaN(value) ? 'hole' : value);
"""
)


def run(shown: Live, script: str) -> Any:
    """What a script returns that has a store with one port."""
    return shown.page.evaluate(f"(async () => {{ {BEGIN} {script} }})()")


@pytest.fixture(autouse=True)
def opened(shown: Live) -> None:
    if "127.0.0.1" not in shown.page.url:
        shown.open()


def test_a_width_that_is_looked_at_later_has_the_samples_that_passed_before(shown: Live) -> None:
    found = run(
        shown,
        """batch(start - 100, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]); batch(start, [7, 7, 8, null, null]);
        const [tile] = store.span(50, start, start + 50);
        return [tile.whole, word(store.highest(0, 50, start, start + 50))];""",
    )
    assert found == [False, 8e6]


def test_a_bin_in_which_the_stream_began_is_asked_for_again(shown: Live) -> None:
    found = run(
        shown,
        """batch(start + 120, [1, 1]); const [tile] = store.span(50, start, start + 50);
        fetched(tile, start, [9e6, 9e6]);
        const first = [tile.whole, word(store.highest(0, 50, start + 100, start + 150))];
        batch(start + 140, [1, null]); fetched(tile, start, [9e6, 9e6, 9e6]);
        return [...first, tile.whole, word(store.highest(0, 50, start + 100, start + 150))];""",
    )
    assert found == [False, 1e6, True, 9e6]


def test_samples_too_long_ago_have_to_be_fetched(shown: Live) -> None:
    found = run(
        shown,
        """for (let at = -1000; at < 30000; at += 100) batch(start + at, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        const [tile] = store.span(50, start, start + 50);
        const before = word(store.highest(0, 50, start, start + 50));
        fetched(tile, start, Array(512).fill(9e6));
        return [before, tile.whole, word(store.highest(0, 50, start, start + 50))];""",
    )
    assert found == ["unknown", True, 9e6]


def test_a_tile_that_begins_while_it_is_watched_needs_no_fetch(shown: Live) -> None:
    found = run(
        shown,
        """batch(start - 100, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]); store.span(50, start - 100, start);
        batch(start, [7, null, 8, null, null, null, null, null, null, null]);
        const [tile] = store.span(50, start, start + 50);
        const at = (ms) => word(store.highest(0, 50, start + ms, start + ms + 50));
        return [tile.whole, at(0), at(50), at(100)];""",
    )
    assert found == [True, 8e6, "hole", "unknown"]


def test_a_gap_of_the_stream_is_unknown_until_it_is_fetched(shown: Live) -> None:
    found = run(
        shown,
        """store.span(10, start, start + 10); batch(start, [5, 5]); const [tile] = store.span(10, start, start + 10);
        fetched(tile, start, [5e6, 5e6]);
        batch(start + 100, [6]);
        const gap = word(store.highest(0, 10, start + 50, start + 60));
        const wanted = !tile.whole;
        fetched(tile, start, [5e6, 5e6, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN, 6e6]);
        return [gap, wanted, word(store.highest(0, 10, start + 50, start + 60)), tile.whole];""",
    )
    assert found == ["unknown", True, "hole", True]


def test_a_sample_that_comes_twice_counts_once_and_the_highest_counts(shown: Live) -> None:
    found = run(
        shown,
        """const [tile] = store.span(50, start, start + 50);
        batch(start, [3, 9, 4, 1, 2]); fetched(tile, start, [9e6]); batch(start, [3, 9, 4, 1, 2]);
        return [word(store.highest(0, 50, start, start + 50)), word(store.highest(1, 50, start, start + 50))];""",
    )
    assert found == [9e6, 9e6]


def test_other_ports_empty_the_store(shown: Live) -> None:
    found = run(
        shown,
        """batch(start, [1]); store.describe({ interval_ms: 10, ports: [{ port: 'a:1' }] });
        const kept = store.newestMs; store.describe({ interval_ms: 10, ports: [{ port: 'b:1' }] });
        return [kept > 0, store.newestMs, store.tiles.size];""",
    )
    assert found == [True, 0, 0]


def test_merged_samples_are_marked_from_the_stream_and_from_a_window(shown: Live) -> None:
    found = run(
        shown,
        """const at = (width, series, ms) => store.merged(series, width, start + ms, start + ms + width);
        store.span(10, start, start + 10); store.span(50, start, start + 50);
        store.add({ start_ms: start, megabytes_per_second: [[5, 5, 5, 5], [1, 1, 1, 1]], merged: [[0, 1, 2]] });
        const streamed = [0, 10, 20, 30].map((ms) => [at(10, 0, ms), at(10, 1, ms)]);
        const [tile] = store.span(50, start, start + 50);
        const rows = [Float32Array.from([5e6, 5e6, 5e6]), Float32Array.from([1e6, 1e6, 1e6])];
        store.fill(tile, rows, { start_ms: start, points: 3, end_ms: start + 150,
          series: ['b:1 transmit', 'a:1 receive'], implausible: { places: [[0, 0, 3], [1, 1, 2]] } });
        return [streamed, [0, 50, 100].map((ms) => [at(50, 0, ms), at(50, 1, ms)])];""",
    )
    assert found == [
        [[False, False], [True, False], [True, False], [False, False]],
        [[True, False], [False, True], [False, True]],
    ]


def test_a_white_bar_marks_merged_samples_in_the_waterfall(shown: Live) -> None:
    """Eight columns of 10 ms, a row of each direction; the upper edge and the middle of each, as brightness."""
    found = run(
        shown,
        """const { drawRows, paintHeat } = await import('/static/heat.js');
        const { prepare } = await import('/static/states.js');
        const port = { port: 'a:1', rate_bytes_per_second: 50e9, active: true, state: 'ACTIVE', rail: true };
        store.describe(prepare({ interval_ms: 10, history_ms: 60000, ports: [port] }));
        store.span(10, start, start + 80);
        const none = Array(8).fill(0);
        store.add({ start_ms: start, megabytes_per_second: [none, none], merged: [[0, 2, 3]] });
        const rows = [0, 1].map((series) => ({ port: store.layout.ports[0], series, top: 50e9 }));
        const context = new OffscreenCanvas(8, 40).getContext('2d');
        const painted = paintHeat(store, rows, start, start + 80, 8, { map: 'viridis' }, 0xff000000);
        drawRows(context, painted, 0, [{ y: 0, height: 20 }, { y: 20, height: 20 }], 1);
        const light = (x, y) => Math.min(...context.getImageData(x, y, 1, 1).data.slice(0, 3)) > 240;
        return [1, 10, 21, 30].map((y) => Array.from({ length: 8 }, (_, x) => light(x, y)));""",
    )
    marked = [2 <= column < 5 for column in range(8)]
    assert found == [marked, [False] * 8, [False] * 8, [False] * 8]


COARSE = "store.describe({ interval_ms: 10, batch_ms: 100, history_ms: 60000, ports: [{ port: 'a:1' }] });"


def test_batches_of_coarser_values_fill_no_narrower_bins(shown: Live) -> None:
    found = run(
        shown,
        f"""{COARSE}
        const at = (width, ms) => word(store.highest(0, width, start + ms, start + ms + width));
        batch(start - 200, [3, 3]); const [narrow] = store.span(10, start, start + 10);
        const [wide] = store.span(100, start, start + 100);
        batch(start, [5, null, 7]);
        const wholes = [wide.whole, narrow.whole];
        const streamed = [...wholes, at(100, 0), at(100, 100), at(200, 200), at(10, 0), store.streamedMs - start];
        fetched(narrow, start, [5e6, NaN]);
        return [...streamed, narrow.whole, at(10, 0), at(10, 10)];""",
    )
    assert found == [False, False, 5e6, "unknown", 7e6, "unknown", 300, True, 5e6, "hole"]


def test_only_a_held_view_has_bins_that_are_narrower_than_the_values_of_a_batch(shown: Live) -> None:
    script = f"{COARSE} const all = () => [1, 10, 99, 100, 250, 999].map((ms) => store.widthFor(ms));"
    found = run(shown, f"{script} const live = all(); store.fine = true; return [live, all()];")
    assert found == [[100, 100, 100, 100, 200, 500], [10, 10, 50, 100, 200, 500]]


def test_a_value_that_arrives_later_replaces_missing_data_and_nothing_else(shown: Live) -> None:
    found = run(
        shown,
        """batch(start, [null, 5]); batch(start, [6, null]); store.span(10, start, start + 20);
        return [0, 10].map((ms) => word(store.highest(0, 10, start + ms, start + ms + 10)));""",
    )
    assert found == [6e6, 5e6]


def test_rows_without_an_answer_are_asked_for_again(shown: Live) -> None:
    found = run(
        shown,
        """const [tile] = store.span(50, start, start + 50);
        const about = { start_ms: start, points: 1, end_ms: start + 50 };
        const rows = () => [Float32Array.from([NaN]), Float32Array.from([NaN])];
        store.fill(tile, rows(), { ...about, missing: ['a:1'] }); const first = tile.partial;
        store.fill(tile, rows(), about); return [first, tile.partial];""",
    )
    assert found == [True, False]


def test_widths_go_up_in_steps_of_one_two_and_five(shown: Live) -> None:
    found = run(shown, "return [1, 10, 19, 20, 49, 50, 99, 100, 1999, 5000].map((ms) => store.widthFor(ms));")
    assert found == [10, 10, 10, 20, 20, 50, 50, 100, 1000, 5000]
