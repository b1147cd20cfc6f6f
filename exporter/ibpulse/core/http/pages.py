"""Parts of all pages: documents, tables, links, the files of the live page, and the API reference."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Scope

from ibpulse.core.http.problems import KINDS
from ibpulse.core.metrics.text import accepts_gzip

STYLE = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LIVE = Template(files(__package__).joinpath("live.html").read_text(encoding="utf-8"))
LIVE_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NODE_WORDS: Mapping[str, str] = {
    "script": "main.js",
    "whole": "Node",
    "sum": "Node, transmit + receive of all rails",
    "rows": "Rails",
    "menu": "Rails",
    "row": "rail",
    "holders": "ports",
    "health": "Sampler health",
    "table": "All statistics by window",
    "format": "csv",
    "samples": "Samples as CSV",
    "copies": """<button id="copy-curl">Copy as curl</button>
      <button id="copy-pandas">Copy as pandas</button>
      <button id="copy-promql">Copy as PromQL</button>
      <button id="capture" hidden title="Save the samples around now in a file on the node">Capture now</button>""",
    "total": "Node",
    "menu_rows": "Rails",
    "order": "",
    "about_rows": "",
}
"""Names of the parts of a node's live page; that of a job has other words.

`copies`, `order` and `about_rows` are HTML.
"""
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def page(title: str, body: str) -> HTMLResponse:
    """A whole page; `body` is HTML, `title` is text."""
    return HTMLResponse(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n",
        headers={"Content-Security-Policy": PAGE_POLICY},
    )


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table of HTML cells."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    # a wide table scrolls, so it has to take the focus
    region = f'<div class="wide" tabindex="0" role="region" aria-label="{escape(heads[0])}">'
    return f"{region}<table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>"


def links(entries: Sequence[tuple[str, str]]) -> str:
    """A list of links: addresses relative to the page, and what is there."""
    items = (
        f'<li><a href="{escape(address)}"><code>{escape("/" + address.lstrip("./"))}</code>'
        f"<span>{escape(words)}</span></a></li>"
        for address, words in entries
    )
    return '<ul class="links">' + "".join(items) + "</ul>"


def live_document(
    words: Mapping[str, str],
    version: str,
    facts: str,
    *,
    simulated: bool = False,
    name: str = "",
    root: str = "",
    api: str = "api/v1/",
    navigation: str = "",
) -> HTMLResponse:
    """A live page with its own content policy: scripts and styles only from this server.

    `facts` and `navigation` are HTML. `root` and `api` lead from the page to what the server has at `/`, and to the API
    of what is shown. `name` is the node or the job, by default the host.
    """
    text = _LIVE.substitute(
        words,
        version=escape(version),
        facts=facts,
        # the mark is right from the first moment, and without JavaScript
        hidden="" if simulated else " hidden",
        name=escape(name),
        root=escape(root),
        api=escape(api),
        navigation=navigation,
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": LIVE_PAGE_POLICY})


class PageFiles(StaticFiles):
    """Scripts, styles and the icon of the live page, which browsers cache but revalidate each time.

    The tag of a file is a hash of its content, because images and packages fix modification times, and no page may
    run with old files after an upgrade. A file is compressed when a client first accepts gzip.
    """

    def __init__(self) -> None:
        super().__init__(packages=[("ibpulse.core.http", "static")])
        (directory,) = map(Path, self.all_directories)
        self._tags = {
            path.name: f'"{hashlib.sha256(path.read_bytes()).hexdigest()[:20]}"' for path in directory.iterdir()
        }

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """The file, or 304 if it has not changed."""
        path = Path(full_path)
        headers = {
            "ETag": self._tags[path.name],
            "Cache-Control": "no-cache",
            "Accept-Ranges": "none",
            "Vary": "Accept-Encoding",
        }
        response = FileResponse(path, status_code, headers, MEDIA_TYPES[path.suffix], stat_result=stat_result)
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        if accepts_gzip(Headers(scope=scope).get("accept-encoding")):
            return Response(
                _compressed(path), status_code, {**headers, "Content-Encoding": "gzip"}, MEDIA_TYPES[path.suffix]
            )
        # ranges are not needed here, and FileResponse refuses bad ones in plain text
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"range"]
        return response


@cache
def _compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), mtime=0)


def reference_body(schema: dict[str, Any]) -> str:
    """The API reference as HTML, from an OpenAPI document."""
    info = schema["info"]
    parts = [
        f"<h1>{escape(info['title'])} API</h1>\n<p>{escape(info['description'])} "
        f'<span class="soft">Version {escape(info["version"])}</span></p>',
        '<p><a href="../">Start page</a> · <a href="openapi.json">OpenAPI document</a></p>',
        *(
            _operation(method, path, operation)
            for path, methods in schema["paths"].items()
            for method, operation in methods.items()
        ),
        "<h2>Problems</h2>\n<p>Errors are problem documents (RFC 9457): <code>type</code> is one of these "
        "anchors; <code>detail</code> names the limit and how to fix the request.</p>",
        *(f'<h3 id="{kind}">{kind}</h3><p>{escape(title)}.</p>' for kind, title in KINDS.items()),
    ]
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [_parameter(item) for item in operation.get("parameters", [])]
    answers = [
        [
            escape(status),
            escape(answer["description"]),
            "<br>".join(f"<code>{escape(kind)}</code>" for kind in answer.get("content", {})),
        ]
        for status, answer in operation["responses"].items()
    ]
    return "\n".join(
        [
            f"<h3>{method.upper()} {escape(path)}</h3>\n<p>{escape(operation.get('description', ''))}</p>",
            table(["Parameter", "Value", "Default", "Meaning"], parameters) if parameters else "",
            "<p></p>",
            table(["Status", "Answer", "Content"], answers),
        ]
    )


def _parameter(item: dict[str, Any]) -> list[str]:
    shape = item["schema"]
    default = shape.get("default")
    return [
        f"<code>{escape(item['name'])}</code>",
        escape(_values(shape)),
        "" if default in (None, []) else f"<code>{escape(str(default))}</code>",
        escape(item.get("description", "")),
    ]


def _values(shape: dict[str, Any]) -> str:
    """The values of a JSON schema as text."""
    if "enum" in shape:
        return " | ".join(shape["enum"])
    if shape.get("type") == "array":
        return f"{_values(shape['items'])}, repeatable"
    return str(shape.get("type", "any"))
