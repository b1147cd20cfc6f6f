"""Problem documents (RFC 9457), the format of every error response, and descriptions of routes for OpenAPI."""

from __future__ import annotations

import http
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from ibpulse.base.errors import RequestError
from ibpulse.base.values import explain

MEDIA_TYPE = "application/problem+json"
TEXT = ("text/plain",)


class ProblemDocument(BaseModel):
    """A refused request (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Kind of problem, an anchor of /api/docs; about:blank if the status is sufficient.")
    title: str = Field(description="Short description of the kind; the same for every problem of this kind.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The rejected value, the limit, and how to fix the request.")


class ProblemError(RequestError):
    """A refused request, with its kind and additional machine-readable members."""

    def __init__(self, kind: str, status: int, detail: str, **members: Any) -> None:
        super().__init__(status, KINDS[kind], detail)
        self.kind = kind
        self.members = members


KINDS = {
    "bad-parameter": "Invalid parameter",
    "unknown-port": "No such port",
    "unknown-job": "No such job",
    "too-many-values": "Too many values in the window",
    "too-busy": "Too many concurrent wide requests",
    "too-many-viewers": "Too many viewers",
    "query-too-long": "Query too long",
    "writing-needs-user": "Write access requires a user",
    "unknown-capture": "No such capture",
    "too-many-captures": "Too many pending captures",
    "no-captures": "Captures unavailable",
    "bad-range": "Range not satisfiable",
    "login-needed": "Authentication required",
    "too-many-logins": "Too many pending logins",
    "too-many-requests": "Rate limit exceeded",
    "too-many-connections": "Too many connections",
    "cross-site": "Cross-site write refused",
    "wrong-host": "Host name not served",
    "body-too-long": "Body too long",
    "body-too-slow": "Body timeout",
    "unknown-node": "No such node",
    "no-answer": "No answer from the node",
    "node-refused": "Refused by the node",
    "bad-answer": "Unexpected answer from the node",
}
"""Kinds of problems and their titles."""

SYNONYMS = {
    **dict.fromkeys(("start", "start_ms", "start_time", "begin", "since", "after", "from_ms"), "from"),
    **dict.fromkeys(("end", "end_ms", "end_time", "stop", "until", "before", "to_ms"), "to"),
    **dict.fromkeys(("duration", "range", "span"), "last"),
    **dict.fromkeys(("device", "subject"), "port"),
    **dict.fromkeys(("job_id", "jobid", "slurm_job_id"), "job"),
    **dict.fromkeys(("step", "interval", "bin"), "resolution"),
    **dict.fromkeys(("points", "limit", "count"), "max_points"),
    **dict.fromkeys(("type", "event"), "kind"),
}
"""Names of parameters in other programs, which are not spelt like ours."""


def problem_response(
    status: int,
    detail: str,
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    title: str = "",
    **members: Any,
) -> Response:
    """A response with a problem document; a kind of problem has a title. `members` are additional ones."""
    document = {
        "type": f"/api/docs#{kind}" if kind else "about:blank",
        "title": title or KINDS.get(kind) or http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **members,
    }
    return Response(orjson.dumps(document), status, headers, MEDIA_TYPE)


def bad_parameter(parameter: str, reason: str) -> ProblemError:
    """The error for one parameter; `reason` names its value and the remedy."""
    return ProblemError(
        "bad-parameter", 422, f"{parameter}: {reason}", errors=[{"parameter": parameter, "message": reason}]
    )


def invalid_parameters(faults: Sequence[Any], known: Iterable[str] = ()) -> ProblemError:
    """The error for parameters or members rejected by pydantic; `known` are the accepted names."""
    known = list(known)
    errors = [{"parameter": str(fault["loc"][-1])[:64], "message": _explain(fault, known)} for fault in faults[:16]]
    detail = "; ".join(f"{fault['parameter']}: {fault['message']}" for fault in errors)
    return ProblemError("bad-parameter", 422, detail, errors=errors)


def _explain(fault: Any, known: Sequence[str]) -> str:
    meant = SYNONYMS.get(str(fault["loc"][-1]))
    if fault["type"] == "extra_forbidden" and meant in known:
        return f"no such name; did you mean {meant}?"
    return explain(fault, known)


def install_problem_handlers(app: FastAPI) -> None:
    """Turn every error of `app` into a problem document."""
    app.add_exception_handler(RequestError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    if not isinstance(error, ProblemError):
        return problem_response(error.status, error.detail, title=error.title)
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return problem_response(error.status, error.detail, error.kind, headers, **error.members)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _refused(request, invalid_parameters(error.errors(), _parameters(request)))


def _parameters(request: Request) -> list[str]:
    """The names of the query parameters of a request's route."""
    described = request.app.openapi()["paths"].get(getattr(request.scope.get("route"), "path", ""), {})
    parameters = described.get(request.method.lower(), {}).get("parameters", [])
    return [parameter["name"] for parameter in parameters if parameter["in"] == "query"]


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == 404:
        detail = f"No such path: {request.url.path[:200]}. See / for the list of endpoints."
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
        detail = f"{request.method[:32]} is not allowed here; use {' or '.join(_methods(request))}."
    return problem_response(error.status_code, detail, headers=headers)


def _methods(request: Request) -> list[str]:
    """The methods allowed for a request's path; HEAD whenever GET is."""
    routes = request.app.routes
    found = [
        method
        for method in ("GET", "POST", "DELETE")
        if any(route.matches({**request.scope, "method": method})[0] == Match.FULL for route in routes)
    ]
    return ["GET", "HEAD", *found[1:]] if "GET" in found else found


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


def problems(*statuses: int, reasons: Mapping[int, str] = _REASONS) -> dict[int | str, dict[str, Any]]:
    """OpenAPI descriptions of error responses with these statuses."""
    content = {MEDIA_TYPE: {"schema": ProblemDocument.model_json_schema()}}
    return {status: {"description": reasons[status], "content": content} for status in statuses}


def operation(
    name: str,
    answer: Mapping[str, Any] | None = None,
    *refused: int,
    repeatable: Sequence[str] | None = None,
    reasons: Mapping[int, str] = _REASONS,
    status: int = 200,
) -> dict[str, Any]:
    """A route as FastAPI takes it: its name in the OpenAPI document, its answer, and the statuses of its refusals.

    Clients are generated from the name; functions can be renamed. With `repeatable`, no parameter but these may be
    given more than once.
    """
    return {
        "operation_id": name,
        "name": name,
        "status_code": status,
        "responses": {**({status: answer} if answer else {}), **problems(*refused, reasons=reasons)},
        "response_class": Response,
        "dependencies": [] if repeatable is None else [refuse_repeated(*repeatable)],
    }


def probe(name: str, good: str) -> dict[str, Any]:
    """A probe as FastAPI takes it; `good` describes the answer when all is well."""
    found = operation(name, text(good))
    found["responses"][503] = text("The check failed; the text gives the reason.")
    return found


def model(part: type[BaseModel], description: str) -> dict[str, Any]:
    """OpenAPI description of an answer."""
    return {"model": part, "description": description}


def text(description: str, *media_types: str, kind: str = "string") -> dict[str, Any]:
    """OpenAPI description of a response as plain text, or of these types."""
    return {"description": description, "content": {each: {"schema": {"type": kind}} for each in media_types or TEXT}}


def refuse_repeated(*repeatable: str) -> Any:
    """A dependency that refuses parameters given more than once, except the `repeatable` ones.

    FastAPI would use the last value and ignore the others.
    """

    async def check(request: Request) -> None:
        counts = Counter(name for name, _ in request.query_params.multi_items())
        if any(count > 1 for name, count in counts.items() if name not in repeatable):
            but = f"; only {', '.join(repeatable)} may be repeated" if repeatable else ""
            raise bad_parameter("query", f"a parameter is given more than once{but}")

    return Depends(check)


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
