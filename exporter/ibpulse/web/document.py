"""The frame of the server's own pages: no script, no resource from elsewhere, one style sheet inside the page."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files

from starlette.responses import HTMLResponse

STYLE = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page(title: str, body: str) -> HTMLResponse:
    """A whole page; `body` is HTML, `title` is text."""
    return HTMLResponse(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
        headers={"Content-Security-Policy": POLICY},
    )


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table of HTML cells."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>'
