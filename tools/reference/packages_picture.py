"""`docs/pictures/packages.svg`: the wings with their packages in layers, and arrows for the imports.

The layers are those of import-linter in pyproject.toml; the imports are read from the source. Arrows lead from wing to
wing, and within a wing from package to package; those implied by others are omitted: with `a` → `b` → `c`, `a` → `c` is
not drawn. The tooltip of a box lists all its imports.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "exporter" / "ibpulse"
WINGS = ("base", "core", "agent", "gateway", "workbench")
TOP = ("__main__", "cli", "commands")
WIDTH, MARGIN, ROW, BOX, BOX_WIDTH = 980, 20, 54, 30, 112
# the label of a wing, and the space between two wings
LABEL, GAP = 28, 34
# the gateway stands beside the agent
GATEWAY_WIDTH = 250

# position of a box in its layer, from 0 (left) to 1 (right); others are spread evenly
PLACES = {
    "workbench.demo_nodes": 0.97,
    "workbench.fleet": 0.3,
    "workbench.python": 0.75,
    "workbench.pictures": 0.55,
    "workbench.top": 0.03,
    "workbench.reports": 0.4,
    "workbench.recorder": 0.12,
    "workbench.simulate": 0.95,
    "workbench.nccl": 0.35,
    "workbench.overlap": 0.65,
    "workbench.models": 0.8,
    "agent.web": 0.35,
    "agent.node": 0.35,
    "agent.config": 0.85,
    "agent.doctor": 0.02,
    "agent.flightrecorder": 0.3,
    "agent.metrics": 0.72,
    "agent.aggregator": 0.5,
    "agent.sampler": 0.12,
    "agent.jobs": 0.42,
    "agent.sysfs": 0.2,
    "core.http": 0.1,
    "core.client": 0.3,
    "core.metrics": 0.0,
    "core.recordings": 0.75,
    "core.window_values": 0.98,
    "core.answers": 0.28,
    "core.jobs": 0.75,
    "core.events": 0.55,
    "core.ring": 0.75,
    "core.statistics": 0.75,
}
STYLE = """
svg { --page: #ffffff; --wing: #f7fafc; --box: #e6eef6; --edge: #5b7288; --ink: #17222c; --line: #8aa0b4;
  --soft: #56646f; }
@media (prefers-color-scheme: dark) {
  svg { --page: #10161c; --wing: #161f27; --box: #22303c; --edge: #7f98ad; --ink: #e6edf3; --line: #8299ac;
    --soft: #a3b1bd; }
}
.page { fill: var(--page); }
.wing { fill: var(--wing); stroke: var(--line); stroke-dasharray: 4 3; }
.box { fill: var(--box); stroke: var(--edge); }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.4; }
.head { fill: var(--line); }
text { fill: var(--ink); font: 14px sans-serif; text-anchor: middle; }
.soft { fill: var(--soft); font-size: 12px; }
.label { text-anchor: start; font-weight: bold; }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A package, a wing, or the commands: the position of its centre, and its size, in pixels."""

    name: str
    x: float
    y: float
    width: float = BOX_WIDTH
    height: float = BOX

    @property
    def top(self) -> float:
        """The upper edge."""
        return self.y - self.height / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height / 2

    def along(self, part: float) -> float:
        """A position on an edge, from 0 (left) to 1 (right)."""
        return self.x + (part - 0.5) * self.width * 0.8


def packages_svg() -> str:
    """The picture as SVG text."""
    wings, packages = layers(), imports(2)
    heights = {name: LABEL + ROW * max(1, len(rows) - max(0, len(shared(rows)) - 1)) for name, rows in wings.items()}
    frames: dict[str, Box] = {}
    y: float = MARGIN + BOX + GAP
    beside = WIDTH - 2 * MARGIN - GATEWAY_WIDTH - GAP
    for name, left, width in (
        ("workbench", MARGIN, WIDTH - 2 * MARGIN),
        ("agent", MARGIN, beside),
        ("core", MARGIN, WIDTH - 2 * MARGIN),
        ("base", MARGIN, WIDTH - 2 * MARGIN),
    ):
        frames[name] = Box(name, left + width / 2, y + heights[name] / 2, width, heights[name])
        y += heights[name] + GAP
    agent = frames["agent"]
    frames["gateway"] = Box("gateway", WIDTH - MARGIN - GATEWAY_WIDTH / 2, agent.y, GATEWAY_WIDTH, agent.height)
    top = Box("commands", WIDTH / 2, MARGIN + BOX / 2, WIDTH - 2 * MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - GAP + MARGIN}" role="img" '
        'aria-label="The wings of ibpulse with their packages in layers; imports lead downwards only">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{y - GAP + MARGIN}"/>',
        *(_frame(frames[name]) for name in frames),
        *_arrows(_without_implied({(a, b) for a, b in imports(1) if a not in TOP[:2]}), {**frames, "commands": top}),
    ]
    for name, rows in wings.items():
        if not rows:
            parts += _listing(frames[name])
            continue
        drawn = rows[: len(rows) - len(shared(rows))]
        boxes = {box.name: box for box in _boxes(drawn, frames[name])}
        parts += _arrows(_without_implied({(a, b) for a, b in packages if a in boxes and b in boxes}), boxes)
        parts += [_box(box, box.name.rpartition(".")[2], _imported_by(box.name, packages)) for box in boxes.values()]
        if names := [each.rpartition(".")[2] for row in shared(rows) for each in row]:
            y = frames[name].bottom - ROW / 2
            text = f'{" · ".join(names)} <tspan class="soft">(all packages of the {name} may use these)</tspan>'
            parts.append(_box(Box(f"{name}.*", frames[name].x, y, frames[name].width - 2 * MARGIN), text, ()))
    parts += [_box(top, " · ".join(TOP), _imported_by("commands", packages)), "</svg>"]
    return "\n".join(parts) + "\n"


def layers() -> dict[str, list[list[str]]]:
    """The layers of each wing from top to bottom, as import-linter keeps them; base and gateway have none."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    kept = {
        contract["containers"][0].partition(".")[2]: [
            [f"{contract['containers'][0].partition('.')[2]}.{name}" for name in layer.split(" | ")]
            for layer in contract["layers"]
        ]
        for contract in contracts
        if contract["type"] == "layers" and "." in contract["containers"][0]
    }
    return {"base": [], "gateway": [], **kept}


def shared(rows: Sequence[list[str]]) -> list[list[str]]:
    """The lowest layers of a wing, as far as they are single modules: all of its packages use them."""
    found: list[list[str]] = []
    for row in reversed(rows):
        if any((SOURCE / name.replace(".", "/")).is_dir() for name in row):
            break
        found.insert(0, row)
    return found


def imports(depth: int) -> set[tuple[str, str]]:
    """Every pair of parts where the first imports the second, also in functions: wings, or with depth 2 packages."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        own = _part(path.relative_to(SOURCE).with_suffix("").parts, depth)
        named = (_part(name.split(".")[1:], depth) for name in _imported(ast.parse(path.read_text())))
        found |= {(own, name) for name in named if name and name != own and own}
    return found


def _part(parts: Sequence[str], depth: int) -> str:
    """The wing, or the package within it; the modules of a wing that have no box of their own count as the wing."""
    name = ".".join(part for part in parts[:depth] if part != "__init__")
    return name if parts and (parts[0] in WINGS or parts[0] in TOP) else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules and packages of ibpulse that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ibpulse":
            # what is imported may be a name or a module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("ibpulse."))


def _imported_by(name: str, packages: Collection[tuple[str, str]]) -> list[str]:
    return sorted(b for a, b in packages if a == name or a.startswith(f"{name}."))


def _boxes(rows: Sequence[Sequence[str]], frame: Box) -> Iterator[Box]:
    """The packages of a wing."""
    span = frame.width - 2 * MARGIN - BOX_WIDTH
    for number, names in enumerate(rows):
        y = frame.top + LABEL + ROW * (number + 0.5) - (ROW - BOX) / 4
        for place, name in enumerate(names):
            part = PLACES.get(name, (place + 0.5) / len(names))
            yield Box(name, frame.x - frame.width / 2 + MARGIN + BOX_WIDTH / 2 + part * span, y)


def _without_implied(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    below: dict[str, set[str]] = {}
    for above, name in arrows:
        below.setdefault(above, set()).add(name)

    def reaches(name: str, goal: str) -> bool:
        return any(other == goal or reaches(other, goal) for other in below.get(name, ()))

    return {(a, b) for a, b in arrows if not any(reaches(other, b) for other in below[a] - {b})}


def _arrows(arrows: Collection[tuple[str, str]], boxes: Mapping[str, Box]) -> list[str]:
    return [_arrow(boxes[a], boxes[b], arrows, boxes) for a, b in sorted(arrows)]


def _arrow(above: Box, below: Box, arrows: Collection[tuple[str, str]], boxes: Mapping[str, Box]) -> str:
    leaving = sorted((b for a, b in arrows if a == above.name), key=lambda name: boxes[name].x)
    coming = sorted((a for a, b in arrows if b == below.name), key=lambda name: boxes[name].x)
    begin = above.along((leaving.index(below.name) + 0.5) / len(leaving))
    end = below.along((coming.index(above.name) + 0.5) / len(coming))
    # between two wings it leads straight down at the narrower of them
    if above.width > BOX_WIDTH or below.width > BOX_WIDTH:
        begin = end = min(above, below, key=lambda box: box.width).x
    tip, bend = below.top - 7, (below.top - above.bottom) / 2
    return (
        f'<path class="arrow" d="M{begin:.0f} {above.bottom:.0f} C{begin:.0f} {above.bottom + bend:.0f} '
        f'{end:.0f} {tip - bend:.0f} {end:.0f} {tip:.0f}"/>'
        f'<path class="head" d="M{end - 4:.0f} {tip:.0f} h8 L{end:.0f} {tip + 7:.0f} z"/>'
    )


def _frame(frame: Box) -> str:
    """A wing, labelled with what its package says of itself."""
    said = (ast.get_docstring(ast.parse((SOURCE / frame.name / "__init__.py").read_text())) or "").partition("\n")[0]
    short = said.partition(":")[0].rstrip(".")
    left = frame.x - frame.width / 2
    return (
        f'<rect class="wing" x="{left:.0f}" y="{frame.top:.0f}" width="{frame.width:.0f}" '
        f'height="{frame.height:.0f}" rx="8"/>'
        f'<text class="label" x="{left + 12:.0f}" y="{frame.top + 20:.0f}">{frame.name} '
        f'<tspan class="soft">{short[:1].lower()}{short[1:]}</tspan></text>'
    )


def _listing(frame: Box) -> Iterator[str]:
    """The parts of a wing that has no layers."""
    names = sorted({path.stem for path in (SOURCE / frame.name).iterdir() if path.suffix == ".py" or path.is_dir()})
    text = " · ".join(name for name in names if not name.startswith("__"))
    for number, line in enumerate(textwrap.wrap(text, int(frame.width / 6.6))):
        yield f'<text class="soft" x="{frame.x:.0f}" y="{frame.top + LABEL + 16 + 18 * number:.0f}">{line}</text>'


def _box(box: Box, text: str, imported: Sequence[str]) -> str:
    title = f"{box.name} imports {', '.join(imported) or 'nothing of ibpulse'}"
    return (
        f'<g><title>{title}</title><rect class="box" x="{box.x - box.width / 2:.0f}" y="{box.top:.0f}" '
        f'width="{box.width:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{box.x:.0f}" y="{box.y + 5:.0f}">{text}</text></g>'
    )
