"""`/`: the live page around what needs no script: the state, where to go from here, the ports at a glance."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from starlette.responses import HTMLResponse

from ibpulse.model import Port
from ibpulse.web.document import table
from ibpulse.web.health_route import judge_health
from ibpulse.web.parts import WebParts

_PAGE = Template(files(__package__).joinpath("static", "live.html").read_text(encoding="utf-8"))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_EXAMPLE = "/api/v1/window?last=5s&max_points=500"
_LINKS = (
    ("/metrics", "for Prometheus"),
    (_EXAMPLE, "the newest raw samples"),
    ("/api/v1/summary?window=10s", "what the traffic did in the last ten seconds"),
    ("/api/v1/ports", "the ports as JSON"),
    ("/api/docs", "how to ask the API"),
    ("/-/healthy", "is it sampling?"),
    ("/-/ready", "are samples in?"),
)


def live_page(parts: WebParts) -> HTMLResponse:
    """The whole page with its own content policy: scripts and styles from this server alone."""
    text = _PAGE.substitute(version=escape(parts.version), facts=landing_body(parts))
    return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})


def landing_body(parts: WebParts) -> str:
    """What the page says without its script, as HTML."""
    fabric = parts.fabric()
    interval = f"{parts.reader.interval_ns / 1e6:g} ms"
    states = [judge_health(parts), parts.ready()]
    lines = [
        f"<p>What every InfiniBand and RoCE port of this node does, every {interval}. "
        f'<span class="soft">Version {escape(parts.version)}</span></p>',
        *(f'<p class="{"good" if good else "bad"}">{escape(sentence)}</p>' for good, sentence in states),
        *(f'<p class="notice">{escape(notice)}</p>' for notice in fabric.notices),
        "<h2>Ports</h2>",
        table(["Port", "State", "Data rate", "Rail", "Bytes from", "Remark"], [_row(port) for port in fabric.ports])
        if fabric.ports
        else '<p class="soft">No port was found.</p>',
        "<h2>Interfaces</h2>",
        '<ul class="links">' + "".join(_link(*link) for link in _LINKS) + "</ul>",
    ]
    return "\n".join(lines)


def _link(target: str, words: str) -> str:
    return f'<li><a href="{escape(target)}"><code>{escape(target)}</code><span>{escape(words)}</span></a></li>'


def _row(port: Port) -> list[str]:
    rate = port.rate_bytes_per_second
    return [
        f"<code>{escape(str(port.id))}</code>",
        f'<span class="{"good" if port.active else "bad"}">{escape(port.state)}</span>',
        "" if rate is None else f"{rate * 8 / 1e9:g} Gb/s",
        "rail" if port.rail else "",
        f"<code>{escape(port.source.name)}</code>" if port.source else "",
        escape(port.problem or (port.source.note if port.source else "")),
    ]
