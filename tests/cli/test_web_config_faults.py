"""Faults of configuration files are told before anything starts, by `config check` and by `serve`."""

from __future__ import annotations

import json
from pathlib import Path

import bcrypt
import pytest

from ibpulse.cli import main
from tests.tables import for_each


def hashed(cost: int) -> str:
    return bcrypt.hashpw(b"x", bcrypt.gensalt(cost)).decode()


@for_each(["config check", "serve"])
def test_faults_are_told_before_anything_starts(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "web.yml"

    def said(flag: str, text: str) -> str:
        path.write_text(text)
        assert main([*verb.split(), f"--ring.dir={tmp_path / 'ring'}", f"--{flag}={path}"], {}) == 2
        return capsys.readouterr().err

    secrets = said("web.config.file", "tls_server_config: {cert_file: a, key_file: b}\nbasic_auth_users: {x: y}\n")
    assert secrets.startswith(f"ibpulse: {path}:2: basic_auth_users.x: is not a bcrypt hash; ")
    for flag in ("web.config.file", "config.file", "topology.file"):
        deep = said(flag, "[" * 5000)
        assert deep.count("\n") == 1
        assert f"{path}:1: more than 20 levels deep; correct the brackets or the indentation" in deep
    missing = said("web.config.file", "tls_server_config: {cert_file: a, key_file: b}\n")
    assert missing.count("cannot be read: No such file") == 2


def test_a_usable_file_is_checked_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "web.yml"
    path.write_text(f"basic_auth_users: {{alice: {hashed(5)}, bob: {hashed(4)}}}\n")
    assert main(["config", "check", f"--web.config.file={path}"], {}) == 0
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "the hashes have costs of 4 and 5, so the time of a refusal tells" in warning
    assert main(["config", "print", "--format=json", f"--web.config.file={path}"], {}) == 0
    assert json.loads(capsys.readouterr().out)["web"]["config.file"] == str(path)
