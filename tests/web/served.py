"""A small application behind TLS on a real socket, and the files of its web configuration."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ibpulse.core.http.access import USER, AccessControl
from ibpulse.core.http.server import WebServer, serve
from ibpulse.core.http.web_config import WebConfigReloader
from ibpulse.core.metrics.web import WebCounts
from tests.running import HANG_SECONDS
from tests.web.certificates import Pair, make_authority, sign

ASK = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
MUTUAL = "client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt"
# of curl: connecting failed, nothing came, sending or receiving failed; TLS 1.3 tells a client once it has begun to ask
BROKEN_OFF = (35, 52, 55, 56)


class Files:
    """A directory with authorities, certificates and a web configuration."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = make_authority(directory)
        self.clients = make_authority(directory, "clients")
        sign(self.authority, directory, "server", "DNS:localhost,IP:127.0.0.1")
        self.client = sign(self.clients, directory, "client", "DNS:scraper,IP:::1,email:a@b.example,URI:spiffe://x/y")
        self.stranger = sign(self.authority, directory, "stranger", "DNS:scraper")
        self.path = directory / "web.yml"

    @classmethod
    def copied(cls, made: Path, directory: Path) -> Files:
        """The same files in another directory, for a test that changes them."""
        for path in made.iterdir():
            (directory / path.name).write_bytes(path.read_bytes())
        files = cls.__new__(cls)
        files.directory, files.path = directory, directory / "web.yml"
        for name in ("authority", "clients", "client", "stranger"):
            setattr(files, name, Pair(directory / f"{name}.crt", directory / f"{name}.key"))
        files.write()
        return files

    def write(self, more: str = "", rest: str = "") -> None:
        self.path.write_text(f"tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  {more}\n{rest}")

    def renew_server(self) -> None:
        sign(self.authority, self.directory, "server", "DNS:localhost", subject="/CN=renewed")


async def say(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse({"user": scope.get(USER), "scheme": scope["scheme"]})(scope, receive, send)


class Served:
    """An application with access control behind the files' TLS."""

    def __init__(self, files: Files, counts: WebCounts | None = None) -> None:
        self.files, self.web_config = files, WebConfigReloader(files.path, counts)
        self.server: WebServer

    async def __aenter__(self) -> Served:
        self.server = await serve(AccessControl(say, self.web_config, 1000), "127.0.0.1", 0, web_config=self.web_config)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    def poll(self) -> None:
        """Poll twice, as the daemon does in two seconds."""
        self.web_config.poll()
        self.web_config.poll()

    async def curl(self, *flags: str) -> tuple[int, str]:
        """Exit status and answer of curl."""
        command = ["curl", "--silent", "--show-error", "--max-time", "10", "--cacert", str(self.files.authority.cert)]
        process = await asyncio.create_subprocess_exec(
            *command, *flags, f"https://localhost:{self.server.port}/", stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, error = await process.communicate()
        assert process.returncode is not None
        return process.returncode, (out or error).decode()

    async def connect(self, client: Pair | None = None, **changes: Any) -> tuple[ssl.SSLObject, bytes]:
        """The connection of a client, and what it was told."""
        context = ssl.create_default_context(cafile=self.files.authority.cert)
        if client:
            context.load_cert_chain(client.cert, client.key)
        for name, value in changes.items():
            setattr(context, name, value)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=context, server_hostname="localhost"
        )
        writer.write(ASK)
        try:
            return writer.get_extra_info("ssl_object"), await asyncio.wait_for(reader.read(), HANG_SECONDS)
        finally:
            writer.close()

    async def subject(self) -> str:
        """The common name of the server's certificate."""
        peer, _ = await self.connect()
        subject: Any = (peer.getpeercert() or {})["subject"]
        return str(dict(part[0] for part in subject)["commonName"])
