"""`ibpulse model check FILE`: checks the configuration of a Megatron run against its rules about overlap."""

from __future__ import annotations

import argparse

from ibpulse.agent.config import Settings
from ibpulse.workbench.models.check import check_run, read_run_options, render_json, render_text


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print the results; the exit code is 1 if the check fails.

    Raises:
        ConfigError: the file or an option cannot be used; lists all faults.
    """
    found = read_run_options(arguments.file, arguments.set)
    results = check_run(found.program, found.options)
    failed = any(result.fails or (arguments.strict and result.status != "ok") for result in results)
    render = render_json if arguments.format == "json" else render_text
    print(render(found, results, failed), end="")
    return 1 if failed else 0
