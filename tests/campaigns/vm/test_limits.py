"""Signs of limits on real devices: lost packets, a receiver without buffers, and a sender that is slow.

soft-RoCE counts neither waiting nor marks, so that `path` and `source` are never shown; see docs/congestion.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.hw_counters import ATTEMPTS, serving
from tests.campaigns.vm.link import RECEIVER, SENDER, SLOWLY, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900)]

SECONDS = 10
ENDLESS = Traffic(messages=10_000_000, message_bytes=4096)
UNKNOWN = {"=", "-", "?"}
SILENT = {"."}


@pytest.fixture(scope="module")
def watching(machine: Machine, link_of_module: Link) -> Iterator[Daemon]:
    """A daemon that knows what the devices can send."""
    with serving(machine) as daemon:
        daemon.wait_for_samples(SENDER, RECEIVER)
        found = send(daemon, link_of_module)
        assert found.keys() & UNKNOWN, found
        yield daemon


def send(daemon: Daemon, link: Link, *options: str, **how: Any) -> Counter[str]:
    """How often each sign was shown while the sender sent.

    The daemon is asked when the traffic is over, because both need the one emulated processor.
    """
    machine, sent = daemon.machine, link.read_counter(SENDER, "port_xmit_data")
    receiver, sender = link.start(ENDLESS, options=("-t", "16", *options), **how)
    try:
        machine.wait_until(lambda: link.read_counter(SENDER, "port_xmit_data") > sent + 10_000, "traffic flows")
        times = f"date +%s%3N; sleep {SECONDS}; date +%s%3N"
        first_ms, last_ms = machine.run(times, timeout_seconds=240).stdout.split()
    finally:
        sender.kill()
        receiver.kill()
    daemon.wait_for_totals(SENDER)
    answer = daemon.fetch_json("/api/v1/limits", **{"from": first_ms, "to": last_ms})
    (strip,) = (port["strip"] for port in answer["ports"] if port["port"] == f"{SENDER}:1")
    print(strip, [limit["text"] for limit in answer["limits"]])
    return Counter(strip)


def label(daemon: Daemon, link: Link, *options: str, **how: Any) -> str:
    """The sign that was shown most often, of which neither `path` nor `source` is one; again if there was none.

    On a busy host the sampler misses most samples, or the usual peak is as low as the rate that a limit leaves.
    """
    for _ in range(ATTEMPTS):
        found = send(daemon, link, *options, **how)
        assert found.keys().isdisjoint("ps"), found
        if named := {letter: found[letter] for letter in "rlk" if found[letter]}:
            return max(named, key=named.__getitem__)
    raise AssertionError(f"each of {ATTEMPTS} times no sign was shown: this host is too busy")


def test_lost_packets_are_signs_of_loss(watching: Daemon, link_of_module: Link) -> None:
    watching.machine.run("tc qdisc add dev veth0 root netem loss 5%")
    try:
        # 0.27 s, because some packets that are sent again are lost too
        assert label(watching, link_of_module, patience=16) == "l"
    finally:
        watching.machine.run("tc qdisc del dev veth0 root")


def test_a_receiver_without_buffers_is_a_sign_of_the_receiver(watching: Daemon, link_of_module: Link) -> None:
    """Each of its four queue pairs has a buffer for one message of the sixteen that are under way."""
    before = refusals(watching.machine)
    found = send(watching, link_of_module, "-r", "1", "-q", "4", program="ib_send_bw")
    seconds, refused = (now - then for now, then in zip(refusals(watching.machine), before, strict=True))
    assert found.keys().isdisjoint("ps"), found
    # 100 a second are a sign, and an emulated processor that has little of a core does not get to so many
    if refused < 150 * seconds:
        pytest.skip(f"not judged on a busy host: {refused / seconds:.0f} refusals a second")
    assert found["r"] > found.total() / 2, found


def refusals(machine: Machine) -> tuple[float, int]:
    """The machine's time in seconds, and how often the sender was refused until then."""
    counter = f"/sys/class/infiniband/{SENDER}/ports/1/hw_counters/rcvd_rnr_err"
    time_ms, count = machine.run(f"date +%s%3N; cat {counter}").stdout.split()
    return int(time_ms) / 1000, int(count)


def test_a_slow_sender_is_unknown(watching: Daemon, link_of_module: Link) -> None:
    found = send(watching, link_of_module, *SLOWLY)
    assert found.keys() & UNKNOWN
    assert found.keys() <= UNKNOWN | SILENT
