"""The machine's Python packages: those that ibpulse needs, and ibpulse itself from its wheel."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

from tests.campaigns.vm.archive import Archive
from tests.campaigns.vm.debian import PYTHON_VERSION
from tests.campaigns.vm.errors import BuildError, call

SITE_FOLDER = "usr/lib/python3/dist-packages"


def install_requirements(requirements: Path, root: Path, folder: Path, archive: Path) -> None:
    """Install the pinned packages, for the machine's Python, under `folder`, and write them into an archive."""
    _install(["--require-hashes", "--requirement", requirements], folder)
    _write_packages(root, folder, archive)


def install_project(project: Path, root: Path, folder: Path, archive: Path) -> None:
    """Build the project's wheel, install it under `folder` with its command, and write both into an archive."""
    wheels = folder / "wheel"
    call([_uv(), "build", "--quiet", "--wheel", "--out-dir", wheels, project], "build the project's wheel", BuildError)
    wheel = next(wheels.glob("*.whl"))
    site = folder / "site"
    _install([wheel], site)
    _write_packages(root, site, archive, {"usr/local/bin/ibpulse": _command_script(site)})


def _install(what: list[str | Path], folder: Path) -> None:
    options: list[str | Path] = ["--quiet", "--no-deps", "--only-binary", ":all:", "--target", folder]
    machine = ["--python-version", PYTHON_VERSION, "--python-platform", "x86_64-manylinux_2_28"]
    call([_uv(), "pip", "install", *options, *machine, *what], "install Python packages for the machine")


def _uv() -> Path:
    return Path(sys.executable).parent / "uv"


def _command_script(site: Path) -> bytes:
    """The wheel's console script, for the machine's Python: uv writes the host's into it."""
    entries = configparser.ConfigParser()
    entries.read(next(site.glob("ibpulse-*.dist-info/entry_points.txt")))
    module, function = entries["console_scripts"]["ibpulse"].split(":")
    return f"#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n".encode()


def _write_packages(root: Path, site: Path, archive: Path, scripts: dict[str, bytes] | None = None) -> None:
    _compile(root, site)
    with archive.open("wb") as file:
        writer = Archive(file)
        writer.add_tree(site, SITE_FOLDER, keep=_is_wanted)
        for name, content in (scripts or {}).items():
            writer.add_file(name, content, mode=0o755)
        writer.close()


def _compile(root: Path, site: Path) -> None:
    """Compile with the machine's Python, run on the host: compiling in the emulated machine would cost minutes."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    loader = root / "lib64/ld-linux-x86-64.so.2"
    interpreter: list[str | Path] = [loader, "--library-path", libraries, root / "usr/bin/python3"]
    compiler = [*interpreter, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    paths: list[str | Path] = ["-s", site, "-p", f"/{SITE_FOLDER}", site]
    call(["env", f"PYTHONHOME={root}/usr", *compiler, *paths], "compile the machine's Python packages")


def _is_wanted(name: str) -> bool:
    return not name.startswith("bin/") and "/tests/" not in f"{name}/"
