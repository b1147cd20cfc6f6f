"""The options of the verbs that run a daemon or a gateway, and of their configuration."""

from __future__ import annotations

from ibpulse.base.values import whole
from ibpulse.commands.options import Option

MAX_NODES = 64
SHELLS = ("bash", "zsh", "fish")

OPTIONS = {
    "serve": (),
    "gateway": (
        Option(
            "--demo",
            type=whole(2, MAX_NODES),
            help=f"Simulate this many nodes, 2 to {MAX_NODES}, and serve them; needs no hardware.",
        ),
    ),
    "config": (
        Option(
            "action",
            choices=("check", "print"),
            metavar="check|print",
            help="check shows where each value comes from; print prints the configuration.",
        ),
        Option(
            "--format",
            choices=("yaml", "json"),
            default="yaml",
            help="Output format of print; --config.file accepts both (default: yaml).",
        ),
    ),
    "completion": (Option("shell", choices=SHELLS, metavar="SHELL", help=f"Shell: {', '.join(SHELLS)}."),),
}
