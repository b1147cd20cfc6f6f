"""`docs/pictures/packages.svg`: the packages in their layers, with arrows for the imports between them.

The layers are those of import-linter in pyproject.toml; the imports are read from the source. Arrows implied by
others are omitted: with `a` → `b` → `c`, `a` → `c` is not drawn. The tooltip of a box lists all its imports.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "exporter" / "ibpulse"
WIDTH, MARGIN, ROW, BOX, BOX_WIDTH = 980, 20, 62, 30, 118

# position of a box in its layer, from 0 (left) to 1 (right); others are spread evenly
PLACES = {
    "config": 0.44,
    "web": 0.34,
    "doctor": 0.05,
    "exposition": 0.43,
    "terminal": 0.58,
    "reports": 0.74,
    "pictures": 0.89,
    "flightrecorder": 0.31,
    "aggregator": 0.25,
    "sampler": 0.07,
    "simulate": 0.985,
    "jobs": 0.3,
    "sysfs": 0.38,
    "recordings": 0.72,
    "ring": 0.20,
    "analysis": 0.58,
    "models": 0.2,
    "client": 0.88,
    "events": 0.45,
    "metrics": 0.47,
}
STYLE = """
svg { --page: #ffffff; --box: #eef3f8; --edge: #5b7288; --ink: #17222c; --line: #8aa0b4; --soft: #56646f; }
@media (prefers-color-scheme: dark) {
  svg { --page: #10161c; --box: #1d2933; --edge: #7f98ad; --ink: #e6edf3; --line: #8299ac; --soft: #a3b1bd; }
}
.page { fill: var(--page); }
.box { fill: var(--box); stroke: var(--edge); }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.4; }
.head { fill: var(--line); }
text { fill: var(--ink); font: 14px sans-serif; text-anchor: middle; }
.soft { fill: var(--soft); font-size: 12px; }
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A package in the picture: the position of its centre and its width, in pixels."""

    name: str
    x: float
    y: float
    width: float

    @property
    def top(self) -> float:
        """The upper edge."""
        return self.y - BOX / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + BOX / 2

    def along(self, part: float) -> float:
        """A position on an edge, from 0 (left) to 1 (right)."""
        return self.x + (part - 0.5) * self.width * 0.8


def packages_svg() -> str:
    """The picture as SVG text."""
    rows = layers()
    shared = _shared(rows)
    drawn = [row for row in rows if row not in shared]
    imports = package_imports()
    boxes = {box.name: box for number, row in enumerate(drawn) for box in _row(row, number)}
    arrows = sorted(_without_implied({(a, b) for a, b in imports if a in boxes and b in boxes}))
    height = MARGIN + ROW * (len(drawn) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The packages of ibpulse in layers; each imports only packages below it">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        *(_arrow(boxes[a], boxes[b], arrows, boxes) for a, b in arrows),
        *(_box(box, sorted(b for a, b in imports if a == box.name)) for box in boxes.values()),
        _shared_box([name for row in shared for name in row], height - ROW / 2),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def layers() -> list[list[str]]:
    """The layers of the package from top to bottom, as import-linter keeps them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rows,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return [row.split(" | ") for row in rows]


def package_imports() -> set[tuple[str, str]]:
    """Every pair of parts of the package where the first imports the second, also inside functions."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).with_suffix("").parts[0]
        found |= {(own, name) for name in _imported(ast.parse(path.read_text())) if name != own}
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """The parts of ibpulse that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "ibpulse":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ibpulse."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ibpulse."))


def _shared(rows: Sequence[list[str]]) -> list[list[str]]:
    """The lowest layers, as far as they are single modules or the base: every package uses them."""
    found: list[list[str]] = []
    for row in reversed(rows):
        if any(name != "base" and (SOURCE / name).is_dir() for name in row):
            break
        found.insert(0, row)
    return found


def _row(names: Sequence[str], number: int) -> Iterator[Box]:
    y = MARGIN + ROW * (number + 0.5)
    span = WIDTH - 2 * MARGIN - BOX_WIDTH
    for place, name in enumerate(names):
        part = PLACES.get(name, (place + 0.5) / len(names))
        wide = name == "commands"
        yield Box(name, MARGIN + BOX_WIDTH / 2 + part * span, y, WIDTH - 2 * MARGIN if wide else BOX_WIDTH)


def _without_implied(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    below: dict[str, set[str]] = {}
    for above, name in arrows:
        below.setdefault(above, set()).add(name)

    def reaches(name: str, goal: str) -> bool:
        return any(other == goal or reaches(other, goal) for other in below.get(name, ()))

    return {(a, b) for a, b in arrows if not any(reaches(other, b) for other in below[a] - {b})}


def _arrow(above: Box, below: Box, arrows: Iterable[tuple[str, str]], boxes: Mapping[str, Box]) -> str:
    leaving = sorted((b for a, b in arrows if a == above.name), key=lambda name: boxes[name].x)
    coming = sorted((a for a, b in arrows if b == below.name), key=lambda name: boxes[name].x)
    begin = above.along((leaving.index(below.name) + 0.5) / len(leaving))
    if above.width > BOX_WIDTH:
        begin = below.x
    end = below.along((coming.index(above.name) + 0.5) / len(coming))
    tip, bend = below.top - 7, (below.top - above.bottom) / 2
    return (
        f'<path class="arrow" d="M{begin:.0f} {above.bottom:.0f} C{begin:.0f} {above.bottom + bend:.0f} '
        f'{end:.0f} {tip - bend:.0f} {end:.0f} {tip:.0f}"/>'
        f'<path class="head" d="M{end - 4:.0f} {tip:.0f} h8 L{end:.0f} {tip + 7:.0f} z"/>'
    )


def _box(box: Box, imports: Sequence[str]) -> str:
    title = f"{box.name} imports {', '.join(imports) or 'nothing of ibpulse'}"
    return (
        f'<g><title>{title}</title><rect class="box" x="{box.x - box.width / 2:.0f}" y="{box.top:.0f}" '
        f'width="{box.width:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{box.x:.0f}" y="{box.y + 5:.0f}">{box.name}</text></g>'
    )


def _shared_box(names: Sequence[str], y: float) -> str:
    left, width = MARGIN, WIDTH - 2 * MARGIN
    return (
        f'<rect class="box" x="{left}" y="{y - BOX / 2:.0f}" width="{width}" height="{BOX}" rx="5"/>'
        f'<text x="{WIDTH / 2:.0f}" y="{y + 5:.0f}">{" · ".join(names)} '
        '<tspan class="soft">(every package may use these)</tspan></text>'
    )
