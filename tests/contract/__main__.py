"""`python -m tests.contract [GROUP ...]` writes the goldens; see README.md."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.contract.answers import answer_goldens
from tests.contract.dependencies import dependency_goldens
from tests.contract.files import file_goldens
from tests.contract.goldens import Golden, write
from tests.contract.tables import table_goldens
from tests.contract.verbs import verb_goldens
from tests.virtual.conftest import make_folder

GROUPS: Mapping[str, Callable[[Path], Iterable[Golden]]] = {
    "verbs": verb_goldens,
    "answers": answer_goldens,
    "files": file_goldens,
    "tables": table_goldens,
    "dependencies": dependency_goldens,
}


def make(group: str) -> Iterable[Golden]:
    """The goldens of a group as the program is now."""
    with make_folder() as folder:
        return GROUPS[group](folder)


def main(names: list[str]) -> None:
    """Write the goldens of these groups, or of all."""
    if not set(names) <= set(GROUPS):
        raise SystemExit(f"usage: python -m tests.contract [{'|'.join(GROUPS)} ...]")
    for name in names or GROUPS:
        write(name, make(name))


if __name__ == "__main__":
    main(sys.argv[1:])
