"""Debian packages of another release, fetched through the host's own mirror. The host's set-up is not changed."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.campaigns.vm.errors import MissingPartError, call

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def read_mirror() -> str:
    """Address of the Debian archive that the host itself installs from."""
    listing = call(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"], "read the host's apt sources"
    )
    for address in listing.splitlines():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise MissingPartError("apt on this host knows no Debian archive: run apt-get update, or add one to its sources")


class Suite:
    """One release of Debian with an apt set-up of its own, for downloads only."""

    def __init__(self, name: str, folder: Path) -> None:
        """Fetch the package lists of the release `name`; all files stay under `folder`."""
        self.name = name
        self._folder = folder
        self._configuration = folder / "apt.conf"
        self._write_configuration(read_mirror())
        call(self._apt("apt-get", "update"), f"read the package lists of Debian {name}")

    def names(self, pattern: str) -> list[str]:
        """Names of the packages that match a regular expression in full."""
        listing = call(self._apt("apt-cache", "pkgnames"), f"list the packages of Debian {self.name}")
        return sorted(name for name in listing.split() if re.fullmatch(pattern, name))

    def fetch(self, package: str) -> Path:
        """Path of the package's file, downloaded."""
        target = self._folder / package
        target.mkdir(exist_ok=True)
        download = self._apt("apt-get", "download", package)
        call(["env", "-C", target, *download], f"fetch {package} of Debian {self.name}")
        return next(target.glob("*.deb"))

    def _apt(self, program: str, *arguments: str) -> list[str]:
        return [program, "-q", "-c", str(self._configuration), *arguments]

    def _write_configuration(self, mirror: str) -> None:
        (self._folder / "lists/partial").mkdir(parents=True, exist_ok=True)
        (self._folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        sources = self._folder / "sources.list"
        sources.write_text(f"deb [signed-by={KEYRING}] {mirror} {self.name} main\n")
        self._configuration.write_text(
            f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "-";\n'
            f'Dir::State::lists "{self._folder}/lists";\nDir::State::status "{self._folder}/status";\n'
            f'Dir::Cache "{self._folder}/cache";\nAPT::Sandbox::User "root";\nAcquire::Languages "none";\n'
        )


def read_package(package: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each regular file in a package."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacker,
        tarfile.open(fileobj=unpacker.stdout, mode="r|") as files,
    ):
        for member in files:
            content = files.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("./"), content.read()
