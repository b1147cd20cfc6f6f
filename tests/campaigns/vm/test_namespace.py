"""A view of the devices from another network namespace, where the kernel shows no counters."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.campaigns.vm.daemon import UNPRIVILEGED
from tests.campaigns.vm.link import Link
from tests.campaigns.vm.machine import Machine, Program

pytestmark = [pytest.mark.timeout(600)]

PORT = 10056
FETCH = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"
LOG = "/tmp/namespace.log"


@pytest.fixture
def confined(machine: Machine, link: Link) -> Iterator[Program]:
    """A daemon in a network namespace of its own, with the sysfs view of that namespace."""
    machine.run("install -d -o 65534 -g 65534 /run/namespace")
    options = f"--web.listen-address=127.0.0.1:{PORT} --ring.dir=/run/namespace --slow.interval=1s"
    serve = f"exec {' '.join(UNPRIVILEGED)} ibpulse serve {options}"
    set_up = "mount -t sysfs sysfs /sys && ip link set lo up"
    program = machine.start(["unshare", "--net", "--mount", "sh", "-c", f"{set_up} && {serve}"], LOG)
    yield program
    program.kill()


def fetch(program: Program, path: str) -> str:
    """Body of a good answer, asked for in the program's own network namespace; empty when there is none."""
    assert program.is_running(), program.output()
    command = f"nsenter --net --target {program.pid} python3 -c '{FETCH}' http://127.0.0.1:{PORT}{path}"
    return program.machine.run(command, check=False).stdout


def test_a_view_without_counters_is_named_once_and_leaves_a_ready_daemon(confined: Program) -> None:
    confined.machine.wait_until(lambda: ", serving http" in confined.output(), "ibpulse serves", 240)
    # some more looks at the devices, which must not repeat the message
    confined.machine.run("sleep 4")
    log = confined.output()
    assert log.count("this sysfs view belongs to another network namespace") == 1, log
    assert "mount the host's /sys and set path.sysfs to it" in log
    confined.machine.wait_until(lambda: fetch(confined, "/-/ready"), "ibpulse is ready")
    assert json.loads(fetch(confined, "/api/v1/ports"))["ports"]
