"""What the log says when a daemon serves: how often it samples, and an address that can be reached."""

from __future__ import annotations

import logging

import pytest

from tests.families.table import BY_NAME
from tests.tables import for_each
from tests.virtual.node import Node

# by family: the host that it listens on, and what the log says
ANNOUNCED = {
    "connectx8_xdr": ("fe80::1", "sampling 4 ports every 10 ms, serving http://[fe80::1]:10055/"),
    "ionic_mi300x": ("::", "sampling 8 ports every 50 ms, serving http://localhost:10055/"),
    "ionic_mi355x": ("0.0.0.0", "sampling 10 ports every 10 to 50 ms, serving http://localhost:10055/"),
}


@for_each({name: (name, *case) for name, case in ANNOUNCED.items()})
def test_the_log_says_how_often_ports_are_sampled(
    name: str, host: str, said: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path_factory.mktemp(name)
    BY_NAME[name].build(folder / "sys")
    with Node(folder / "node", tree=folder / "sys") as node:
        node.run(1)
        node.daemon._announce(host, 10055)
    assert said in caplog.text
