"""Totals of real RDMA traffic, as the host scrapes them."""

from __future__ import annotations

import pytest

from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic

pytestmark = [pytest.mark.timeout(600)]


def test_totals_equal_payload_and_headers_at_both_ends(daemon: Daemon, link: Link) -> None:
    before: dict[tuple[str, str], float] = {}

    def note_totals() -> None:
        daemon.wait_for_samples(SENDER, RECEIVER)
        daemon.wait_for_totals(SENDER)
        before.update(read_totals(daemon))

    traffic = Traffic(messages=1000, message_bytes=65536)
    link.send_cleanly(traffic, note_totals)
    daemon.wait_for_totals(SENDER)
    moved = {end: total - before[end] for end, total in read_totals(daemon).items()}
    data, acknowledgements = traffic.data_bytes(), traffic.acknowledgement_bytes()
    assert moved == {
        ("transmit", SENDER): pytest.approx(data, rel=0.01),
        ("receive", RECEIVER): pytest.approx(data, rel=0.01),
        ("transmit", RECEIVER): pytest.approx(acknowledgements, rel=0.01),
        ("receive", SENDER): pytest.approx(acknowledgements, rel=0.01),
    }


def read_totals(daemon: Daemon) -> dict[tuple[str, str], float]:
    """Total of each direction of each device."""
    ends = [(direction, device) for direction in ("transmit", "receive") for device in (SENDER, RECEIVER)]
    return {end: daemon.read_total(*end) for end in ends}


def test_totals_equal_the_kernels_counters(daemon: Daemon, link: Link) -> None:
    daemon.wait_for_samples(SENDER, RECEIVER)
    before = daemon.read_total("transmit", SENDER)
    link.send(Traffic(messages=300, message_bytes=65536))
    daemon.wait_for_totals(SENDER)
    assert daemon.read_total("transmit", SENDER) - before == link.read_counter(SENDER, "port_xmit_data") * 4
