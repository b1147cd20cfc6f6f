"""`ibpulse model check FILE`: checks the configuration of a Megatron run against its rules about overlap."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ibpulse.config import Settings

FORMATS = ("text", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, further options of the run, and what makes the check fail."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="run_config.yaml of Megatron-Bridge, or a YAML or JSON file with MODEL_ARGS of Megatron-LM.",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Option that FILE lacks, such as torch=2.6.0 or compute_capability=9.0; overrides FILE; repeatable.",
    )
    parser.add_argument(
        "--strict", action="store_true", help="Exit with code 1 for warnings, advice and unknown rules as well."
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="text", help=f"Output format: {', '.join(FORMATS)} (default: text)."
    )


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the results; the exit code is 1 if the check fails.

    Raises:
        ConfigError: the file or an option cannot be used; lists all faults.
    """
    from ibpulse.models.megatron_rules import check_run  # not for help texts
    from ibpulse.models.rule_check_text import render_json, render_text
    from ibpulse.models.run_options import read_run_options

    found = read_run_options(arguments.file, arguments.set)
    results = check_run(found.program, found.options)
    failed = any(result.fails or (arguments.strict and result.status != "ok") for result in results)
    render = render_json if arguments.format == "json" else render_text
    print(render(found, results, failed), end="")
    return 1 if failed else 0
