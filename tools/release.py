"""`python -m tools.release DIR`: the archives and the notes of a release, as its workflow attaches them.

The archives are the same for the same commit: no times, no owners, names in order. `--repository=https://HOST/OWNER/NAME`
also puts addresses into README.md and pyproject.toml of this checkout before the wheel is built, because a page outside
of the repository cannot follow a relative link.
"""

from __future__ import annotations

import argparse
import gzip
import io
import re
import sys
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ibpulse import __version__
from ibpulse.base.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
ARCHIVES = {
    "systemd": ("docker/systemd/*.service", "docker/systemd/*.sh", "slurm/*.sh", "docs/systemd.md", "LICENSE"),
    "rules": ("dashboards/rules/*.yaml", "docs/alerts.md", "LICENSE"),
    "dashboards": ("dashboards/*.json", "docs/dashboards.md", "LICENSE"),
    "runbooks": ("docs/runbooks/*.md", "LICENSE"),
}
"""The files in each archive, by its name."""
NOTES = "notes.md"


def files_of(patterns: Iterable[str]) -> list[Path]:
    """The files of a checkout that the patterns name, in order."""
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)})


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


def point_at(repository: str, tag: str, root: Path = ROOT) -> None:
    """Put the addresses into a checkout.

    Raises:
        ConfigError: the address is not absolute.
    """
    if not re.fullmatch(r"https?://[^/\s]+/\S+[^/\s]", repository):
        raise ConfigError([f'"{repository}" is not the address of a repository; write https://HOST/OWNER/NAME'])
    for name, change in (("README.md", absolute), ("pyproject.toml", with_addresses)):
        (root / name).write_text(change((root / name).read_text(), repository, tag))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all of them into the folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="The archives and notes of a release.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repository", help="put its addresses into this checkout, too")
    given = parser.parse_args(arguments)
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if given.repository:
            point_at(given.repository, f"v{__version__}")
        text = notes((ROOT / "CHANGELOG.md").read_text(), __version__)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    (folder / NOTES).write_text(text)
    for what, patterns in ARCHIVES.items():
        name = f"ibpulse-{what}-{__version__}"
        (folder / f"{name}.tar.gz").write_bytes(archive(name, files_of(patterns)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
