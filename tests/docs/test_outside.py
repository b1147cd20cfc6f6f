"""The programs from outside: `.ci/run` installs them, CONTRIBUTING.md names them, and in CI all of them are there."""

from __future__ import annotations

import os
import re
import shutil

import pytest

from tests.docs.pages import ROOT

# by the name in .ci/run: the program, and the word for it in CONTRIBUTING.md
PROGRAMS = {
    "prometheus": ("promtool", "promtool"),
    "prometheus-alertmanager": ("amtool", "amtool"),
    "prometheus-node-exporter": ("prometheus-node-exporter", "node_exporter"),
    "chromium": ("chromium", "Chromium"),
    "systemd": ("systemd-analyze", "systemd"),
    "ffmpeg": ("ffmpeg", "ffmpeg"),
    "tmux": ("tmux", "tmux"),
    "fuse": ("fusermount", "FUSE"),
    "qemu-system-x86": ("qemu-system-x86_64", "QEMU"),
    "debootstrap": ("debootstrap", "debootstrap"),
    "helm": ("helm", "Helm"),
    "kube-score": ("kube-score", "kube-score"),
    "actionlint": ("actionlint", "actionlint"),
    "checkov": ("checkov", "checkov"),
    "nodejs": ("node", "Node.js"),
    "npm": ("npm", "npm"),
    "gcc": ("gcc", "gcc"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_installed_by_the_script_and_named_for_contributors(name: str) -> None:
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", (ROOT / ".ci/run").read_text())
    assert PROGRAMS[name][1] in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.outside
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_there_so_that_no_test_that_needs_it_is_skipped(name: str) -> None:
    program = PROGRAMS[name][0]
    if shutil.which(program) is None and not os.environ.get("CI"):
        pytest.skip(f"{program} is missing; .ci/run installs it")
    assert shutil.which(program), f"{program} is missing in CI"
