"""The page that draws a board, bundled with Grafana's own libraries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "page"
# the exact versions of package.json are fetched once; there is no lock file, because it would hold addresses
INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--legacy-peer-deps")


def bundled(folder: Path) -> Path:
    """The folder with the bundled page, made in `folder`; installs the libraries (half a gigabyte) on first use.

    Raises:
        SystemExit: Node or npm is missing, or a step fails; its output is shown.
    """
    for program in ("node", "npm"):
        if not shutil.which(program):
            raise SystemExit(f"{program} is not installed; the previews need Node 20 with npm")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = (SOURCES / "package.json").read_text()
    installed = folder / "installed.json"
    for source in SOURCES.iterdir():
        shutil.copy(source, folder / source.name)
    if not installed.exists() or installed.read_text() != wanted:
        _run(INSTALL, folder)
        # npm does not run the install script of this package by itself
        _run(("node", "node_modules/esbuild/install.js"), folder)
        _refuse_two_copies(folder)
        installed.write_text(wanted)
    _run(("node", "build.mjs"), folder)
    return folder / "out"


def _refuse_two_copies(folder: Path) -> None:
    """Two copies of the library have a theme each: the page would be light, and every panel dark."""
    copies = list((folder / "node_modules").rglob("@grafana/data/package.json"))
    if len(copies) != 1:
        raise SystemExit(
            f"{len(copies)} copies of @grafana/data are installed; package.json must pin one version of all"
        )


def _run(command: tuple[str, ...], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
