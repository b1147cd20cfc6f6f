"""What a release attaches: the files that its pages name, the same for the same commit, and notes of its version."""

from __future__ import annotations

import io
import re
import tarfile
import tomllib
from pathlib import Path

import pytest

from ibpulse import __version__
from ibpulse.base.errors import ConfigError
from tools.release import (
    ARCHIVES,
    ROOT,
    absolute,
    archive,
    files_of,
    notes,
    point_at,
    run,
    write_archives,
    write_checksums,
)

CHANGES = "# Changelog\n\n## 0.3.0 (not released)\n\n- new\n\n## 0.2.0 (2026-12-01)\n\n- old\n- older\n"


def names(packed: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        return {member.name for member in tar.getmembers()}


def test_every_archive_has_files_and_no_two_of_one_name() -> None:
    for patterns in ARCHIVES.values():
        paths = files_of(patterns)
        assert len(paths) > 2
        assert len({path.name for path in paths}) == len(paths)


def test_the_units_the_rules_and_the_boards_are_there(tmp_path: Path) -> None:
    write_archives(tmp_path)
    found = {path.name: names(path.read_bytes()) for path in tmp_path.glob("*.tar.gz")}
    systemd, rules = f"ibpulse-systemd-{__version__}", f"ibpulse-rules-{__version__}"
    assert {f"{systemd}/ibpulse.service", f"{systemd}/prolog.sh"} <= found[f"{systemd}.tar.gz"]
    assert f"{rules}/ibpulse-inhibitions.yaml" in found[f"{rules}.tar.gz"]
    boards = {path.name for path in (ROOT / "dashboards").glob("*.json")}
    assert boards <= {name.rpartition("/")[2] for name in found[f"ibpulse-dashboards-{__version__}.tar.gz"]}


def test_an_archive_depends_on_nothing_but_its_files(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("exit\n")
    first = archive("a", [script])
    script.touch()
    assert archive("a", [script]) == first
    with tarfile.open(fileobj=io.BytesIO(first), mode="r:gz") as tar:
        (member,) = tar.getmembers()
    assert (member.name, member.mode, member.mtime, member.uid) == ("a/run.sh", 0o755, 0, 0)


def test_the_checksums_are_those_of_all_files_but_the_notes(tmp_path: Path) -> None:
    for name in ("b.whl", "a.deb", "notes.md"):
        (tmp_path / name).write_text("abc")
    write_checksums(tmp_path)
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (tmp_path / "SHA256SUMS").read_text() == f"{digest}  a.deb\n{digest}  b.whl\n"


@pytest.mark.parametrize(("version", "text"), [("0.3.0", "- new\n"), ("0.2.0", "- old\n- older\n")])
def test_the_notes_are_the_part_of_the_changelog(version: str, text: str) -> None:
    assert notes(CHANGES, version) == text


def test_a_version_without_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no part about 0\.2"):
        notes(CHANGES, "0.2")


REPOSITORY = "https://host.example/team/ibpulse"


def test_links_of_the_readme_are_absolute_in_a_release() -> None:
    text = "![a](docs/a.png), [b](docs/b.md#c), [d](#d), [e](http://e.example/), [`f`](f.md)"
    assert absolute(text, REPOSITORY, "v1.2.3") == (
        f"![a]({REPOSITORY}/raw/v1.2.3/docs/a.png), [b]({REPOSITORY}/blob/v1.2.3/docs/b.md#c), [d](#d), "
        f"[e](http://e.example/), [`f`]({REPOSITORY}/blob/v1.2.3/f.md)"
    )


def test_the_wheel_of_a_release_names_its_pages(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    point_at(REPOSITORY, "v1.2.3", tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Changelog"] == f"{REPOSITORY}/blob/v1.2.3/CHANGELOG.md"
    assert project["scripts"] == {"ibpulse": "ibpulse.cli:main"}
    for _, target in re.findall(r"\[([^\]]*)\]\(([^)]+)\)", (tmp_path / "README.md").read_text()):
        assert target.startswith(("http://", "https://", "#")), target
    for path in project["urls"].values():
        assert (ROOT / path.partition("v1.2.3/")[2]).exists()


@pytest.mark.parametrize("address", ["team/ibpulse", "https://host.example", "https://host.example/team/ibpulse/"])
def test_another_address_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not the address of a repository"):
        point_at(address, "v1.2.3", tmp_path)


@pytest.mark.real("process")
def test_a_program_that_fails_ends_the_release_with_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^sh -c failed with exit code 3, so there is no release$"):
        run(["sh", "-c", "exit 3"], tmp_path)
