"""The options of the verbs that show or run a node, a gateway or a simulated fabric."""

from __future__ import annotations

import argparse
from pathlib import Path

from ibpulse.base.values import ANY_WHOLE, RATE, RATIO, TIME, whole
from ibpulse.commands.options import Option, url_options
from ibpulse.workbench.simulate.faults import FAULTS

EVERY = "10s"
WORKLOADS = (
    "dense", "moe", "expert-parallel", "constant", "square", "idle", "model:qwen2.5-7b-fsdp", "model:mixtral-8x7b-fsdp"
)  # fmt: skip
MAX_NODES = 64
SHELLS = ("bash", "zsh", "fish")
_WIDTH = max(map(len, FAULTS))

FABRIC = (
    Option(
        "--workload",
        choices=WORKLOADS,
        default="dense",
        metavar="NAME",
        help=f"Workload to simulate: {', '.join(WORKLOADS)} (default: dense).",
    ),
    Option(
        "--ports", type=whole(1), help="Number of ports of a node, one per device; 8 by default, 4 with several nodes."
    ),
    Option(
        "--nodes",
        type=whole(1, MAX_NODES),
        default=1,
        help="Number of nodes, up to 64, that share one job and have different clocks; one of them is a straggler, and "
        "one rail is hot (default: 1).",
    ),
    Option(
        "--clock-offset",
        repeated=True,
        metavar="NODE=DURATION",
        help="How far a node's clock is ahead, such as node3=12ms, or behind, such as node3=-12ms; repeatable. By "
        "default the clocks of `ibpulse demo` are up to 50ms ahead or behind, those of `ibpulse simulate` are right.",
    ),
    Option("--seed", type=ANY_WHOLE, default=0, metavar="NUMBER", help="Seed of the jitter (default: 0)."),
    Option(
        "--rate", type=RATE, help="Rate per port and direction of the constant and square workloads, such as 20GB/s."
    ),
    Option("--period", type=TIME, help="Period of the square workload."),
    Option("--duty", type=RATIO, help="Duty cycle of the square workload, 0 to 1."),
    Option("--management", action="store_true", help="Add a management NIC (Ethernet, not a rail)."),
    Option(
        "--jobs",
        type=whole(0, 2),
        choices=range(3),
        metavar="COUNT",
        default=0,
        help="Number of jobs: 1 on all ports, or 2 that begin and end on half of the ports each (default: 0).",
    ),
    Option(
        "--fault",
        repeated=True,
        group=("faults", "\n".join(f"{name:{_WIDTH}}  {fault.text}" for name, fault in FAULTS.items())),
        metavar="FAULT=DEVICE[:VALUE]",
        help="Fault at the start, such as slow-rail=mlx5_2:0.5; repeatable.",
    ),
)
OPTIONS = {
    "demo": FABRIC,
    "simulate": (
        Option("directory", type=Path, metavar="DIR", help="New or empty directory, preferably on tmpfs."),
        Option(
            "--interval",
            type=TIME,
            default="10ms",
            help="Time between counter updates; must equal the sampler's interval (default: 10ms).",
        ),
        Option("--parent", type=int, metavar="PID", help=argparse.SUPPRESS),
        *FABRIC,
    ),
    "top": (
        *url_options(
            "Address of a running daemon, like http://node7:10055; by default this node's daemon if one runs, else "
            "this node's ports are sampled."
        ),
        Option(
            "--alone",
            action="store_true",
            help="Sample this node's ports even if a daemon is running; implied by any --path.*, --sampler.* or "
            "--ports.* flag.",
        ),
    ),
    "doctor": (
        Option(
            "--format",
            choices=("text", "json"),
            default="text",
            help="Text for people or JSON for programs (default: text).",
        ),
        Option("--strict", action="store_true", help="Exit 1 on warnings as well."),
        Option(
            "--watch",
            type=TIME,
            nargs="?",
            const=EVERY,
            help=f"Repeat at this interval until Ctrl-C (without a value: {EVERY}).",
        ),
        Option("--check", repeated=True, metavar="NAME", help="Run only this check; repeatable (default: all)."),
        Option("--no-look", action="store_true", help="Static checks only, no sampling."),
    ),
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
