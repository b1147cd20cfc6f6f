"""What `server` and `connection` of `core/http` rely on inside uvicorn, one sentence for each thing that can break.

uvicorn is pinned to the minor version they were written for. When a test here fails after an upgrade, its message names
the part of our subclasses to revise.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httptools
import pytest
import uvicorn
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from ibpulse.core.http import server

# Ours, and the parameters with which uvicorn itself calls the method or with which we call it.
PROTOCOL_METHODS = {
    "__init__": ("self", "config", "server_state", "app_state", "_loop"),
    "connection_made": ("self", "transport"),
    "connection_lost": ("self", "exc"),
    "data_received": ("self", "data"),
    "on_message_begin": ("self",),
    "on_headers_complete": ("self",),
    "on_message_complete": ("self",),
    "on_response_complete": ("self",),
    "_start_asgi_task": ("self", "cycle", "app"),
    "_unset_keepalive_if_required": ("self",),
}
SERVER_METHODS = {
    "__init__": ("self", "config"),
    "serve": ("self", "sockets"),
    "startup": ("self", "sockets"),
    "main_loop": ("self",),
    "on_tick": ("self", "counter"),
    "capture_signals": ("self",),
    "shutdown": ("self", "sockets"),
}
CONFIG_PARAMETERS = (
    "app",
    "ws",
    "lifespan",
    "log_config",
    "access_log",
    "server_header",
    "proxy_headers",
    "timeout_keep_alive",
    "timeout_graceful_shutdown",
)


async def app(scope: object, receive: object, send: object) -> None:
    """An application that is never called."""


def minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def test_uvicorn_is_pinned_to_the_minor_version_that_is_installed() -> None:
    document = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (pin,) = (each for each in document["project"]["dependencies"] if each.startswith("uvicorn"))
    major, middle = minor(uvicorn.__version__)
    assert pin == f"uvicorn>={major}.{middle},<{major}.{middle + 1}", (
        f"pyproject.toml pins {pin}, and uvicorn {uvicorn.__version__} is installed: read the changes of uvicorn's "
        "server.py and httptools_impl.py, revise core/http/server.py, then move the pin"
    )


@pytest.mark.parametrize(
    ("theirs", "ours", "name", "parameters"),
    [
        *((HttpToolsProtocol, "Connection", name, parameters) for name, parameters in PROTOCOL_METHODS.items()),
        *((Server, "_Server", name, parameters) for name, parameters in SERVER_METHODS.items()),
    ],
)
def test_the_methods_that_we_override_or_call_are_there(
    theirs: type, ours: str, name: str, parameters: tuple[str, ...]
) -> None:
    method = getattr(theirs, name, None)
    assert method is not None, f"uvicorn's {theirs.__name__} has no {name} any more, which {ours} overrides or calls"
    found = tuple(inspect.signature(method).parameters)
    assert found == parameters, f"uvicorn's {theirs.__name__}.{name} takes {found}; {ours} was written for {parameters}"


@pytest.mark.parametrize(("ours", "theirs"), [(server.Connection, HttpToolsProtocol), (server._Server, Server)])
def test_every_method_that_overrides_one_of_uvicorn_is_listed_above(ours: type, theirs: type) -> None:
    listed = PROTOCOL_METHODS if theirs is HttpToolsProtocol else SERVER_METHODS
    overridden = {name for name in vars(ours) if callable(vars(ours)[name]) and hasattr(theirs, name)}
    assert overridden - set(listed) == set(), f"{ours.__name__} overrides methods that this test does not watch"


@pytest.mark.parametrize("name", ["startup", "main_loop", "shutdown", "on_tick"])
def test_the_phases_of_the_server_are_coroutines(name: str) -> None:
    assert inspect.iscoroutinefunction(getattr(Server, name)), f"uvicorn's Server.{name} is not awaited any more"


async def test_serve_runs_the_phases_that_we_replace_in_their_order() -> None:
    called: list[str] = []

    class Phases(Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            called.append("capture_signals")
            yield

        async def startup(self, sockets: object = None) -> None:
            called.append("startup")
            self.started = True

        async def main_loop(self) -> None:
            called.append("main_loop")

        async def shutdown(self, sockets: object = None) -> None:
            called.append("shutdown")

    await Phases(Config(app, lifespan="off", log_config=None)).serve(sockets=[])
    assert called == ["capture_signals", "startup", "main_loop", "shutdown"], (
        "uvicorn's Server.serve calls other phases, or in another order, than _Server replaces"
    )


def test_the_configuration_takes_what_we_set() -> None:
    taken = set(inspect.signature(Config).parameters)
    assert set(CONFIG_PARAMETERS) <= taken, "uvicorn's Config does not take a parameter that serve() sets"


async def test_the_server_keeps_the_attributes_that_we_read_and_set() -> None:
    made = Server(Config(app, lifespan="off", log_config=None, server_header=False))
    for name in ("config", "server_state", "started", "should_exit"):
        assert hasattr(made, name), f"uvicorn's Server has no attribute {name} any more, which core/http/server.py uses"
    assert isinstance(made.server_state.connections, set), "server_state.connections is not a set of protocols any more"
    await made.on_tick(0)
    assert [name for name, _ in made.server_state.default_headers] == [b"date"], (
        "Server.on_tick(0) does not renew the Date header any more, which main_loop of _Server calls it for"
    )
    made.should_exit = True
    assert await made.on_tick(0) is True, "Server.on_tick does not return should_exit any more: the server never ends"


class Nowhere(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        """Nothing comes from nowhere."""

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
async def protocol() -> AsyncIterator[HttpToolsProtocol]:
    """uvicorn's own protocol on a transport that goes nowhere."""
    config = Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
    config.load()
    made = HttpToolsProtocol(config, ServerState(), {})
    made.connection_made(Nowhere())
    yield made
    await asyncio.gather(*made.tasks)


async def test_a_connection_keeps_the_attributes_that_we_read_and_set(protocol: HttpToolsProtocol) -> None:
    for name in ("app_state", "config", "loop", "timeout_keep_alive", "transport"):
        assert hasattr(protocol, name), f"HttpToolsProtocol has no attribute {name} any more, which Connection uses"
    assert protocol in protocol.connections, (
        "connection_made does not put the connection into the server's set any more"
    )


async def test_the_head_of_a_request_passes_where_we_look_at_it(protocol: HttpToolsProtocol) -> None:
    protocol.app_state = {"certificate": "name"}
    protocol.data_received(b"GET /path?query HTTP/1.1\r\nHost: node\r\n\r\n")
    assert protocol.url == b"/path?query", "HttpToolsProtocol.url is not the whole target: its length bounds the head"
    assert protocol.headers == [(b"host", b"node")], "HttpToolsProtocol.headers are not the pairs that bound the head"
    assert protocol.scope["state"] == {"certificate": "name"}, (
        "the scope's state is not a copy of app_state any more: the name in a client's certificate is lost"
    )


async def test_the_state_of_a_request_is_that_of_its_cycle(protocol: HttpToolsProtocol) -> None:
    protocol.data_received(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n")
    cycle = protocol.cycle
    found = (cycle.more_body, cycle.response_started, cycle.response_complete, cycle.disconnected, cycle.keep_alive)
    assert found == (True, False, False, False, True), "a cycle does not begin in the state that Connection assumes"
    assert cycle.scope is protocol.scope, "a cycle's scope is not that of its request any more"
    protocol.data_received(b"xGET / HTTP/1.1\r\n\r\n")
    assert not cycle.more_body, "cycle.more_body does not say any more whether the body is complete"
    assert [queued for queued, _ in protocol.pipeline] == [protocol.cycle], (
        "requests that wait for the one before are not in HttpToolsProtocol.pipeline, the newest first"
    )
    cycle.disconnected = True
    cycle.message_event.set()
    assert (await cycle.receive())["type"] == "http.disconnect", "cycle.disconnected does not end a request any more"


def test_after_an_upgrade_the_parser_goes_on_where_it_says() -> None:
    heard: list[bytes] = []

    class Callbacks:
        def on_url(self, url: bytes) -> None:
            heard.append(url)

    parser = httptools.HttpRequestParser(Callbacks())
    data = b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nGET /b HTTP/1.1\r\n\r\n"
    with pytest.raises(httptools.HttpParserUpgrade) as caught:
        parser.feed_data(data)
    assert data[caught.value.args[0] :].startswith(b"GET /b"), "HttpParserUpgrade does not say where the request ends"
    parser.feed_data(data[caught.value.args[0] :])
    assert heard == [b"/a", b"/b"], "the parser does not go on after an upgrade any more"


def test_the_parser_calls_back_the_methods_that_we_override() -> None:
    heard: list[str] = []

    class Callbacks:
        def on_message_begin(self) -> None:
            heard.append("on_message_begin")

        def on_headers_complete(self) -> None:
            heard.append("on_headers_complete")

        def on_message_complete(self) -> None:
            heard.append("on_message_complete")

    httptools.HttpRequestParser(Callbacks()).feed_data(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
    assert heard == ["on_message_begin", "on_headers_complete", "on_message_complete"], (
        "httptools calls back other methods than we override"
    )
