"""`make release`: all files of a release, from the last commit.

They are the wheel and the source archive, a deb and an rpm for each Python and processor, archives of units, rules,
boards and runbooks, the chart, the image, the notes from the changelog, and checksums. The archives are the same for
the same commit: no times, no owners, names in order. With the address of the repository, README.md, the project file
and the chart name their pages in it, because a page outside of the repository cannot follow a relative link.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ibpulse import __version__
from ibpulse.base.errors import ConfigError
from tools.chart import __main__ as chart
from tools.packages import MACHINES

ROOT = Path(__file__).resolve().parents[1]
ARCHIVES = {
    "systemd": ("docker/systemd/*.service", "docker/systemd/*.sh", "slurm/*.sh", "docs/systemd.md", "LICENSE"),
    "rules": ("dashboards/rules/*.yaml", "docs/alerts.md", "LICENSE"),
    "dashboards": ("dashboards/*.json", "docs/dashboards.md", "LICENSE"),
    "runbooks": ("docs/runbooks/*.md", "LICENSE"),
}
"""The files in each archive, by its name."""
NOTES, CHECKSUMS = "notes.md", "SHA256SUMS"
PYTHONS = ("3.11", "3.12", "3.13")
"""Those of the supported distributions."""


def files_of(patterns: Iterable[str], root: Path = ROOT) -> list[Path]:
    """The files of a checkout that the patterns name, in order."""
    return sorted({path for pattern in patterns for path in root.glob(pattern)})


def archive(name: str, paths: Sequence[Path]) -> bytes:
    """A compressed archive of files in one folder of this name, without the folders that they are in here."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(paths, key=lambda path: path.name):
            entry = tarfile.TarInfo(f"{name}/{path.name}")
            entry.size, entry.mode = path.stat().st_size, 0o755 if path.suffix == ".sh" else 0o644
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(plain.getvalue(), mtime=0)


def notes(changelog: str, version: str) -> str:
    """The part of the changelog about a version, without its heading.

    Raises:
        ConfigError: it has none.
    """
    found = re.search(rf"(?ms)^## {re.escape(version)} \([^)]*\)\n(.*?)(?=^## |\Z)", changelog)
    if found is None:
        raise ConfigError([f"CHANGELOG.md: no part about {version}; add a heading like ## {version} (2026-11-23)"])
    return found[1].strip() + "\n"


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown with absolute addresses for its relative links: pictures as files, everything else as pages."""

    def address(found: re.Match[str]) -> str:
        kind = "raw" if found["mark"] else "blob"
        return f"{found['mark']}[{found['text']}]({repository}/{kind}/{tag}/{found['target']})"

    return re.sub(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?://|#)[^)]+)\)", address, text)


def with_addresses(pyproject: str, repository: str, tag: str) -> str:
    """The project file with the addresses that PyPI shows beside the project."""
    pages = {"Documentation": "docs/README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
    lines = [f'{name} = "{repository}/blob/{tag}/{path}"\n' for name, path in pages.items()]
    urls = "".join([f'[project.urls]\nSource = "{repository}"\n', *lines, "\n"])
    return pyproject.replace("[project.scripts]\n", f"{urls}[project.scripts]\n", 1)


def point_at(repository: str, tag: str, root: Path) -> None:
    """Put the addresses into a checkout.

    Raises:
        ConfigError: the address is not absolute.
    """
    if not re.fullmatch(r"https?://[^/\s]+/\S+[^/\s]", repository):
        raise ConfigError([f'"{repository}" is not the address of a repository; write https://HOST/OWNER/NAME'])
    for name, change in (("README.md", absolute), ("pyproject.toml", with_addresses)):
        (root / name).write_text(change((root / name).read_text(), repository, tag))


def write_archives(folder: Path, root: Path = ROOT) -> None:
    """Write the notes and the archives of a checkout.

    Raises:
        ConfigError: the changelog has no part about this version.
    """
    (folder / NOTES).write_text(notes((root / "CHANGELOG.md").read_text(), __version__))
    for what, patterns in ARCHIVES.items():
        name = f"ibpulse-{what}-{__version__}"
        (folder / f"{name}.tar.gz").write_bytes(archive(name, files_of(patterns, root)))


def build(folder: Path, source: Path, pythons: Sequence[str], machines: Sequence[str]) -> None:
    """Build the wheel, the source archive and the packages of each Python and machine, with what pip installs."""
    run(
        [sys.executable, "-m", "hatchling", "build", "--target=wheel", "--target=sdist", f"--directory={folder}"],
        source,
    )
    (folder / "requirements.txt").write_bytes((source / "requirements/run.txt").read_bytes())
    wheel = folder / f"ibpulse-{__version__}-py3-none-any.whl"
    for machine in machines:
        for python in pythons:
            words = [str(wheel), str(folder), f"--python={python}", f"--machine={machine}"]
            run([sys.executable, "-m", "tools.packages", *words], source)


def package_chart(folder: Path, source: Path) -> None:
    """Check and package the chart, where Helm is."""
    if not shutil.which("helm"):
        print("no chart: Helm is not installed", file=sys.stderr)
        return
    run(["helm", "lint", "--quiet", "--strict", "helm/ibpulse"], source)
    run(["helm", "package", "helm/ibpulse", f"--destination={folder}"], source)


def answers(engine: str) -> bool:
    """Whether an engine for images is there, and can be used."""
    asked = [engine, "info"]
    return bool(shutil.which(engine)) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def build_image(folder: Path, source: Path, image: str, repository: str) -> None:
    """Build the image and save it for `docker load`, where Docker or Podman answers."""
    engine = next((name for name in ("docker", "podman") if answers(name)), None)
    if engine is None:
        print("no image: neither Docker nor Podman answers", file=sys.stderr)
        return
    labels = {"VERSION": __version__, "REVISION": git("rev-parse", "HEAD"), "CREATED": git("log", "-1", "--format=%cI")}
    arguments = [f"--build-arg={name}={value}" for name, value in (labels | {"SOURCE": repository}).items()]
    # where the environment has them
    arguments += ["--build-arg=BUILD_BASE", "--build-arg=RUN_BASE"]
    name = f"{image}:{__version__}"
    run([engine, "build", "--quiet", "--file=docker/Dockerfile", f"--tag={name}", *arguments, "."], source)
    run([engine, "save", f"--output={folder / f'ibpulse-image-{__version__}.tar'}", name], source)


def write_checksums(folder: Path) -> None:
    """Write what `sha256sum --check` reads."""
    paths = sorted(path for path in folder.iterdir() if path.name not in (NOTES, CHECKSUMS))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths]
    (folder / CHECKSUMS).write_text("".join(lines))


def git(*words: str) -> str:
    """The answer of git about this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run(command: Sequence[str], folder: Path) -> None:
    """Run a program there; files that it writes have the time of the commit where it has to be in them.

    Raises:
        SystemExit: it failed; it has said why.
    """
    own = {"PYTHONPATH": str(folder / "exporter"), "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct")}
    if code := subprocess.run(command, cwd=folder, env={**os.environ, **own}, check=False).returncode:
        raise SystemExit(f"{' '.join(command[:2])} failed with exit code {code}, so there is no release")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all of it into the folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="All files of a release.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", default="", help="https://HOST/OWNER/NAME")
    parser.add_argument("--image", default="", help="REGISTRY/OWNER/NAME; with @sha256:DIGEST it is not built")
    parser.add_argument("--python", action="append", help="version for deb and rpm (3.11, 3.12 and 3.13)")
    parser.add_argument("--machine", action="append", choices=sorted(MACHINES), help="processor for deb and rpm (all)")
    given = parser.parse_args(arguments)
    folder: Path = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        source, tag = Path(name), f"v{__version__}"
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "--extract"], cwd=source, input=packed, check=True)
        try:
            if given.image:
                chart.pin_image(source, given.image)
            if given.repository:
                point_at(given.repository, tag, source)
                chart.point_at(source, given.repository, tag)
            write_archives(folder, source)
        except ConfigError as error:
            print(error, file=sys.stderr)
            return 1
        build(folder, source, given.python or PYTHONS, given.machine or sorted(MACHINES))
        package_chart(folder, source)
        if "@" not in given.image:
            build_image(folder, source, given.image or "ibpulse", given.repository)
    write_checksums(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
