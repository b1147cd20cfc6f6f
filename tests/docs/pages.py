"""The hand-written and generated pages of the project, taken apart. It asserts nothing by itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ibpulse.commands import VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "helm/ibpulse/README.md",
        ROOT / "tests/campaigns/vm/README.md",
    ]
)
# the first words of commands
_FIRST = {name.split()[0] for name in VERBS}
_OPERATORS = {"&&", "&", "|", "||", ";", ">", ">>", "2>&1", "(", ")"}
_FENCE = re.compile(r"^```.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Link:
    """One link of a page within the project."""

    page: Path
    text: str

    @property
    def target(self) -> Path:
        """The file that it leads to."""
        name = self.text.partition("#")[0]
        return self.page.parent / name if name else self.page

    @property
    def anchor(self) -> str:
        """The heading that it leads to, or nothing."""
        return self.text.partition("#")[2]


def name(page: Path) -> str:
    """The path of a page as people write it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    """What stands in the code blocks of a page."""
    return _FENCE.findall(page.read_text())


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """What stands in backticks, each on one line."""
    return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[Link]:
    """The links of a page, also those of pictures, that stay within the project."""
    texts = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [Link(page, text) for text in texts if "://" not in text]


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them: in small letters, without punctuation, spaces as hyphens."""
    headings = re.findall(r"(?m)^#+ (.*)$", prose(page))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.strip()).replace(" ", "-") for heading in plain}


def commands(page: Path) -> Iterator[list[str]]:
    """The words behind `ibpulse` of each command in the code blocks, and in the spans that have more than a verb."""
    for block in blocks(page):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            if re.search(r"(^|[\s/$])ibpulse [a-z]", line):
                yield from _commands(line)
    for span in spans(page):
        # the bare name of a command is no call of it
        if re.search(r"(^|\s)ibpulse [a-z]+ \S", span) and span.removeprefix("ibpulse ") not in VERBS:
            yield from _commands(span)


def _commands(line: str) -> Iterator[list[str]]:
    """The commands of a line that call the program by its name or its path, each without what is before the verb."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[list[str]] = []
    for word in lexer:
        if word in _OPERATORS:
            found.append([])
        elif not found:
            found = [[word]]
        else:
            found[-1].append(word)
    for command in found:
        # others start it too: pipx, docker, sudo
        called = [at for at, word in enumerate(command[:-1]) if at and word == "ibpulse" and command[at + 1] in _FIRST]
        words = command[called[0] :] if called else command
        if len(words) > 1 and Path(words[0]).name == "ibpulse" and "[flag" not in words:
            yield words[1:]
