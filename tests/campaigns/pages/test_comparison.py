"""Rails compared: differences from the median in the waterfall, the line chart, and groups of rails."""

from __future__ import annotations

import numpy as np
import pytest

from tests.campaigns.pages.browser import Live
from tests.campaigns.pages.staged import FLAPPED, at_ms, held, shown, story
from tests.running import eventually

__all__ = ["shown", "story"]
pytestmark = pytest.mark.needs("chromium")
MIDDLE = np.array([0x2F, 0x35, 0x3C])
# after the link of mlx5_0:1 has come back with all its traffic, before ports disappear
SAME = f"#from={at_ms(16)}&to={at_ms(19)}"
# the link of mlx5_0:1 is down, the others send
DOWN = f"#from={at_ms(11)}&to={at_ms(14)}"
READ = """Promise.all([import('/static/columns.js'), import('/static/comparison.js'), import('/static/chart.js')]).then(
  ([columns, comparison, chart]) => {
    const { store, rows, span, momentMs } = ibpulse;
    const read = columns.readColumns(store, rows, span.fromMs, span.toMs, 300);
    const groups = comparison.groupRows(rows, momentMs);
    const plain = (line) => [line.kind, line.way, [...line.values]];
    const lines = (kind) => chart.chartLines(kind, read, rows, momentMs).map(plain);
    return {
      values: [...read.values], groups, medians: comparison.medians(read, groups).map((each) => [...each]),
      means: comparison.meanDifferences(read, groups), node: lines('node'), rails: lines('rails'),
    };
  })"""


def test_medians_differences_and_sums_are_those_of_the_samples(shown: Live) -> None:
    held(shown, DOWN)
    found = shown.page.evaluate(READ)
    values = np.array(found["values"], dtype=float).reshape(8, 300)
    assert found["groups"] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert (values[0] == 0).all()
    assert values[6].max() == 28e9
    for rows, median in zip(found["groups"], found["medians"], strict=True):
        np.testing.assert_allclose(median, np.median(values[rows], axis=0))
        means = (values[rows] - np.median(values[rows], axis=0)).mean(axis=1)
        np.testing.assert_allclose([found["means"][row] for row in rows], means, atol=1)
    for kind, way, line in found["node"]:
        assert kind == "node"
        np.testing.assert_allclose(line, values[way::2].sum(axis=0))
    assert [kind for kind, _, _ in found["rails"]] == ["rails"] * 8 + ["median"] * 2


def test_the_chart_changes_with_a_key_and_names_the_rail_that_differs_most(shown: Live) -> None:
    held(shown, f"{DOWN}&unit=bits")
    assert shown.text("#chart-words") == "Sum of the shown rails."
    # three rails of 26 to 28 GB/s that send
    assert shown.text("#chart-top") == "800 Gb/s"
    shown.press("l")
    assert "chart=rails" in shown.page.url
    eventually(lambda: "Farthest: mlx5_0:1 transmit, −" in shown.text("#chart-words"))
    shown.press("-", "-", "-", "-")
    eventually(lambda: "the highest sample of its column" in shown.text("#chart-words"))
    shown.press("l")
    eventually(lambda: not shown.page.is_visible("#chart"))
    shown.press("l")
    eventually(lambda: "their sum is an upper limit" in shown.text("#chart-words"))


def test_the_difference_view_shows_only_what_differs(shown: Live) -> None:
    held(shown, f"{SAME}&values=differences&direction=transmit&unit=bytes")
    rows = [shown.row(number, 4) for number in range(4)]
    assert all((np.abs(row.astype(int) - MIDDLE).max(axis=1) < 20).mean() > 0.98 for row in rows)
    assert shown.text("#zero-words") == "As the median"
    held(shown, f"{DOWN}&values=differences&direction=receive&unit=bytes")
    # what the others receive is missing on the link that is down: a pattern, never a difference
    assert not (np.abs(shown.row(0, 4).astype(int) - MIDDLE).max(axis=1) < 12).any()
    shown.press("m")
    shown.settle()
    assert "values" not in shown.page.url
    assert shown.text("#zero-words") == "No traffic"


def test_a_group_of_rails_is_chosen_with_one_button(shown: Live) -> None:
    shown.open()
    groups = shown.page.evaluate(
        """Promise.all([import('/static/rails.js'), import('/static/states.js')]).then(([rails, states]) => {
          const state = { active: true, state: 'ACTIVE', rate_bytes_per_second: 50e9, rail: true };
          const port = (name, role) => ({ port: name, ...state, role });
          const job = (id, ports) => ({ job_id: id, scheduler: 'slurm', name: '', ports, from_ms: null, to_ms: null });
          const layout = states.prepare({
            ports: [port('a:1', 'compute'), port('b:1', 'compute'), port('c:1', 'storage')],
            jobs: [job('7', ['a:1']), job('8', ['b:1'])],
          });
          const sheet = document.createElement('div');
          let chosen = null;
          rails.showChoice(sheet, layout, null, Infinity, (names) => (chosen = names));
          const press = (each) => (each.click(), [each.textContent, chosen]);
          return [...sheet.querySelectorAll('.groups button')].map(press);
        })"""
    )
    assert groups == [
        ["Job 7", ["a:1"]],
        ["Role compute", ["a:1", "b:1"]],
        ["Job 8", ["b:1"]],
        ["Role storage", ["c:1"]],
    ]
    assert shown.complaints == []


def test_rates_have_the_unit_that_fits_and_is_chosen(shown: Live) -> None:
    shown.open(f"{SAME}&unit=bits")
    found = shown.page.evaluate(
        """import('/static/format.js').then(({ rate }) =>
          [rate(999.4e9), rate(999.5e9), rate(12.5e9, 'bits'), rate(1e12, 'bits'), rate(6.3e12, 'ratio'), rate(null)]
        )"""
    )
    assert found == ["999 GB/s", "1.00 TB/s", "100 Gb/s", "8.00 Tb/s", "6.30 TB/s", "– GB/s"]
    eventually(lambda: "Gb/s" in shown.card("Peak"))
    assert shown.page.get_attribute("button[data-unit=bits]", "aria-pressed") == "true"
    canvas = shown.page.locator("#waterfall").bounding_box()
    assert canvas
    shown.page.mouse.move(canvas["x"] + 100, canvas["y"] + 20)
    eventually(lambda: "Gb/s" in shown.text("#reading"))
    shown.press("u")
    eventually(lambda: "unit" not in shown.page.url)
    assert FLAPPED in shown.text("#names")
