"""The `/metrics` and the doctor page of a family, as the program writes them in virtual time, and the kept ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.families.table import Family
from tests.sysfs.opened import Opened
from tests.virtual.clock import NodeClock, VirtualLoop
from tests.virtual.doctor import ask_doctor
from tests.virtual.node import Node
from tests.virtual.world import World

FOLDER = Path(__file__).with_name("golden")
# error counters that refuse are a notice from their third read on; some devices are sampled once a second
SECONDS = 8.0
FLAGS = ("--slow.interval=1s",)
# about this process, not about the hardware
LEFT_OUT = (
    *("ibpulse_build_info", "ibpulse_cgroup_", "ibpulse_http_"),
    *("ibpulse_sampler_lateness_", "ibpulse_sampler_tick_"),
)
# doctor's checks of the tree; the others are about the machine that the tests run on
CHECKS_OF_TREES = (
    *("tree", "devices", "rails", "remarks", "likeness", "pcie", "files"),
    *("saturation", "counting", "resolution", "links", "balance"),
)
_TITLE = re.compile(r"^ibpulse .*\n")


@dataclass(frozen=True)
class Pages:
    """Both pages of a family."""

    metrics: str
    doctor: str

    @classmethod
    def read(cls, name: str) -> Pages:
        """The pages that are kept of the family `name`; a page that is not kept is empty."""
        texts = (FOLDER / name / file for file in ("metrics.txt", "doctor.txt"))
        return cls(*(path.read_text() if path.exists() else "" for path in texts))

    def write(self, name: str) -> None:
        """Keep the pages of the family `name`."""
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        (FOLDER / name / "metrics.txt").write_text(self.metrics)
        (FOLDER / name / "doctor.txt").write_text(self.doctor)

    @classmethod
    def take(cls, tree: Path, folder: Path, *flags: str) -> Pages:
        """What doctor says of a tree, and the metrics of a daemon over it after some seconds."""
        world = World()
        try:
            checks = [f"--check={check}" for check in CHECKS_OF_TREES]
            answer = ask_doctor(world, NodeClock(world), tree, folder / "no-ring", *checks, *flags)
        finally:
            world.close()
            VirtualLoop.of(world).close()
        doctor = _TITLE.sub("", answer.said).lstrip() + f"exit status: {answer.code}\n"
        with Node(folder / "node", *FLAGS, *flags, tree=tree) as node:
            node.run(SECONDS)
            lines = node.ask("/metrics").text.splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith("# HELP ")]
        return cls("".join(line for line in kept if not line.removeprefix("# TYPE ").startswith(LEFT_OUT)), doctor)


@dataclass(frozen=True)
class Visit:
    """The pages of a family, and the files of its tree that were opened meanwhile, to be read and to be written."""

    pages: Pages
    opened: frozenset[str]
    written: frozenset[str]


def visit(family: Family, folder: Path, *flags: str) -> Visit:
    """Visit a family, whose tree is written below `folder`."""
    tree = folder / "sys"
    family.build(tree)
    opened = Opened()
    opened.switch_on()
    try:
        pages = Pages.take(tree, folder, *flags)
    finally:
        opened.switch_off()

    def inside(paths: list[str]) -> frozenset[str]:
        return frozenset(path for path in paths if path.startswith(f"{tree}/") and Path(path).is_file())

    return Visit(pages, inside(opened.paths()), inside(opened.written()))
