"""The services of compose.yaml, translated into commands that run without containers.

Each service gets a directory as its root, with the same files in the same places, and every absolute path in its
command is changed to lead there. References to another service as `name:port`, in a flag or in a file, are replaced
with the loopback address that compose.yaml publishes.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

IBPULSE = "ibpulse:demo"
# Debian's name is longer than the original.
PROGRAMS = {"prometheus": ("prometheus",), "alertmanager": ("prometheus-alertmanager", "alertmanager")}
_PATH = re.compile(r"^(--[\w.-]+=)?(/.*)$")


@dataclass(frozen=True, slots=True)
class Service:
    """One service: its command, its mounts, and its ports (None if it does not listen)."""

    name: str
    argv: tuple[str, ...]
    mounts: Mapping[str, str]
    environment: Mapping[str, str]
    inside_port: int | None = None
    port: int | None = None

    @property
    def address(self) -> str:
        """The address on which it listens."""
        return f"127.0.0.1:{self.port}"


def read_services(compose: Path, profiles: Sequence[str] = ()) -> dict[str, Service]:
    """The services by name, including those of the given profiles. Services that need a container are omitted.

    Raises:
        FileNotFoundError: a program is not installed; the message names it.
    """
    services = yaml.safe_load(compose.read_text())["services"]
    return {
        name: _service(name, service)
        for name, service in services.items()
        if (name in PROGRAMS or service["image"] == IBPULSE)
        and (not service.get("profiles") or set(profiles) & set(service["profiles"]))
    }


def _service(name: str, service: Mapping[str, Any]) -> Service:
    published, inside = (None, None)
    if ports := service.get("ports"):
        published, inside = (int(part) for part in ports[0].split(":")[-2:])
    mounts = {}
    for volume in service.get("volumes", ()):
        source, target = volume.split(":")[:2]
        mounts[target] = source
    argv = (*_program(name, service), *service.get("command", ()))
    return Service(name, argv, mounts, service.get("environment", {}), inside, published)


def _program(name: str, service: Mapping[str, Any]) -> tuple[str, ...]:
    if name not in PROGRAMS:
        _, *words = service.get("entrypoint", ["python3", "-m", "ibpulse"])
        return (sys.executable, *words)
    for program in PROGRAMS[name]:
        if found := shutil.which(program):
            return (found,)
    raise FileNotFoundError(f"{name} is not installed; on Debian: apt-get install {PROGRAMS[name][0]}")


class Translator:
    """Creates the files of the services below one directory, and translates their commands.

    Relative sources of mounts are relative to `folder`, the directory of compose.yaml.
    """

    def __init__(self, services: Mapping[str, Service], folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._addresses = {
            rf"(?<![\w.-]){re.escape(service.name)}:{service.inside_port}\b": service.address
            for service in services.values()
            if service.port
        }

    def command(self, service: Service) -> list[str]:
        """The command of a service on this machine. Creates the files that it needs."""
        root = self._scratch / service.name
        for target, source in service.mounts.items():
            self._mount(root / target.lstrip("/"), source)
        words = [service.argv[0], *(self._word(root, word) for word in service.argv[1:])]
        if service.port:
            words.append(f"--web.listen-address={service.address}")
        if "serve" in words:
            # containers have host names of their own
            words += [f"--ring.dir={root / 'ring'}", f"--capture.node={service.name}"]
        return words

    def _mount(self, target: Path, source: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.startswith("."):
            volume = self._scratch / "volumes" / source
            volume.mkdir(parents=True, exist_ok=True)
            target.symlink_to(volume)
        elif (path := (self._folder / source).resolve()).suffix == ".yml":
            target.write_text(self._at_home(path.read_text()))
        else:
            target.symlink_to(path)

    def _word(self, root: Path, word: str) -> str:
        if path := _PATH.match(word):
            return f"{path[1] or ''}{root}{path[2]}"
        return self._at_home(word)

    def _at_home(self, text: str) -> str:
        for pattern, address in self._addresses.items():
            text = re.sub(pattern, address, text)
        return text
