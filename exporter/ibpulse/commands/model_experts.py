"""`ibpulse model experts FILE`: how uneven the loads of experts are, what that costs, and on which rails it shows."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.base.errors import ConfigError
from ibpulse.base.units import SECOND_NS
from ibpulse.workbench.models.experts import SkewInputs, describe_skew
from ibpulse.workbench.models.inputs import read_load_table
from ibpulse.workbench.models.report import skew_json, skew_text


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the skew.

    Raises:
        ConfigError: an argument or a file cannot be used; lists all faults of arguments, or the first of a file.
    """
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
    print(skew_json(report) if arguments.format == "json" else skew_text(report), end="")
    return 0
