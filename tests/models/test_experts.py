"""Skew of expert loads: the published example of EPLB, chance, persistence, rails, cost, and hostile tables."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.workbench.models import experts
from ibpulse.workbench.models.inputs import read_load_table
from tests.docs.pages import ROOT, blocks

# loads of 12 experts in 2 layers, and a placement of 16 replicas on 8 GPUs: the example in the README of EPLB
LOADS = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
PLACED = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]


def write_csv(path: Path, rows: Sequence[Sequence[float]]) -> Path:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "loads.csv", LOADS)


def test_the_example_of_the_load_balancer() -> None:
    loads = experts.placed_loads(LOADS[0], PLACED[0], 8)
    assert loads == [121.5, 86.5, 125, 113, 147.5, 131.5, 156, 152]
    assert round(experts.measured_penalty(loads), 4) == 1.2081
    nodes = experts.rank_loads(loads, 2)
    assert nodes == [446, 587]
    assert round(experts.measured_penalty(nodes), 4) == 1.1365
    assert round(experts.measured_penalty(experts.rank_loads(LOADS[0], 4)), 4) == 1.2778
    assert round(experts.measured_penalty(LOADS[0]), 4) == 2.1258


def test_unevenness_against_chance() -> None:
    found = experts.describe_loads([1.0, 1.0, 1.0, 5.0], 1024)
    # mean 2, deviations 1, 1, 1, 3
    assert (found.penalty, found.hottest) == (2.5, 3)
    assert found.cv == pytest.approx(math.sqrt(3) / 2)
    assert found.jain == pytest.approx(1 / 1.75)
    assert found.chance == pytest.approx(1 + 1.049 * math.sqrt(0.75 / 256), abs=1e-3)
    assert found.skewed is True
    assert experts.describe_loads([1.0, 1.0], None).skewed is None


@pytest.mark.parametrize("ranks", [8, 64])
def test_only_popular_experts_are_skewed(ranks: int) -> None:
    rng = random.Random(ranks)
    tokens, skewed, worst = 128 * ranks, 0, 0.0
    for _ in range(40):
        loads = [0.0] * ranks
        for _ in range(tokens):
            loads[rng.randrange(ranks)] += 1
        found = experts.describe_loads(loads, tokens)
        skewed += bool(found.skewed)
        worst += found.penalty / 40
    # the mean over draws is what chance says
    assert found.chance == pytest.approx(worst, abs=0.03)
    assert skewed <= 12
    assert experts.describe_loads([2.0 * tokens / ranks] + [tokens / ranks] * (ranks - 1), tokens).skewed


def test_rank_correlation_and_persistence() -> None:
    assert experts.rank_correlation([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1.0)
    assert experts.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # 1 - 6 sum d^2 / (n (n^2 - 1)), d = 1, -1, 0, 0
    assert experts.rank_correlation([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(1 - 12 / 60)
    # ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2
    assert experts.rank_correlation([5, 5, 9], [1, 2, 3]) == pytest.approx(1.5 / math.sqrt(3))
    assert math.isnan(experts.rank_correlation([1, 1], [1, 2]))
    assert math.isnan(experts.persistence([[1, 2]]))
    assert experts.persistence([[1, 2, 3], [2, 4, 6], [3, 2, 1]]) == pytest.approx(0.0)
    # a window in which all experts are alike has no order
    assert experts.persistence([[1, 2, 3], [2, 4, 6], [5, 5, 5], [1, 2, 3]]) == pytest.approx(1.0)


def test_a_hot_expert_on_the_rails() -> None:
    # 3 nodes of 4 GPUs; rank 6 is local index 2 of node 1
    loads = [12.0] * 12
    loads[6] = 60.0
    ways = {rails.path: rails for rails in experts.rail_loads(loads, 3)}
    for rails in ways.values():
        # each node sends a third of what the others hold, and gets two thirds of what it holds
        assert [math.fsum(row) for row in rails.transmit] == pytest.approx([48.0, 32.0, 48.0])
        assert [math.fsum(row) for row in rails.receive] == pytest.approx([32.0, 64.0, 32.0])
    assert ways[experts.PXN].transmit == ((8, 8, 24, 8), (8, 8, 8, 8), (8, 8, 24, 8))
    assert ways[experts.PXN].receive[1] == (8, 8, 40, 8)
    assert ways[experts.WITHOUT_PXN].transmit[0] == (12, 12, 12, 12)
    assert experts.hottest(ways[experts.WITHOUT_PXN].receive)[:2] == (1, 2)
    assert ways[experts.DEDUPLICATED].transmit[0] == (12, 12, 12, 12)
    assert ways[experts.DEDUPLICATED].receive == ((8, 8, 8, 8), (16, 16, 16, 16), (8, 8, 8, 8))
    with pytest.raises(ValueError, match="12 ranks do not divide by 5 nodes"):
        experts.rail_loads(loads, 5)


BLOM = {2: 0.589, 4: 1.049, 8: 1.434, 16: 1.769, 32: 2.067, 64: 2.337, 128: 2.585, 256: 2.815, 512: 3.031, 1024: 3.234}


@pytest.mark.parametrize(("count", "expected"), BLOM.items())
def test_expected_maximum(count: int, expected: float) -> None:
    assert experts.largest_of(count) == pytest.approx(expected, abs=1e-3)
    drawn = np.random.default_rng(count).standard_normal((20_000, count)).max(axis=1).mean()
    assert experts.largest_of(count) == pytest.approx(float(drawn), abs=0.03)


@pytest.mark.parametrize(
    ("ranks", "copies", "formula", "simulated"),
    [(64, 4096, 1.290, 1.304), (64, 8192, 1.205, 1.214), (128, 131_072, 1.081, 1.082), (64, 2_097_152, 1.013, 1.013)],
)
def test_penalty_of_chance(ranks: int, copies: int, formula: float, simulated: float) -> None:
    found = experts.penalty(ranks, experts.chance_cv(ranks, copies))
    assert found == pytest.approx(formula, abs=1e-3)
    assert found == pytest.approx(simulated, rel=0.03)
    draws = np.random.default_rng(3).multinomial(copies, [1 / ranks] * ranks, size=2000)
    assert found == pytest.approx(float((draws.max(axis=1) / draws.mean(axis=1)).mean()), rel=0.03)


@pytest.mark.parametrize("loads", [[], [0.0, 0.0], [-1.0, 2.0], [float("nan")], [float("inf"), 1.0]])
def test_invalid_loads_are_refused(loads: list[float]) -> None:
    with pytest.raises(ValueError, match="loads are numbers of 0 or more"):
        experts.measured_penalty(loads)


def test_indivisible_loads_are_refused() -> None:
    with pytest.raises(ValueError, match="10 loads do not divide by 4 ranks"):
        experts.rank_loads([1.0] * 10, 4)
    with pytest.raises(ValueError, match="1 loads have no expected maximum"):
        experts.largest_of(1)


def test_the_command_with_a_placement(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = write_csv(tmp_path / "plan.csv", PLACED)
    flags = [f"--placement={plan}", "--ranks=8", "--nodes=2", "--exchange=120ms", "--step=1s"]
    words = ["model", "experts", str(table), *flags]
    assert main(words, {}) == 0
    text = capsys.readouterr().out
    assert text.splitlines(keepends=True)[0] in blocks(ROOT / "docs/overlap.md")
    assert text.startswith("skewed: 2 of 2 layers; layer 1: rank 1 has 1.242 x the mean, by chance 1.112\n")
    assert main([*words, "--format=json"], {}) == 0
    found = json.loads(capsys.readouterr().out)
    assert [round(layer["ranks"]["penalty"], 4) for layer in found["layers"]] == [1.2081, 1.2422]
    assert round(found["layers"][0]["nodes"]["penalty"], 4) == 1.1365
    assert found["added_seconds"] == {"low": 0.0, "high": pytest.approx(0.12 * (1.22518 - 1), rel=1e-3)}
    assert [rails["path"] for rails in found["rails"]] == [experts.PXN, experts.WITHOUT_PXN, experts.DEDUPLICATED]


def test_columns_with_names(table: Path, tmp_path: Path) -> None:
    header = "layer," + ",".join(f"e{at}" for at in range(12))
    lines = [f"{at}," + ",".join(map(str, row)) for at, row in enumerate(LOADS)]
    named = tmp_path / "named.csv"
    named.write_text("\n".join([header, *lines]))
    for path in (table, named):
        rows = read_load_table(path)
        assert [(row.layer, row.loads) for row in rows] == [("0", tuple(LOADS[0])), ("1", tuple(LOADS[1]))]


def test_windows_of_a_layer_are_added_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "windows.csv"
    path.write_text("layer,step,a,b,c\nmoe,1,1,2,3\nmoe,2,2,4,9\nother,1,5,5,6\n")
    assert main(["model", "experts", str(path), "--format=json"], {}) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    assert [(one["layer"], one["windows"], one["persistence"]) for one in layers] == [
        ("moe", 2, pytest.approx(1.0)),
        ("other", 1, None),
    ]
    assert layers[0]["ranks"]["loads"] == [3, 6, 12]


def test_shares_have_no_chance_without_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "shares.csv"
    path.write_text("0.2,0.3,0.5\n")
    assert main(["model", "experts", str(path)], {}) == 0
    assert capsys.readouterr().out.startswith(
        "uneven, but chance is unknown without the number of tokens; layer 0: rank 2 "
    )
    assert main(["model", "experts", str(path), "--tokens=30"], {}) == 0
    assert capsys.readouterr().out.startswith("skewed: 1 of 1 layer; layer 0: rank 2 has 1.5 x the mean, by chance 1.2")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "x.csv: has no loads; write a row for each layer"),
        (b"1,2\n3,nan\n", "x.csv:2: 'nan' is not a load; give a number from 0 to 1e+18"),
        (b"1,2\n3,four\n", "x.csv:2: 'four' is not a load"),
        (b"1,2\n3,4,5\n", "x.csv:2: has 3 loads, but the first row has 2"),
        (b"a,b\n3,4,5\n", "x.csv:2: has 3 columns, but the header has 2"),
        (b"1,2\n0,0\n", "x.csv:2: has only loads of 0; leave the row out"),
        (b"7\n", "x.csv:1: has 1 loads; give those of two or more experts"),
        (b'"' + b"1" * 200_000, "x.csv: is not CSV: field larger than field limit"),
        (b"1," * 1_000_000 + b"1\n" + b"1," * 1_000_001, "x.csv: has more than 2000000 values"),
    ],
)
def test_invalid_tables_get_one_error(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        read_load_table(path)
    (fault,) = refusal.value.faults
    assert fault.replace(f"{tmp_path}/", "").startswith(sentence)
    assert "\n" not in fault


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--ranks=4", "--nodes=3"], "4 ranks do not divide by 3 nodes; give nodes that divide them"),
        (["--ranks=1"], "flag --ranks: 1 is out of bounds; choose 2 to 1000000"),
        (["--placement=x"], "flag --placement: needs --ranks, the number of ranks that the slots are on"),
    ],
)
def test_arguments_that_do_not_fit(
    table: Path, words: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "experts", str(table), *words], {}) == 2
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ([[0, 1]], "the placement has 1 rows for 2 layers; give one for each"),
        ([[0.5, 1]] * 2, "the placement of layer 0 has numbers that are not whole; give numbers of experts"),
        ([[0, 12]] * 2, "expert 12 does not exist; the table has experts 0 to 11"),
        ([[0, 1]] * 2, "expert 2 is on no rank; place every expert"),
        ([[*range(12), 0]] * 2, "13 loads do not divide by 2 ranks; give one per expert"),
    ],
)
def test_placements_that_do_not_fit(
    table: Path, tmp_path: Path, plan: list[list[float]], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_csv(tmp_path / "plan.csv", plan)
    assert main(["model", "experts", str(table), "--ranks=2", f"--placement={path}"], {}) == 2
    assert fault in capsys.readouterr().err
