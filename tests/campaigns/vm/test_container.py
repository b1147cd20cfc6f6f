"""The chart's pod on a real kernel: it has no privilege, and reads by netlink, also next to a daemon of the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaigns.vm.container import Contained, Pod, deployed
from tests.campaigns.vm.daemon import Daemon
from tests.campaigns.vm.hw_counters import count_bytes, serving, wait_for_interval
from tests.campaigns.vm.link import RECEIVER, SENDER, SLOWLY, Link, Traffic
from tests.campaigns.vm.machine import Machine

pytestmark = [pytest.mark.timeout(900), pytest.mark.needs("helm")]

# doctor gives the process that examines the devices 20 s, which an emulated processor of a busy host exceeds
PATIENT = "from ibpulse.agent.doctor import examination as c; c.MAX_SECONDS = 200; from ibpulse.cli import main; main()"
DOCTOR = ("doctor", "--config.file=/etc/ibpulse/config/ibpulse.yaml", "--no-look", "--check=resolution")


@pytest.fixture(scope="module")
def pod(machine: Machine, link_of_module: Link) -> Iterator[Pod]:
    with deployed(machine) as made:
        yield made


def test_it_has_the_rights_of_the_chart_and_a_network_of_its_own(pod: Pod) -> None:
    lines = pod.run("cat", "/proc/self/status").stdout.splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    assert status["Uid"] == ["65532"] * 4
    assert {int(status[name][0], 16) for name in ("CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    assert pod.run("ls", "/sys/class/net").stdout.split() == ["lo"]
    assert "Read-only file system" in pod.run("touch", "/tmp/file").stderr


def test_the_kernel_answers_it_by_netlink(pod: Pod, machine: Machine) -> None:
    ask = f"from ibpulse.agent.sysfs.netlink import read_port; print(read_port('{SENDER}', 1)['sent_bytes'])"
    counter = f"/sys/class/infiniband/{SENDER}/ports/1/hw_counters/sent_bytes"
    assert pod.run("python3", "-c", ask).stdout == machine.run(f"cat {counter}").stdout


def test_doctor_names_netlink_as_the_source(pod: Pod) -> None:
    outcome = pod.run("python3", "-c", PATIENT, *DOCTOR)
    said = f"{SENDER}:1, {RECEIVER}:1: Its byte counters are in hw_counters, and are read by netlink"
    assert said in " ".join(outcome.stdout.split()), outcome


@pytest.fixture
def contained(pod: Pod) -> Iterator[Contained]:
    daemon = Contained(pod)
    yield daemon
    daemon.end()


@pytest.fixture
def host(machine: Machine, link_of_module: Link) -> Iterator[Daemon]:
    with serving(machine) as running:
        yield running


def test_the_pod_and_a_daemon_of_the_host_count_the_bytes_of_the_kernel(
    contained: Contained, host: Daemon, link_of_module: Link
) -> None:
    for daemon in (contained, host):
        daemon.wait_for_totals(SENDER)
    kernel, *counted = count_bytes(link_of_module, contained, host)
    assert counted == [kernel, kernel]


def test_the_pod_samples_real_traffic_every_10_ms(contained: Contained, link_of_module: Link) -> None:
    wait_for_interval(contained, 0.01)
    programs = link_of_module.start(Traffic(messages=10_000_000, message_bytes=4096), options=("-t", "16", *SLOWLY))
    # unlike other daemons here, the pod's has no real-time priority
    contained.machine.run(f"renice -n 19 -p {' '.join(str(program.pid) for program in programs)}")

    def is_sampled() -> bool:
        rates = contained.read_rates(SENDER, last="1s")
        return sum(1 for rate in rates if rate) > 0.8 * len(rates)

    try:
        contained.machine.wait_until(is_sampled, "most samples of a second have traffic")
    finally:
        for program in reversed(programs):
            program.kill()
