"""The Dockerfile as text, and the wheel that it installs; `tests.campaigns.cluster.image` builds it."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import ibpulse
from tests import ROOT
from tests.running import Running, eventually

DOCKERFILE = (ROOT / "docker/Dockerfile").read_text()
BIN = Path(sys.executable).parent


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    done = subprocess.run([BIN / "hadolint", ROOT / "docker/Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_both_bases_are_pinned_by_digest_and_are_the_same_python() -> None:
    bases = re.findall(r"^ARG \w+_BASE=(\S+)@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["${BUILD_BASE}", "${RUN_BASE}"]
    # Debian 13 has Python 3.13
    assert bases[0].endswith("python:3.13-slim-trixie")
    assert "python3-debian13" in bases[1]


def test_the_image_runs_as_a_number_and_starts_without_a_shell() -> None:
    assert "\nUSER 65532:65532\n" in DOCKERFILE
    for instruction in ("ENTRYPOINT", "CMD"):
        assert re.search(rf"^{instruction} \[", DOCKERFILE, re.MULTILINE)
    last_stage = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "\nRUN " not in last_stage


def test_what_the_image_installs_is_locked() -> None:
    installs = re.findall(r"pip install (.*)", DOCKERFILE)
    assert installs
    for install in installs:
        assert "--require-hashes" in install or "--no-index" in install


@pytest.mark.parametrize("copied", sorted(set(re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE))))
def test_every_file_that_is_copied_exists_and_is_not_ignored(copied: str) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for path in copied.split():
        assert (ROOT / path).exists()
        assert any(path.rstrip("/") == name or path.startswith(name) for name in kept)


def test_the_wheel_holds_all_that_the_program_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("ibpulse/")}
    package = ROOT / "exporter"
    files = (path for path in (package / "ibpulse").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {str(path.relative_to(package)) for path in files}


def test_the_version_is_written_in_one_place(wheel: Path) -> None:
    assert wheel.name.startswith(f"ibpulse-{ibpulse.__version__}-py3-none-any")
    chart = ROOT / "helm/ibpulse/Chart.yaml"
    if chart.exists():
        assert f'appVersion: "{ibpulse.__version__}"' in chart.read_text()
    assert "version" not in re.sub(r"\$\{VERSION\}|org\.opencontainers\.image\.version", "", DOCKERFILE)


def test_the_wheel_runs_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    python = _clean_environment(tmp_path / "venv", wheel)
    shown = subprocess.run([python.with_name("ibpulse"), "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ibpulse {ibpulse.__version__}\n"
    # it would ask for its extra first
    asked = subprocess.run([python, "-m", "ibpulse", "gateway"], capture_output=True, text=True, check=False)
    assert "nodes.sources: no source of nodes" in asked.stderr
    tree = tmp_path / "sys"
    with subprocess.Popen(
        [python, "-m", "ibpulse", "simulate", tree, "--ports=2"], stdout=subprocess.DEVNULL
    ) as fabric:
        eventually((tree / "class/infiniband/mlx5_1").exists)
        with _Clean(tree, tmp_path / "ring", python) as running:
            assert running.metrics().value("ibpulse_node_rails") == 2
            page = running.ask("/")
            assert page.headers["content-type"].startswith("text/html")
            for asset in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
                assert running.ask(f"/{asset}").status_code == 200
        fabric.terminate()


def _clean_environment(directory: Path, wheel: Path) -> Path:
    """An environment with this wheel and the locked dependencies that are installed here; its interpreter."""
    venv.create(directory, with_pip=False)
    python = directory / "bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={python}"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    site = directory / f"lib/python{sysconfig.get_python_version()}/site-packages"
    # nothing is fetched: what requirements/run.txt locks is here already, and nothing else is shown to it
    locked = (ROOT / "requirements/run.txt").read_text()
    for name in set(re.findall(r"^([\w.-]+)==", locked, re.MULTILINE)):
        for path in _top_levels(name):
            (site / path.name).symlink_to(path)
    return python


def _top_levels(name: str) -> set[Path]:
    """Files and directories of an installed distribution in its site-packages; none if a marker left it out."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return set()
    files = distribution.files or []
    return {Path(str(distribution.locate_file(file.parts[0]))) for file in files if file.parts[0] != ".."}


class _Clean(Running):
    """The daemon of another interpreter."""

    def __init__(self, tree: Path, ring_dir: Path, python: Path) -> None:
        super().__init__(tree, ring_dir, f"--capture.dir={ring_dir}-captures")
        self._command[0] = str(python)
