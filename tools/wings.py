"""Files, lines and statements of each wing, printed by `make check`, which fails if a wing or a file became too large.

`COMMITTED` are the lines and statements that a wing has; one that outgrows them by a tenth needs a new row here, which
says so to whoever reads the change.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "exporter" / "ibpulse"
MAX_GROWTH, MAX_LINES = 1.1, 600
COMMITTED = {
    "base": (2522, 1553),
    "core": (17312, 10450),
    "agent": (19360, 11226),
    "gateway": (5750, 3667),
    "workbench": (23040, 13788),
    "commands": (3039, 1487),
}


class Size(NamedTuple):
    """The size of a wing."""

    files: int
    lines: int
    statements: int


def measure() -> dict[str, Size]:
    """The size of each wing; what is in none belongs to the commands."""
    found = dict.fromkeys(COMMITTED, Size(0, 0, 0))
    for path in PACKAGE.rglob("*.py"):
        wing, text = path.relative_to(PACKAGE).parts[0], path.read_text()
        wing = wing if wing in COMMITTED else "commands"
        statements = sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
        files, lines, known = found[wing]
        found[wing] = Size(files + 1, lines + len(text.splitlines()), known + statements)
    return found


def find_faults(sizes: Mapping[str, Size], committed: Mapping[str, tuple[int, int]] = COMMITTED) -> Iterator[str]:
    """A sentence for each wing that has outgrown its row."""
    for wing, size in sizes.items():
        for now, before, what in zip(size[1:], committed[wing], ("lines", "statements"), strict=True):
            if now > MAX_GROWTH * before:
                yield f"{wing} has {now} {what}, more than a tenth above the {before} of its row in tools/wings.py"


def find_long_files() -> Iterator[str]:
    """A sentence for each file that is too long."""
    for path in sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tools").rglob("*.py")]):
        if (lines := len(path.read_text().splitlines())) > MAX_LINES:
            yield f"{path.relative_to(ROOT)} has {lines} lines; the maximum is {MAX_LINES}"


def main() -> int:
    """Print the table; returns 1 if something became too large."""
    sizes = measure()
    print(f"{'wing':<10}{'files':>7}{'lines':>8}{'statements':>12}")
    for name, size in [*sizes.items(), ("together", Size(*map(sum, zip(*sizes.values(), strict=True))))]:
        print(f"{name:<10}{size.files:>7}{size.lines:>8}{size.statements:>12}")
    faults = [*find_faults(sizes), *find_long_files()]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
