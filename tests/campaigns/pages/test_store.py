"""What the page knows of the past, in the browser: unknown is never drawn as a hole, and a hole never as a value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.campaigns.pages.browser import Live
from tests.tables import for_each

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
const seen = (width, ms, series = 0) => word(store.highest(series, width, start + ms, start + ms + width));
const coarse = () =>
  store.describe({ interval_ms: 10, batch_ms: 100, history_ms: 60000, ports: [{ port: 'a:1' }] });
"""
)
CASES: dict[str, tuple[str, list[object]]] = {
    "a width that is looked at later has the samples that passed before": (
        """batch(start - 100, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]); batch(start, [7, 7, 8, null, null]);
        const [tile] = store.span(50, start, start + 50);
        return [tile.whole, seen(50, 0)];""",
        [False, 8e6],
    ),
    "a bin in which the stream began is asked for again": (
        """batch(start + 120, [1, 1]); const [tile] = store.span(50, start, start + 50);
        fetched(tile, start, [9e6, 9e6]);
        const first = [tile.whole, seen(50, 100)];
        batch(start + 140, [1, null]); fetched(tile, start, [9e6, 9e6, 9e6]);
        return [...first, tile.whole, seen(50, 100)];""",
        [False, 1e6, True, 9e6],
    ),
    "samples too long ago have to be fetched": (
        """for (let at = -1000; at < 30000; at += 100) batch(start + at, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        const [tile] = store.span(50, start, start + 50);
        const before = seen(50, 0);
        fetched(tile, start, Array(512).fill(9e6));
        return [before, tile.whole, seen(50, 0)];""",
        ["unknown", True, 9e6],
    ),
    "a tile that begins while it is watched needs no fetch": (
        """batch(start - 100, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5]); store.span(50, start - 100, start);
        batch(start, [7, null, 8, null, null, null, null, null, null, null]);
        const [tile] = store.span(50, start, start + 50);
        return [tile.whole, seen(50, 0), seen(50, 50), seen(50, 100)];""",
        [True, 8e6, "hole", "unknown"],
    ),
    "a gap of the stream is unknown until it is fetched": (
        """store.span(10, start, start + 10); batch(start, [5, 5]); const [tile] = store.span(10, start, start + 10);
        fetched(tile, start, [5e6, 5e6]);
        batch(start + 100, [6]);
        const gap = [seen(10, 50), tile.whole];
        fetched(tile, start, [5e6, 5e6, NaN, NaN, NaN, NaN, NaN, NaN, NaN, NaN, 6e6]);
        return [...gap, seen(10, 50), tile.whole];""",
        ["unknown", False, "hole", True],
    ),
    "a sample that comes twice counts once, and the highest counts": (
        """const [tile] = store.span(50, start, start + 50);
        batch(start, [3, 9, 4, 1, 2]); fetched(tile, start, [9e6]); batch(start, [3, 9, 4, 1, 2]);
        return [seen(50, 0), seen(50, 0, 1)];""",
        [9e6, 9e6],
    ),
    "other ports empty the store": (
        """batch(start, [1]); store.describe({ interval_ms: 10, ports: [{ port: 'a:1' }] });
        const kept = store.newestMs; store.describe({ interval_ms: 10, ports: [{ port: 'b:1' }] });
        return [kept > 0, store.newestMs, store.tiles.size];""",
        [True, 0, 0],
    ),
    "merged samples are marked from the stream and from a window": (
        """const at = (width, series, ms) => store.merged(series, width, start + ms, start + ms + width);
        store.span(10, start, start + 10); store.span(50, start, start + 50);
        store.add({ start_ms: start, megabytes_per_second: [[5, 5, 5, 5], [1, 1, 1, 1]], merged: [[0, 1, 2]] });
        const streamed = [0, 10, 20, 30].map((ms) => [at(10, 0, ms), at(10, 1, ms)]);
        const [tile] = store.span(50, start, start + 50);
        const rows = [Float32Array.from([5e6, 5e6, 5e6]), Float32Array.from([1e6, 1e6, 1e6])];
        store.fill(tile, rows, { start_ms: start, points: 3, end_ms: start + 150,
          series: ['b:1 transmit', 'a:1 receive'], implausible: { places: [[0, 0, 3], [1, 1, 2]] } });
        return [streamed, [0, 50, 100].map((ms) => [at(50, 0, ms), at(50, 1, ms)])];""",
        [
            [[False, False], [True, False], [True, False], [False, False]],
            [[True, False], [False, True], [False, True]],
        ],
    ),
    # eight columns of 10 ms, a row of each direction; the upper edge and the middle of each, as brightness
    "a white bar marks merged samples in the waterfall": (
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
        [[2 <= column < 5 for column in range(8)], *[[False] * 8] * 3],
    ),
    "a value of a batch is the highest of its bin": (
        """coarse();
        batch(start - 200, [3, 3]); const [narrow] = store.span(10, start, start + 10);
        const [wide] = store.span(100, start, start + 100);
        batch(start, [5, null, 7]);
        const streamed = [wide.whole, narrow.whole, seen(100, 0), seen(100, 100), seen(200, 200), seen(10, 0)];
        const reach = store.streamedMs - start;
        fetched(narrow, start, [5e6, NaN]);
        return [...streamed, reach, narrow.whole, seen(10, 0), seen(10, 10)];""",
        [False, False, 5e6, "unknown", 7e6, "unknown", 300, True, 5e6, "hole"],
    ),
    "only a held view has bins that are narrower than the values of a batch": (
        """coarse(); const all = () => [1, 10, 99, 100, 250, 999].map((ms) => store.widthFor(ms));
        const live = all(); store.fine = true; return [live, all()];""",
        [[100, 100, 100, 100, 200, 500], [10, 10, 50, 100, 200, 500]],
    ),
    "widths go up in steps of one, two and five": (
        "return [1, 10, 19, 20, 49, 50, 99, 100, 1999, 5000].map((ms) => store.widthFor(ms));",
        [10, 10, 10, 20, 20, 50, 50, 100, 1000, 5000],
    ),
    "a value that arrives later replaces missing data and nothing else": (
        """batch(start, [null, 5]); batch(start, [6, null]); store.span(10, start, start + 20);
        return [seen(10, 0), seen(10, 10)];""",
        [6e6, 5e6],
    ),
    "rows without an answer are asked for again": (
        """const [tile] = store.span(50, start, start + 50);
        const about = { start_ms: start, points: 1, end_ms: start + 50 };
        const rows = () => [Float32Array.from([NaN]), Float32Array.from([NaN])];
        store.fill(tile, rows(), { ...about, missing: ['a:1'] }); const first = tile.partial;
        store.fill(tile, rows(), about); return [first, tile.partial];""",
        [True, False],
    ),
}


@for_each(CASES)
def test_the_store_knows_what_it_was_told(script: str, expected: list[object], shown: Live) -> None:
    if "127.0.0.1" not in shown.page.url:
        shown.open()
    found: Any = shown.page.evaluate(f"(async () => {{ {BEGIN} {script} }})()")
    assert found == expected
