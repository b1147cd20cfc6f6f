"""Goldens: text in sections, kept once as it is printed and once as its words."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).with_name("golden")
FORMS = ("printed", "words")
# a line of words ends with a sentence, or after so many: where it ends does not depend on the layout
MAX_WORDS = 30
SHOWN_LINES = 24
MAX_COMPACT = 300
# the last digits of a Fourier transform depend on the processor
_LONG_NUMBER = re.compile(r"(?<![\w.])(?=(?:\.?\d){15})\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
DIGITS = 10


@dataclass(frozen=True)
class Golden:
    """What is kept in the files `printed/NAME` and `words/NAME`: texts by their titles."""

    name: str
    sections: Mapping[str, str]

    def text(self, form: str) -> str:
        """The content of the file of a form."""
        write = _as_printed if form == "printed" else to_words
        sections = {title: write(round_numbers(text)) for title, text in self.sections.items()}
        return "".join(f"=== {title}\n{_end_line(text)}\n" for title, text in sections.items())


def _end_line(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def round_numbers(text: str) -> str:
    """The text, in which numbers that are written with 15 or more digits have ten."""
    return _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.{DIGITS}g}", text)


def _as_printed(text: str) -> str:
    """The text; of a long JSON document in one line, only a checksum, because its words have the content."""
    lines = []
    for line in text.split("\n"):
        name, document = _find_json(line)
        lines.append(f"{name}JSON of {len(document)} bytes, SHA-256 {digest(document)}" if document else line)
    return "\n".join(lines)


def digest(data: bytes) -> str:
    """A checksum."""
    return sha256(data).hexdigest()[:32]


def to_words(text: str) -> str:
    """The words with single spaces, whatever the layout; JSON has a line for each member."""
    if _is_json(text):
        return _pretty(text)
    lines: list[str] = []
    between: list[str] = []
    for line in text.split("\n"):
        name, document = _find_json(line)
        if document:
            lines += [*_sentences([*between, *name.split()]), _pretty(document)]
            between = []
        else:
            between += line.split()
    return "\n".join([*lines, *_sentences(between)])


def _find_json(line: str) -> tuple[str, bytes]:
    """A long JSON document in a line, and what is before it."""
    found = re.fullmatch(r"(\w+: |)([{\[].*)", line) if len(line) > MAX_COMPACT else None
    return (found[1], found[2].encode()) if found and _is_json(found[2]) else ("", b"")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def _pretty(text: str | bytes) -> str:
    return json.dumps(json.loads(text), indent=1, ensure_ascii=False)


def _sentences(words: Iterable[str]) -> Iterator[str]:
    line: list[str] = []
    for word in words:
        line.append(word)
        if word.endswith((".", ":", ";")) or len(line) == MAX_WORDS:
            yield " ".join(line)
            line = []
    if line:
        yield " ".join(line)


def write(group: str, goldens: Iterable[Golden]) -> None:
    """Keep these goldens of a group, and no others."""
    for form in FORMS:
        folder = FOLDER / form / group
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for golden in goldens:
            (folder / golden.name).write_text(golden.text(form), encoding="utf-8")


def compare(group: str, goldens: Iterable[Golden]) -> list[str]:
    """For each golden of a group that differs, what differs; of one whose words are the same, the layout."""
    faults = []
    names = set()
    for golden in goldens:
        names.add(golden.name)
        kept = {form: _read(FOLDER / form / group / golden.name) for form in FORMS}
        found = {form: golden.text(form) for form in FORMS}
        if kept != found:
            what = "only the layout differs" if kept["words"] == found["words"] else "the words differ"
            shown = _difference(kept["printed"], found["printed"])
            if "SHA-256" in shown and kept["words"] != found["words"]:
                shown = _difference(kept["words"], found["words"])
            faults.append(f"{group}/{golden.name}: {what}\n{shown}")
    left = {path.name for form in FORMS for path in (FOLDER / form / group).glob("*")} - names
    return faults + [f"{group}/{name}: nothing makes this golden" for name in sorted(left)]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _difference(kept: str, found: str) -> str:
    """A unified diff of a few lines, with the title of the section in which each part begins."""
    before, after = kept.split("\n"), found.split("\n")
    lines = list(difflib.unified_diff(before, after, "golden", "now", lineterm="", n=1))
    shown = []
    for line in lines[:SHOWN_LINES]:
        at = re.match(r"@@ -(\d+)", line)
        titles = [text for text in before[: int(at[1])] if text.startswith("=== ")] if at else []
        shown.append((f"@@ {titles[-1][4:]}" if titles else line)[:200])
    return "\n".join([*shown, *([f"… {len(lines) - SHOWN_LINES} more lines"] if len(lines) > SHOWN_LINES else [])])
