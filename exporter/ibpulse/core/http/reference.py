"""The API reference as HTML, from an OpenAPI document."""

from __future__ import annotations

from html import escape
from typing import Any

from ibpulse.core.http.page_parts import table
from ibpulse.core.http.problems import KINDS


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
            "<br>".join(f"<code>{escape(t)}</code>" for t in _types(answer)),
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


def _types(answer: dict[str, Any]) -> list[str]:
    return list(answer.get("content", {}))


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
