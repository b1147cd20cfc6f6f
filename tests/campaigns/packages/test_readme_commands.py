"""Every command of README.md runs as it is written, in order, in a new clone with a home directory of its own.

The clone is that of the last commit. The network is there while `make workbench` installs; then the commands run in a
network namespace of their own, so that all ports are free and nothing is fetched. Two commands are not run here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text()
ELSEWHERE = {
    "make test": "this is a part of it",
    "helm install": "a cluster: see below",
}
SERVE = {"make run": 10055, "ibpulse serve": 10055}
"""Commands that run until Ctrl-C; the next one that needs the port ends them."""
READY = """python3 -c '
import sys, time, urllib.request
for _ in range(600):
    try:
        sys.exit(urllib.request.urlopen("http://localhost:{port}/-/ready").status != 200)
    except OSError:
        time.sleep(0.2)
sys.exit("it is not ready")'"""
FETCH = """python3 -c 'import urllib.request; print(urllib.request.urlopen("{url}").read(200).decode())'"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", README)


def commands() -> list[str]:
    """The lines of all shell blocks, without their comments."""
    joined = "\n".join(blocks("sh")).replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+#.*", "", line).strip() for line in joined.splitlines()) if line]


class Shell:
    """A shell in a network of its own, which remembers where it is."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        who = [] if os.geteuid() == 0 else ["--map-root-user"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(
            ["unshare", "--net", *who, "bash"], **pipes, cwd=folder, env=environment, text=True, start_new_session=True
        )
        self.background = False

    def run(self, line: str) -> str:
        """Run a line, and return what was printed meanwhile."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\necho; echo END OF LINE $?\n")
        self.process.stdin.flush()
        printed = []
        for text in self.process.stdout:
            found = re.match(r"END OF LINE (\d+)$", text)
            if found:
                assert found[1] == "0", f"{line}: {''.join(printed)}"
                return "".join(printed)
            printed.append(text)
        raise AssertionError(f"{line}: the shell ended: {''.join(printed)}")

    def serve(self, line: str, port: int) -> None:
        """Run a line in the background until it serves, instead of those before it."""
        self.end()
        self.run(f"{line} &")
        self.background = True
        self.run(READY.format(port=port))

    def end(self) -> None:
        """End what runs in the background."""
        if self.background:
            self.run("kill $(jobs -p); wait")
        self.background = False

    def close(self) -> None:
        """End everything: what runs in the background is in the group of the shell."""
        os.killpg(self.process.pid, signal.SIGTERM)
        with self.process:
            pass


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Shell]:
    """A shell in a new clone, whose virtual environment `make workbench` has made."""
    clean = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    clean |= {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "ibpulse")], check=True)
    install = ["make", "--quiet", "--directory", str(tmp_path / "ibpulse"), ".venv/workbench.stamp"]
    subprocess.run(install, check=True, env=clean)
    shell = Shell(tmp_path / "ibpulse", clean)
    try:
        yield shell
    finally:
        shell.close()


@pytest.mark.timeout(1500)
@pytest.mark.needs("unshare", "ip")
def test_every_command_runs_as_written(clone: Shell) -> None:
    clone.run("ip link set lo up")
    ran = []
    for line in commands():
        if line.startswith(tuple(ELSEWHERE)):
            continue
        if line in SERVE:
            clone.serve(line, SERVE[line])
            assert "<!doctype html>" in clone.run(FETCH.format(url=f"http://localhost:{SERVE[line]}/"))
        elif line.endswith("&"):
            clone.serve(line.removesuffix("&").strip(), int(re.findall(r":(\d+)", line)[0]))
        elif line == "ibpulse doctor" and not Path("/sys/class/infiniband").exists():
            # it finds no device, says so, and suggests what to do
            assert "FAIL" in clone.run(f"{line} || [ $? = 1 ]")
        else:
            clone.run(line)
        ran.append(line)
    assert len(ran) + len(ELSEWHERE) == len(commands())
    assert "PNG" in clone.run("""python3 -c 'print(open("rails.png", "rb").read(4))'""")
    clone.end()


@pytest.mark.needs("promtool")
def test_prometheus_takes_the_scrape_configuration(tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    (tmp_path / "prometheus.yml").write_text(block)
    (tmp_path / "dashboards").symlink_to(ROOT / "dashboards")
    done = subprocess.run(
        ["promtool", "check", "config", tmp_path / "prometheus.yml"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "2 rule files found" in done.stdout


@pytest.mark.needs("helm")
def test_helm_renders_what_would_be_installed() -> None:
    (line,) = [line for line in commands() if line.startswith("helm install")]
    words = line.replace("helm install", "helm template", 1).split()
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kinds = set(re.findall(r"(?m)^kind: (\w+)", done.stdout))
    assert {"DaemonSet", "PodMonitor", "PrometheusRule", "ConfigMap"} <= kinds
