"""An authority for the tests, and what it signs, made by the `openssl` program."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path

    def curl(self) -> list[str]:
        return ["--cert", str(self.cert), "--key", str(self.key)]


def openssl(*words: object, text: str = "") -> str:
    return subprocess.run(["openssl", *map(str, words)], input=text, capture_output=True, text=True, check=True).stdout


def make_authority(directory: Path, name: str = "authority") -> Pair:
    """A certificate that signs others."""
    pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.cert, "-days", 30)
    return pair


def sign(authority: Pair, directory: Path, name: str, names: str = "", subject: str | None = None) -> Pair:
    """A certificate for `name`; `names` as in `DNS:a,IP:127.0.0.1`."""
    pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    request = directory / f"{name}.csr"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", *curve, "-subj", subject or f"/CN={name}", "-keyout", pair.key, "-out", request)
    extensions = directory / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n" if names else "basicConstraints=CA:FALSE\n")
    by = ("-CA", authority.cert, "-CAkey", authority.key, "-CAcreateserial")
    openssl("x509", "-req", "-in", request, *by, "-out", pair.cert, "-days", 30, "-extfile", extensions)
    return pair
