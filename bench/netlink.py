"""`python -m bench.netlink`: the CPU time of a sample by netlink and from files, on real devices in a virtual machine.

The machine's processor is emulated: its times mean nothing, their ratios within one run do. Requires what `make
campaign-vm` requires, and a C compiler.
"""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
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


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, Machine(build_image()) as machine:
        program = Path(folder, "netlink")
        source = HERE / "netlink.c"
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-std=gnu11", "-o", str(program), str(source)], check=True)
        put(machine, program.read_bytes(), "/tmp/netlink")
        put(machine, (HERE / "netlink_loops.py").read_bytes(), "/tmp/netlink_loops.py")
        for number in range(max(PORTS)):
            machine.run(f"ip link add left{number} type veth peer name right{number} && ip link set left{number} up")
            machine.run(f"rdma link add rxe{number} type rxe netdev left{number}")
        for ports in PORTS:
            command = f"python3 /tmp/netlink_loops.py /tmp/netlink {ports} {ROUNDS} {SECONDS}"
            found = json.loads(machine.run(command, timeout_seconds=600).stdout)
            print(f"{ports} ports: emulated CPU per port and sample, and the ratio to the C program")
            for way, times in found.items():
                print(f"  {way:12} {median(times) / ports / 1000:7.1f} us  {ratio_of(times, found['C'])}")


if __name__ == "__main__":
    main()
