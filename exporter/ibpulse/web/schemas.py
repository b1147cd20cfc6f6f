"""What OpenAPI says of routes and of their refusals."""

from __future__ import annotations

from typing import Any

from ibpulse.web.problems import MEDIA_TYPE, ProblemDocument

_REASONS = {
    401: "Authentication required.",
    404: "No such port or job.",
    414: "Query too long.",
    421: "Host name not served.",
    422: "Invalid parameter; the detail names the limit and how to fix the request.",
    429: "Rate limit exceeded.",
    502: "The node refuses, or its answer is not the expected one.",
    503: "Too many concurrent wide requests; try again.",
    504: "The node does not answer.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {MEDIA_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": _REASONS[status], "content": content} for status in statuses}


def operation(name: str) -> dict[str, Any]:
    """The name of a route in the OpenAPI document, which clients are generated from; functions can be renamed."""
    return {"operation_id": name, "name": name}


def text(description: str, media_type: str = "text/plain") -> dict[str, Any]:
    """OpenAPI description of a plain-text response."""
    return {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}


def inline_parts(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with all its parts inlined, for use within a request or a response."""
    parts = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            named = parts.get(str(value.get("$ref")).rpartition("/")[2])
            return resolve(named) if named else {name: resolve(member) for name, member in value.items()}
        return [resolve(item) for item in value] if isinstance(value, list) else value

    return dict(resolve(schema))


GRAFANA_SCHEMA: dict[str, Any] = {
    "title": "A Grafana data frame, with format=grafana",
    "type": "object",
    "required": ["schema", "data"],
    "properties": {
        "schema": {"type": "object"},
        "data": {"type": "object", "properties": {"values": {"type": "array", "items": {"type": "array"}}}},
    },
}
