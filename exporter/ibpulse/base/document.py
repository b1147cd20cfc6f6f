"""Tables, lines and their titles, described once and shown as text or HTML; results as JSON.

Names in them may be of any origin: control characters are escaped here, in each cell, line and title.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibpulse import __version__
from ibpulse.base.errors import RecordingError
from ibpulse.base.installation import how_to_install
from ibpulse.base.text import escape_controls

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH = 100
FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Section:
    """A title, a table, and lines below it; each may be missing. Text shows the title with a colon.

    The columns in `left` are aligned to the left, and the others to the right. Text and HTML show the first `limit`
    rows, and say how many more the JSON has.
    """

    title: str = ""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    left: Sequence[int] = (0,)
    limit: int | None = None

    @property
    def shown(self) -> Sequence[Sequence[str]]:
        """The rows that are shown to people."""
        return self.rows[: self.limit]

    @property
    def notes(self) -> Sequence[str]:
        """The lines, and how many rows are not shown."""
        more = len(self.rows) - len(self.shown)
        return [*([f"and {more} more; --format=json has all"] if more else []), *self.lines]


def render_text(sections: Iterable[Section]) -> str:
    """The sections as text with an empty line between them."""
    return "\n\n".join("\n".join(section_lines(section)) for section in sections) + "\n"


def section_lines(section: Section) -> list[str]:
    """The lines of a section: its title, its table and its notes, indented below a title."""
    indent = "  " if section.title else ""
    lines = [f"{indent}{line}" for line in (*align(section), *map(escape_controls, section.notes))]
    return [f"{escape_controls(section.title)}:", *lines] if section.title else lines


def align(section: Section) -> list[str]:
    """The table of a section in columns with two spaces between them; empty for a section without one."""
    return align_rows([section.heads, *section.shown], section.left) if section.heads else []


def align_rows(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Rows of cells in columns with two spaces between them; those in `left` are aligned to the left."""
    rows = [[*map(escape_controls, row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    places = ["<" if place in left else ">" for place in range(len(widths))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, places, widths, strict=True)).rstrip()
        for row in rows
    ]


def hang(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Rows whose last cell is a sentence, which fills lines of at most `width` characters below its beginning.

    Rows may have different numbers of cells.
    """
    places = range(max(map(len, rows), default=1) - 1)
    widths = [max(len(row[place]) for row in rows if len(row) > place + 1) for place in places]
    heads = ["".join(f"{cell:{size}}  " for cell, size in zip(row[:-1], widths, strict=False)) for row in rows]
    return [wrap(row[-1], head, len(head), width) for row, head in zip(rows, heads, strict=True)]


def wrap(text: str, head: str = "", indent: int = 2, width: int = WIDTH) -> str:
    """A sentence in lines of at most `width` characters: `head` before the first, `indent` spaces before the others."""
    return textwrap.fill(
        escape_controls(text),
        width,
        initial_indent=head,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render_page(title: str, template: Path, **members: Any) -> str:
    """What a template shows, which extends `page.html.j2`.

    Raises:
        RecordingError: jinja2 is not installed.
    """
    return _load(template).render(title=title, **members)


@cache
def _load(template: Path) -> Template:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise RecordingError(f"reports as HTML need jinja2; {how_to_install('jinja2')}") from error
    # names of files and labels are untrusted
    environment = Environment(
        autoescape=True,
        # not of markup, which is a type of its own
        finalize=lambda value: escape_controls(value) if type(value) is str else value,
        loader=FileSystemLoader([template.parent, FOLDER]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template.name)


def render_json(version: str, members: Mapping[str, Any]) -> str:
    """One JSON object that begins with the number of its format, under the key `version`, and the program's version."""
    return json_text({version: 1, "ibpulse_version": __version__, **members}) + "\n"


def json_text(document: Mapping[str, Any], *, indent: int | None = 2, ascii_only: bool = False) -> str:
    """One JSON object; dataclasses become objects, and numbers that are not finite become null."""
    told = json.dumps(plain(document), indent=indent, ensure_ascii=ascii_only, allow_nan=False)
    return escape_controls(told, keep="\n")


def plain(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses as objects, tuples as lists, and null for NaN and infinity."""
    if isinstance(value, float):
        return finite(value)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(member) for key, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list | tuple) else value


def members_of(value: object, *names: str) -> dict[str, Any]:
    """Some attributes of an object by their names, as members of JSON or as arguments of a call."""
    return {name: getattr(value, name) for name in names}


def finite(value: float) -> float | None:
    """The number; None for NaN and infinity, which stand for an unknown value."""
    return value if math.isfinite(value) else None
