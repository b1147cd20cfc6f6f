"""The pages of the gateway: all nodes, one node, and one job. Their scripts and styles are those of the live page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from starlette.responses import HTMLResponse

from ibpulse.core.http.pages import LIVE_PAGE_POLICY, NODE_WORDS, links, live_document, page

_NODES = Template(files(__package__).joinpath("nodes.html").read_text(encoding="utf-8"))
_ORDER = """<div class="group" role="group" aria-label="Order of the rows" title="Order of the rows (s)">
      <button data-sort="lateness">Latest</button><button data-sort="bandwidth">Busiest</button>\
<button data-sort="name">Name</button><button data-sort="rack">Rack</button>
    </div>
    <div class="group" role="group" aria-label="Rows" title="One row per node, or per rail of the chosen nodes (n)">
      <button data-rows="nodes">Nodes</button><button data-rows="rails">Rails</button>
    </div>
    """
_CAPTURE = """<button id="capture" title="Save the samples around now on all nodes of the job; \
from a held view, everything since it began">Capture</button>
    """
_ABOUT_ROWS = """<p>A row of a node is the sum over the rails that the job has there. It leads to the page of the node.
Double-click the picture, or press Enter, to open the node whose row is read.</p>
  <p>Each row has the time of its own node. Next to its name is how far its clock is ahead (+) or behind (−), and how \
far that may be wrong. Rows that differ by less are in no order.</p>
  """
JOB_WORDS: Mapping[str, str] = {
    "script": "job.js",
    "whole": "Job",
    "sum": "Job, transmit + receive of its rails on all nodes",
    "rows": "Nodes",
    "menu": "Choose",
    "row": "node",
    "holders": "nodes",
    "health": "Answers and clocks",
    "table": "All rows as a table",
    "format": "json",
    "samples": "Samples as JSON",
    "copies": '<button id="copy-curl">Copy as curl</button>',
    "total": "Job",
    "menu_rows": "Rows",
    "order": _ORDER,
    "about_rows": _ABOUT_ROWS,
}
_NODE_WORDS: Mapping[str, str] = {
    **NODE_WORDS,
    "format": "json",
    "samples": "Samples as JSON",
    "copies": """<button id="copy-curl">Copy as curl</button>
      <button id="copy-promql">Copy as PromQL</button>""",
}
"""Only the node itself answers with CSV and takes captures of a single node."""
_LINKS = (
    ("api/v1/nodes", "nodes and their sources as JSON"),
    ("api/v1/jobs", "jobs with their nodes, also those that ended"),
    ("metrics", "metrics of the gateway for Prometheus"),
    ("api/docs", "API reference"),
)
_NODE_LINKS = (
    ("api/v1/window?last=5s&max_points=500", "newest raw samples"),
    ("api/v1/summary?last=10s", "traffic statistics of the last ten seconds"),
    ("api/v1/ports", "ports as JSON"),
    ("api/v1/events?last=1h", "events of the last hour: links, ports, captures"),
    ("api/v1/jobs", "jobs of the node and the ports that carry their traffic"),
    ("api/v1/captures", "captures of the flight recorder"),
)
_JOB_LINKS = (
    ("window?last=5s&max_points=500", "newest samples of every node"),
    ("summary?last=10s", "statistics of every node in the last ten seconds"),
    ("events?last=1h", "events of the nodes in the last hour"),
    ("captures", "captures of the flight recorders"),
)


def nodes_page(version: str) -> HTMLResponse:
    """The page of all nodes, at `/`."""
    text = _NODES.substitute(version=escape(version), facts=f"<h2>Interfaces</h2>\n{links(_LINKS)}")
    return HTMLResponse(text, headers={"Content-Security-Policy": LIVE_PAGE_POLICY})


def node_page(name: str, version: str, *, simulated: bool) -> HTMLResponse:
    """The live page of a node, at `/node/NAME/`; the API of the node is below it."""
    facts = f"<h2>Interfaces of {escape(name)}</h2>\n{links(_NODE_LINKS)}"
    root = "../../"
    return live_document(
        _NODE_WORDS, version, facts, simulated=simulated, name=name, root=root, navigation=_navigation(root)
    )


def job_page(job: str, version: str, *, simulated: bool, may_capture: bool) -> HTMLResponse:
    """The live page of a job, at `/job/ID`; its API is below `/api/v1/jobs/ID/`. An id has no slash.

    It has the button that takes captures only for those who may.
    """
    root = "../"
    api = f"{root}api/v1/jobs/{quote(job)}/"
    facts = f"<h2>Interfaces of the job</h2>\n{links([(api + path, words) for path, words in _JOB_LINKS])}"
    return live_document(
        {**JOB_WORDS, "order": (_CAPTURE if may_capture else "") + _ORDER},
        version,
        facts,
        simulated=simulated,
        name=f"job {job}",
        root=root,
        api=api,
        navigation=_navigation(root),
    )


def refused_page(detail: str, root: str) -> HTMLResponse:
    """The page instead of one of a node that does not exist: why, and the way to all nodes."""
    answer = page(
        "ibpulse gateway",
        f'<main><h1>Not found</h1>\n<p>{escape(detail)}</p>\n<p><a href="{root}">All nodes</a></p></main>',
    )
    answer.status_code = 404
    return answer


def _navigation(root: str) -> str:
    return f'\n  <nav aria-label="Pages"><a href="{root}">All nodes</a></nav>'
