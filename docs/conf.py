"""The documentation site, which Sphinx builds from the pages of this directory (`make docs-site`).

The index, README.md, is the only list of pages: each of its headings becomes a part of the site's navigation, with the
pages that the section links to. A page that it does not name is listed under *More*.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "exporter"))

from ibpulse import __version__  # noqa: E402

INDEX, RUNBOOKS = "README", "runbooks/README"
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s:#]+)(#[^)\s]*)?\)")
TOCTREE = "\n\n```{{toctree}}\n:hidden:\n{option}\n{pages}\n```\n"

project = "ibpulse"
author = "The ibpulse authors"
project_copyright = author
version = release = __version__
root_doc = INDEX
extensions = ["myst_nb"]
# notebooks are executed by their test, and shown with what they printed then
nb_execution_mode = "off"
exclude_patterns = ["**/.ipynb_checkpoints"]
# links name headings as repositories do
myst_heading_anchors = 4
highlight_language = "text"
# typographic quotes would also turn -- into a dash
smartquotes = False
# PromQL with units, and JSON with an ellipsis, are shown without colours
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = f"ibpulse {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_search_scorer = str(DOCS / "search_scores.js")


def add_navigation(app: Any, docname: str, source: list[str]) -> None:
    """Add the tables of contents that the lists of the two index pages stand for."""
    if docname == INDEX:
        head, *sections = re.split(r"(?m)^(?=## )", source[0])
        source[0] = head + "".join(map(_with_pages, sections)) + _toctree("More", _unlisted(app, source[0]))
    elif docname == RUNBOOKS:
        source[0] += _toctree("", [name.removeprefix("runbooks/") for name in _linked(source[0])])


def _with_pages(section: str) -> str:
    heading = section.partition("\n")[0].removeprefix("## ")
    return section + _toctree(heading, _linked(section))


def _linked(text: str) -> list[str]:
    """The pages of this directory to which a text links, without their endings, each once."""
    targets = [Path(target) for _, target, _ in LINK.findall(text) if not target.startswith("..")]
    pages = [target.with_suffix("").as_posix() for target in targets if target.suffix in (".md", ".ipynb")]
    return list(dict.fromkeys(pages))


def _unlisted(app: Any, index: str) -> list[str]:
    listed = {INDEX, *_linked(index)}
    return sorted(name for name in app.env.found_docs - listed if not name.startswith("runbooks/"))


def _toctree(caption: str, pages: list[str]) -> str:
    option = f":caption: {caption}\n" if caption else ""
    return TOCTREE.format(option=option, pages="\n".join(pages)) if pages else ""


def point_outside(app: Any, docname: str, source: list[str]) -> None:
    """Lead links to files that are no pages to the repository, or to the checkout if it has no address.

    A link that is named after its file gets the title of the page or the heading.
    """
    page = DOCS / f"{docname}.md"

    def address(found: re.Match[str]) -> str:
        text, target, anchor = found.groups(default="")
        path = (page.parent / target).resolve()
        if text.startswith("!") or not path.exists() or (path.is_relative_to(DOCS) and path.is_file()):
            return f"[]({target}{anchor})" if text == f"[{path.name}]" else found[0]
        if app.config.repository:
            inside = path.relative_to(ROOT).as_posix()
            return (
                f"{text}({app.config.repository}/{'tree' if path.is_dir() else 'blob'}/v{__version__}/{inside}{anchor})"
            )
        built = Path(app.outdir) / docname
        return f"{text}(<path-to:{os.path.relpath(path, built.parent)}{anchor}>)"

    source[0] = LINK.sub(address, source[0])


def write_front_page(app: Any, error: Exception | None) -> None:
    """Make the index also the page at which a web server begins."""
    if error is None and app.builder.format == "html":
        shutil.copy(Path(app.outdir) / f"{INDEX}.html", Path(app.outdir) / "index.html")


# a scheme of its own, or MyST would search the pages for the file
myst_url_schemes = {"http": None, "https": None, "mailto": None, "path-to": "{{path}}#{{fragment}}"}


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_config_value("repository", "", "html")
    app.connect("source-read", add_navigation)
    app.connect("source-read", point_outside)
    app.connect("build-finished", write_front_page)
