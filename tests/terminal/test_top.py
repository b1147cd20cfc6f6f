"""The choice of `ibpulse top` between a daemon and samples of its own, its messages, and the terminal's encoding."""

from __future__ import annotations

import codecs
import locale
import logging

import pytest

from ibpulse.agent.config.settings import ListenAddress
from ibpulse.base.errors import ConfigError, DaemonError
from ibpulse.commands.top import NOTE_SECONDS, Notes, find_daemon, is_alone
from ibpulse.workbench.top.driver import choose_marks, set_encoding
from ibpulse.workbench.top.screen import ASCII, BLOCKS
from tests.client.servers import canned
from tests.tables import for_each


@for_each(
    [
        (False, {"sampler.interval": "default", "web.listen-address": "flag --web.listen-address"}, False),
        # settings from a file or the environment are meant for the daemon
        (False, {"path.sysfs": "environment variable IBPULSE_PATH__SYSFS"}, False),
        (False, {"sampler.interval": "flag --sampler.interval"}, True),
        (False, {"ports.exclude": "flag --ports.exclude"}, True),
        (False, {"path.sysfs": "flag --path.sysfs"}, True),
        (True, {}, True),
    ]
)
def test_sampling_flags_make_top_sample_itself(asked: bool, origins: dict[str, str], alone: bool) -> None:
    assert is_alone(None, asked, origins) is alone
    if alone:
        flag = "--alone" if asked else f"--{next(iter(origins))}"
        with pytest.raises(ConfigError, match=rf"^flag {flag}: cannot be combined with --url=http://a, which shows"):
            is_alone("http://a", asked, origins)
    else:
        assert not is_alone("http://a", asked, origins)


def test_daemon_with_password_is_not_skipped() -> None:
    with canned() as server:
        address = ListenAddress("127.0.0.1", int(server.url.rpartition(":")[2]))
        # another service answers: this node has no daemon
        assert find_daemon(None, address) is None
        server.answer("/api/v1/ports", b'{"detail": "A password is needed."}', 401)
        with pytest.raises(
            DaemonError, match=r"it asks for a password; pass the user name and password in the URL, such as "
        ):
            find_daemon(None, address)
        server.answer("/api/v1/ports", b"", 403)
        with pytest.raises(DaemonError, match="it refuses with 403"):
            find_daemon(None, address._replace(host=""))


def test_named_daemon_must_answer() -> None:
    with pytest.raises(DaemonError, match=r"^http://127.0.0.1:1 does not answer: it refuses connections; is `ibpulse"):
        find_daemon("http://127.0.0.1:1", ListenAddress("", 1))
    assert find_daemon(None, ListenAddress("::", 1)) is None


def test_log_message_is_shown_for_30_s() -> None:
    now = 100.0
    notes = Notes(lambda: now)
    assert notes.last() == ""
    notes.emit(logging.LogRecord("ibpulse", logging.WARNING, "", 0, "it is late", None, None))
    now += NOTE_SECONDS - 1
    assert notes.last().endswith(" it is late")
    now += 1
    assert notes.last() == ""


def test_blocks_are_drawn_where_the_encoding_has_them() -> None:
    assert [choose_marks(name) for name in ("utf-8", "ascii", "latin-1", "nothing")] == [BLOCKS, ASCII, ASCII, ASCII]


@for_each(
    [
        ({"LC_ALL": "xx_YY.UTF-8"}, "utf-8"),
        ({"LC_ALL": "", "LC_CTYPE": "xx_YY.utf8"}, "utf-8"),
        ({"LANG": "xx_YY.ISO-8859-1"}, "ascii"),
        ({}, "ascii"),
    ]
)
def test_unknown_locale_keeps_its_encoding(
    environ: dict[str, str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = locale.setlocale(locale.LC_CTYPE)
    monkeypatch.setenv("LC_ALL", "xx_YY")
    try:
        assert codecs.lookup(set_encoding(environ)).name == encoding
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
