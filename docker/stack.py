"""`make stack`: the demo of compose.yaml without containers, on loopback, until Ctrl-C. See docs/demo.md.

Starts the simulated fabrics, their exporters, the gateway, Prometheus and Alertmanager of compose.yaml with the same
configuration files, but not Grafana. Removes all its files at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from services import Service, Translator, read_services

COMPOSE = Path(__file__).resolve().parent / "compose.yaml"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
LAST_LINES = 5


class Stack:
    """The processes of the services and their log files."""

    def __init__(self, services: Mapping[str, Service], scratch: Path) -> None:
        self._services = services
        self._scratch = scratch
        self._translator = Translator(services, COMPOSE.parent, scratch)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start every service. The order does not matter: each waits for the services it needs."""
        for service in self._services.values():
            command = self._translator.command(service)
            with self.log_path(service.name).open("wb") as log:
                # separate sessions: only the stack receives Ctrl-C, and stops the services in order
                self._processes[service.name] = subprocess.Popen(
                    command,
                    env={**os.environ, **service.environment},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def log_path(self, name: str) -> Path:
        """The log file of a service."""
        return self._scratch / f"{name}.log"

    def wait_until_ready(self, stop: threading.Event) -> bool:
        """Whether every listening service became ready before `stop`, the deadline, or the end of any service."""
        deadline = time.monotonic() + START_SECONDS
        for service in self._services.values():
            while service.port and not _is_ready(service):
                if stop.wait(0.2) or self.dead() or time.monotonic() > deadline:
                    return False
        return not self.dead()

    def dead(self) -> list[str]:
        """Names of the services that have ended."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def last_words(self, name: str) -> str:
        """The end of a service's log."""
        return "\n".join(self.log_path(name).read_text(errors="replace").splitlines()[-LAST_LINES:])

    def stop(self) -> None:
        """Stop every service in reverse order, so that readers end before their sources."""
        for process in reversed(self._processes.values()):
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(service: Service) -> bool:
    try:
        with urllib.request.urlopen(f"http://{service.address}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def on_free_ports(services: Mapping[str, Service]) -> dict[str, Service]:
    """The same services, each on a currently free port."""
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name, service in services.items() if service.port}
    ports = {name: held.getsockname()[1] for name, held in sockets.items()}
    for held in sockets.values():
        held.close()
    return {name: dataclasses.replace(service, port=ports.get(name)) for name, service in services.items()}


def addresses(services: Mapping[str, Service]) -> str:
    """One line for each service with a web address."""
    return "".join(f"  {service.name:<14}http://{service.address}/\n" for service in services.values() if service.port)


def run(services: Mapping[str, Service], scratch: Path, stop: threading.Event) -> int:
    """Run the stack until `stop` or until a service ends; return the exit code."""
    stack = Stack(services, scratch)
    try:
        stack.start()
        if stack.wait_until_ready(stop):
            print(
                f"{addresses(services)}logs and data: {scratch}\nCtrl-C stops everything and removes them.", flush=True
            )
            while not stop.wait(1) and not stack.dead():
                pass
    finally:
        failed = [] if stop.is_set() else stack.dead()
        stack.stop()
    if stop.is_set():
        return 0
    for name in failed:
        print(f"{name} ended:\n{stack.last_words(name)}", file=sys.stderr)
    if not failed:
        print(f"not ready within {START_SECONDS:.0f} s; is the machine busy?", file=sys.stderr)
    return 1


def main() -> int:
    """Parse the flags and run; return the exit code."""
    parser = argparse.ArgumentParser(description="The demo stack of compose.yaml without containers.")
    parser.add_argument("--faults", action="store_true", help="also inject faults, like the profile of that name")
    parser.add_argument("--free-ports", action="store_true", help="use free ports instead of those of compose.yaml")
    arguments = parser.parse_args()
    try:
        services = read_services(COMPOSE, ["faults"] if arguments.faults else [])
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ibpulse-stack-", dir=memory) as scratch:
        return run(on_free_ports(services) if arguments.free_ports else services, Path(scratch), stop)


if __name__ == "__main__":
    sys.exit(main())
