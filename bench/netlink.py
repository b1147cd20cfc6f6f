"""`python -m bench.netlink`: the CPU time of a sample by netlink, beside files and a C program that sends the same.

First with messages of NETLINK_ROUTE on this machine, then on real devices in the virtual machine of `make campaign-vm`
(not with `--here`), whose processor is emulated: it slows Python more than C, and only the ratios of the ways to each
other mean something. Requires a C compiler.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.ratios import ratio_of
from tests.campaigns.vm.build import build_image
from tests.campaigns.vm.machine import Machine

PORTS = (8, 32)
ROUNDS, SECONDS = 12, 1.0
HERE = Path(__file__).parent


def put(machine: Machine, content: bytes, path: str) -> None:
    """Write an executable file in the machine."""
    machine.run(f"echo {base64.b64encode(content).decode()} | base64 -d > {path} && chmod 755 {path}")


def show(where: str, count: str, ports: int, found: dict[str, list[float]]) -> None:
    """Print a table."""
    print(f"{where}, {count}: CPU per port and sample, and the ratio to the C program")
    for way, times in found.items():
        print(f"  {way:20} {median(times) / ports / 1000:7.2f} us  {ratio_of(times, found['C'])}", flush=True)


def measure(where: str, run: Callable[[int], str]) -> None:
    """Print tables of the loops that `run` runs for a number of ports, and of what each further port adds."""
    found = [json.loads(run(ports)) for ports in PORTS]
    for ports, table in zip(PORTS, found, strict=True):
        show(where, f"{ports} ports", ports, table)
    added = {
        way: [more - less for less, more in zip(*(table[way] for table in found), strict=True)] for way in found[0]
    }
    show(where, "each further port", PORTS[1] - PORTS[0], added)


def run_here(program: Path, ports: int) -> str:
    """What the loops print with messages of NETLINK_ROUTE."""
    command = [sys.executable, "-m", "bench.netlink_loops", str(program), str(ports), str(ROUNDS), str(SECONDS)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def measure_devices(program: Path) -> None:
    """On real devices."""
    with Machine(build_image()) as machine:
        put(machine, program.read_bytes(), "/tmp/netlink")
        put(machine, (HERE / "netlink_loops.py").read_bytes(), "/tmp/netlink_loops.py")
        for number in range(max(PORTS)):
            machine.run(f"ip link add left{number} type veth peer name right{number} && ip link set left{number} up")
            machine.run(f"rdma link add rxe{number} type rxe netdev left{number}")
        command = f"python3 /tmp/netlink_loops.py /tmp/netlink {{}} {ROUNDS} {SECONDS}"
        measure("emulated", lambda ports: machine.run(command.format(ports), timeout_seconds=600).stdout)


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "netlink")
        source = HERE / "netlink.c"
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-std=gnu11", "-o", str(program), str(source)], check=True)
        measure("here", lambda ports: run_here(program, ports))
        if "--here" not in sys.argv:
            measure_devices(program)


if __name__ == "__main__":
    main()
