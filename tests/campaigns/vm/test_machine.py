"""The machine itself: what the other tests of this folder stand on."""

from __future__ import annotations

import pytest

from tests.campaigns.vm.link import RECEIVER, SENDER, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(600)]


def test_a_command_in_the_machine_gives_its_output_and_status(machine: Machine) -> None:
    outcome = machine.run("echo out; echo fault >&2; exit 3", check=False)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (3, "out\n", "fault\n")


def test_a_started_program_can_be_watched_and_stopped(machine: Machine) -> None:
    program = machine.start(["sh", "-c", "echo begun; exec sleep 100"], "/tmp/sleeper.log")
    machine.wait_until(lambda: program.output() == "begun\n", "the program has begun")
    assert program.is_running()
    assert program.stop() == -15


def test_the_kernel_counts_payload_and_headers_of_real_traffic(link: Link) -> None:
    traffic = Traffic(messages=500, message_bytes=65536)
    link.send_cleanly(traffic)
    for device, counter in ((SENDER, "port_xmit_data"), (RECEIVER, "port_rcv_data")):
        assert link.read_counter(device, counter) * 4 == pytest.approx(traffic.data_bytes(), rel=0.01)
    for device, counter in ((RECEIVER, "port_xmit_data"), (SENDER, "port_rcv_data")):
        assert link.read_counter(device, counter) * 4 == pytest.approx(traffic.acknowledgement_bytes(), rel=0.01)
