"""`ibpulse model experts FILE`: how uneven the loads of experts are, what that costs, and on which rails it shows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.commands.arguments import read_amount
from ibpulse.errors import ConfigError
from ibpulse.units import SECOND_NS, parse_duration

if TYPE_CHECKING:
    from ibpulse.config import Settings
    from ibpulse.models.load_table import LoadRow
    from ibpulse.models.skew_report import SkewInputs

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
        "--ranks", type=int, metavar="COUNT", help="Expert-parallel ranks (default: one for each expert)."
    )
    parser.add_argument("--nodes", type=int, metavar="COUNT", help="Nodes of these ranks (default: unknown).")
    parser.add_argument(
        "--placement",
        type=Path,
        metavar="FILE",
        help="CSV with the expert in each slot, rank by rank, a row per layer (default: consecutive experts).",
    )
    parser.add_argument(
        "--tokens",
        type=float,
        metavar="COUNT",
        help="Token copies of a row (default: its sum, if all loads are whole numbers).",
    )
    parser.add_argument(
        "--exchange", metavar="DURATION", help="Time of a step's token exchanges with even loads, such as 120ms."
    )
    parser.add_argument("--step", metavar="DURATION", help="Time of a step.")
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the skew.

    Raises:
        ConfigError: an argument or a file cannot be used; lists all faults of arguments, or the first of a file.
    """
    from ibpulse.models.load_table import read_load_table  # not for help texts
    from ibpulse.models.skew_report import describe_skew
    from ibpulse.models.skew_text import render_json, render_text

    faults = _faults(arguments)
    seconds = {
        name: (read_amount(f"--{name}", getattr(arguments, name), parse_duration, faults) or 0) / SECOND_NS or None
        for name in ("exchange", "step")
    }
    if faults:
        raise ConfigError(faults)
    rows = read_load_table(arguments.file)
    placements = read_load_table(arguments.placement) if arguments.placement else ()
    inputs = _inputs(arguments, rows, placements, seconds["exchange"], seconds["step"])
    try:
        report = describe_skew(rows, inputs)
    except ValueError as error:
        raise ConfigError([f"{arguments.file}: {error}"]) from None
    print(render_json(report) if arguments.format == "json" else render_text(report), end="")
    return 0


def _inputs(
    arguments: argparse.Namespace,
    rows: tuple[LoadRow, ...],
    placements: tuple[LoadRow, ...],
    exchange: float | None,
    step: float | None,
) -> SkewInputs:
    from ibpulse.models.skew_report import SkewInputs

    return SkewInputs(
        ranks=arguments.ranks or len(rows[0].loads),
        nodes=arguments.nodes,
        tokens=arguments.tokens,
        placements=placements,
        exchange_seconds=exchange,
        step_seconds=step,
    )


def _faults(arguments: argparse.Namespace) -> list[str]:
    faults = []
    for name in ("ranks", "nodes"):
        value = getattr(arguments, name)
        if value is not None and not 1 <= value <= MOST_RANKS:
            faults.append(f"flag --{name}: {value} is out of bounds; give 1 to {MOST_RANKS}")
    if arguments.ranks == 1:
        faults.append("flag --ranks: 1 rank has nothing to balance; give 2 or more")
    if arguments.tokens is not None and not 0 < arguments.tokens <= 1e18:
        faults.append(f"flag --tokens: {arguments.tokens} is out of bounds; give more than 0 and at most 1e18")
    if arguments.placement and not arguments.ranks:
        faults.append("flag --placement: needs --ranks, the number of ranks that the slots are on")
    return faults
