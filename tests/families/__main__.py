"""`python -m tests.families write [FAMILY ...]` keeps the pages that the program writes now as the golden ones.

Look at every line that changes: a golden page is what a user of that hardware sees, so it has to be true.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.families.golden import visit
from tests.families.table import BY_NAME


def main(arguments: list[str]) -> None:
    if arguments[:1] != ["write"] or not set(arguments[1:]) <= set(BY_NAME):
        raise SystemExit(f"usage: python -m tests.families write [{'|'.join(BY_NAME)} ...]")
    for name in arguments[1:] or BY_NAME:
        with tempfile.TemporaryDirectory() as folder:
            visit(BY_NAME[name], Path(folder)).pages.write(name)


if __name__ == "__main__":
    main(sys.argv[1:])
