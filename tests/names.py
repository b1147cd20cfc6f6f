"""Names that nobody knows, without a question to a name server."""

from __future__ import annotations

import socket
from typing import Any

import pytest


def forget_invalid_names(patch: pytest.MonkeyPatch) -> None:
    """No name that ends in `.invalid` can be resolved."""
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **named: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        if text.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **named)

    patch.setattr(socket, "getaddrinfo", resolve)
