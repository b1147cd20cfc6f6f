"""Two soft-RoCE devices in the machine, joined by a veth pair, and real traffic between them. Nothing of ibpulse.

`rxe0` sends and `rxe1`, whose interface is in a network namespace of its own, receives. Both stand in the sysfs tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.campaigns.vm.machine import Machine, Program

SENDER, RECEIVER = "rxe0", "rxe1"
NAMESPACE = "far"
SENDER_ADDRESS, RECEIVER_ADDRESS = "10.99.0.1", "10.99.0.2"
# What the veth's MTU of 1500 leaves for the payload of one RoCE packet.
PAYLOAD_BYTES = 1024
# IPv4 20, UDP 8, transport header 12, check sum 4; RDMA header of each message; a whole acknowledgement.
PACKET_HEADER_BYTES, MESSAGE_HEADER_BYTES, ACKNOWLEDGEMENT_BYTES = 44, 16, 48
# Options of a sender that leaves most of the emulated processor to others.
SLOWLY = ("--rate_limit=2", "--rate_units=M", "--rate_limit_type=SW", "--burst_size=2")

CLEAN_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Traffic:
    """RDMA writes of some messages of one size, from the sender to the receiver."""

    messages: int
    message_bytes: int

    def data_bytes(self) -> int:
        """Bytes on the wire from the sender: payload and headers, without Ethernet's."""
        packets = -(-self.message_bytes // PAYLOAD_BYTES)
        return self.messages * (self.message_bytes + packets * PACKET_HEADER_BYTES + MESSAGE_HEADER_BYTES)

    def acknowledgement_bytes(self) -> int:
        """Bytes on the wire back to the sender."""
        return self.messages * ACKNOWLEDGEMENT_BYTES


class Link:
    """The pair of devices in a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def create(self) -> None:
        """Make interfaces and devices anew, whatever a test before may have left."""
        self.remove()
        self._machine.run(
            f"ip netns add {NAMESPACE}"
            f" && ip link add veth0 type veth peer name veth1 && ip link set veth1 netns {NAMESPACE}"
            f" && ip address add {SENDER_ADDRESS}/24 dev veth0 && ip link set veth0 up"
            f" && ip -n {NAMESPACE} address add {RECEIVER_ADDRESS}/24 dev veth1"
            f" && ip -n {NAMESPACE} link set veth1 up && ip -n {NAMESPACE} link set lo up"
        )
        self.add_sender()
        self._machine.run(f"ip netns exec {NAMESPACE} rdma link add {RECEIVER} type rxe netdev veth1")
        self._wait_for_address(RECEIVER)

    def remove(self) -> None:
        """Remove interfaces and devices; the devices go with their interfaces."""
        self._machine.run(f"ip link del veth0; ip netns del {NAMESPACE}", check=False)
        self._machine.wait_until(lambda: not self.devices(), "the devices are gone")

    def add_sender(self) -> None:
        """Make the sender's device on its interface."""
        self._machine.run(f"rdma link add {SENDER} type rxe netdev veth0")
        self._wait_for_address(SENDER)

    def devices(self) -> list[str]:
        """Names of the devices that the kernel shows."""
        return self._machine.run("ls /sys/class/infiniband").stdout.split()

    def read_counter(self, device: str, name: str) -> int:
        """A counter as the kernel gives it."""
        return int(self._machine.run(f"cat /sys/class/infiniband/{device}/ports/1/counters/{name}").stdout)

    def read_resends(self) -> int:
        """Packets that were late or came twice, as the devices counted since they were made."""
        names = ("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err")
        paths = [
            f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}"
            for device in (SENDER, RECEIVER)
            for name in names
        ]
        return sum(int(count) for count in self._machine.run(f"cat {' '.join(paths)}").stdout.split())

    def send(self, traffic: Traffic, sender: str = SENDER) -> None:
        """Send the traffic to its end."""
        server, client = self.start(traffic, sender)
        assert client.wait() == 0, client.output()
        assert server.wait() == 0, server.output()

    def send_cleanly(self, traffic: Traffic, prepare: Callable[[], None] = lambda: None) -> None:
        """Send the traffic over devices made anew, and again until no packet had to be sent twice.

        On a busy host packets are late; those that are sent again are counted again, and the sum is no longer known.
        `prepare` is called before each attempt.
        """
        for _ in range(CLEAN_ATTEMPTS):
            self.create()
            prepare()
            self.send(traffic)
            if not self.read_resends():
                return
        raise AssertionError(f"each of {CLEAN_ATTEMPTS} times packets were sent again: this host is too busy")

    def start(
        self,
        traffic: Traffic,
        sender: str = SENDER,
        options: tuple[str, ...] = (),
        program: str = "ib_write_bw",
        patience: int = 18,
    ) -> tuple[Program, Program]:
        """Receiving and sending program; the traffic flows until it ends or they are stopped.

        Packets are sent again after 4.096 µs × 2^patience without an answer: 1 s, not the usual 67 ms, which a busy
        host may take.
        """
        sizes = ("-n", str(traffic.messages), "-s", str(traffic.message_bytes), *options)
        # -x 1: the address table's entry for RoCE v2 over IPv4; -F: do not complain about the processor's frequency.
        common = (program, "-x", "1", "-F", "-u", str(patience), *sizes)
        receiver = self._machine.start(["ip", "netns", "exec", NAMESPACE, *common, "-d", RECEIVER], "/tmp/receiver.log")
        self._machine.wait_until(lambda: self._listens(receiver), f"{program} listens")
        return receiver, self._machine.start([*common, "-d", sender, RECEIVER_ADDRESS], "/tmp/sender.log")

    def _listens(self, receiver: Program) -> bool:
        assert receiver.is_running(), receiver.output()
        return ":18515" in self._machine.run(f"ip netns exec {NAMESPACE} ss -ltn").stdout

    def _wait_for_address(self, device: str) -> None:
        """The kernel fills the table of addresses a moment after the device was made."""
        path = f"/sys/class/infiniband/{device}/ports/1/gids/1"
        self._machine.wait_until(
            lambda: self._machine.run(f"cat {path}", check=False).stdout.strip(":0\n"), f"{device} has its address"
        )
