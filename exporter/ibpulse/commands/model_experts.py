"""`ibpulse model experts FILE`: how uneven the loads of experts are, what that costs, and on which rails it shows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.values import SOME_TIME, number, whole
from ibpulse.errors import ConfigError
from ibpulse.units import SECOND_NS

if TYPE_CHECKING:
    from ibpulse.config import Settings

FORMATS = ("text", "json")
MOST_RANKS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the table, where the experts are, and what is known of the job."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="Loads as CSV: a row per layer (or time), a column per expert.",
    )
    parser.add_argument(
        "--ranks",
        type=whole(2, MOST_RANKS),
        help="Expert-parallel ranks (default: one for each expert).",
    )
    parser.add_argument("--nodes", type=whole(1, MOST_RANKS), help="Nodes of these ranks (default: unknown).")
    parser.add_argument(
        "--placement",
        type=Path,
        metavar="FILE",
        help="CSV with the expert in each slot, rank by rank, a row per layer (default: consecutive experts).",
    )
    parser.add_argument(
        "--tokens",
        type=number(0, 1e18, "COUNT", "4096", some=True),
        help="Token copies of a row (default: its sum, if all loads are whole numbers).",
    )
    parser.add_argument(
        "--exchange",
        type=SOME_TIME,
        help="Time of a step's token exchanges with even loads, such as 120ms.",
    )
    parser.add_argument("--step", type=SOME_TIME, help="Time of a step.")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the skew.

    Raises:
        ConfigError: an argument or a file cannot be used; lists all faults of arguments, or the first of a file.
    """
    from ibpulse.models.load_table import read_load_table  # not for help texts
    from ibpulse.models.skew_report import SkewInputs, describe_skew
    from ibpulse.models.skew_text import render_json, render_text

    if arguments.placement and not arguments.ranks:
        raise ConfigError("flag --placement: needs --ranks, the number of ranks that the slots are on")
    rows = read_load_table(arguments.file)
    placements = read_load_table(arguments.placement) if arguments.placement else ()
    inputs = SkewInputs(
        ranks=arguments.ranks or len(rows[0].loads),
        nodes=arguments.nodes,
        tokens=arguments.tokens,
        placements=placements,
        exchange_seconds=arguments.exchange and arguments.exchange / SECOND_NS,
        step_seconds=arguments.step and arguments.step / SECOND_NS,
    )
    try:
        report = describe_skew(rows, inputs)
    except ValueError as error:
        raise ConfigError([f"{arguments.file}: {error}"]) from None
    print(render_json(report) if arguments.format == "json" else render_text(report), end="")
    return 0
