"""Every command of README.md, and of the pages that it links to, runs as it is written.

They run in order in a new clone of the last commit, with a home directory of its own. The network is there while `make
workbench` installs; then each page has a shell in a network of its own, so that all ports are free and nothing is
fetched. There, `node7` is this machine, and the files that an example names exist. A few commands are not run here.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.recordings import save
from tests.docs.pages import ROOT, links, name
from tests.models.test_experts import LOADS, PLACED, write_csv
from tests.overlap.played_traces import PlayedTrace, record, write_trace

README = ROOT / "README.md"
ELSEWHERE = {
    "make test": "this is a part of it",
    "helm ": "a cluster: see below",
    "kubectl ": "the same",
    "python -m tools.grafana": "what the developers need; tests/grafana",
    "make release": "tests/release",
    "gh ": "a release that is published",
    "cosign ": "the same",
    "pip ": "an index of packages, and the wheel of a release",
    "nsys ": "a program for GPUs, whose database tests/overlap has",
    "ibpulse trace node7.sqlite": "the same",
    "rocprofv3 ": "the same",
    "ibpulse trace node7_results.db": "the same",
}
SERVE = {
    "make run": 10055,
    "ibpulse serve": 10055,
    "ibpulse demo": 10055,
    "ibpulse gateway": 10056,
}
"""Commands that run until Ctrl-C; the next one ends them. A port in the command goes before this one."""
FAILS = {"ibpulse model check": "FAILED: 1 rule violated"}
"""Commands that end with 1 here, and what they say: the example has a fault, and no device is there."""
if not Path("/sys/class/infiniband").exists():
    FAILS["ibpulse doctor"] = "FAIL"
NODE = {"docs/report.md", "docs/testing.md"}
"""Pages whose commands are for a node with rails: a simulated one is in the place of /sys, and its daemon serves."""
READY = """python3 -c '
import sys, time, urllib.request
for _ in range(600):
    try:
        sys.exit(urllib.request.urlopen("http://localhost:{port}/-/ready").status != 200)
    except OSError:
        time.sleep(0.2)
sys.exit("it is not ready")'"""
FETCH = """python3 -c 'import urllib.request; print(urllib.request.urlopen("{url}").read(200).decode())'"""
ETC = """
ip link set lo up
cp -r /etc "$HOME/etc" 2>/dev/null
mount --bind "$HOME/etc" /etc
echo 127.0.0.1 localhost node7 > /etc/hosts
mkdir -p /etc/ibpulse
echo '[{"targets": ["node7:10055"]}]' > /etc/ibpulse/nodes.yml"""
FABRIC = """
ibpulse simulate "$HOME/fabric" > /dev/null &
until [ -e "$HOME/fabric/class/infiniband/mlx5_7" ]; do sleep 0.1; done
mount --bind "$HOME/fabric" /sys"""


def blocks(page: Path, language: str = "sh") -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", page.read_text())


def commands(page: Path) -> list[str]:
    """The lines of all shell blocks, without their comments; a block with a group is one command."""
    found = []
    for block in blocks(page):
        lines = [f"({block})"] if "\n{ " in block else block.replace("\\\n", " ").splitlines()
        found += [re.sub(r"\s+#.*", "", line).strip() for line in lines]
    return [line for line in found if line]


def run_here(page: Path) -> list[str]:
    return [line for line in commands(page) if not line.startswith(tuple(ELSEWHERE))]


PAGES = [README, *dict.fromkeys(link.target for link in links(README) if link.target.suffix == ".md")]


class Shell:
    """A shell with a network and an /etc of its own, which remembers where it is."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        who = [] if os.geteuid() == 0 else ["--map-root-user"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        own = ["unshare", "--net", "--mount", *who, "bash"]
        self.process = subprocess.Popen(own, **pipes, cwd=folder, env=environment, text=True, start_new_session=True)
        self.serving = ""
        self.run(ETC)

    def run(self, line: str) -> str:
        """Run a line, and return what was printed meanwhile."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{line}\nstatus=$?; echo; echo END OF LINE $status\n")
        self.process.stdin.flush()
        printed = []
        for text in self.process.stdout:
            found = re.match(r"END OF LINE (\d+)$", text)
            if found:
                assert found[1] == "0", f"{line}: {''.join(printed)}"
                return "".join(printed)
            printed.append(text)
        raise AssertionError(f"{line}: the shell ended: {''.join(printed)}")

    def serve(self, line: str) -> None:
        """Run a line in the background until it serves, instead of the one before it."""
        self.end()
        given = re.findall(r"listen-address=:(\d+)", line)
        port = given[0] if given else next(port for words, port in SERVE.items() if line.startswith(words))
        self.run(f"{line} &\nserving=$!")
        self.serving = line
        self.run(READY.format(port=port))
        assert "<!doctype html>" in self.run(FETCH.format(url=f"http://localhost:{port}/"))

    def end(self) -> None:
        """End what serves."""
        if self.serving:
            self.run("kill $serving; wait $serving; true")
        self.serving = ""

    def close(self) -> None:
        """End everything: what runs in the background is in the group of the shell."""
        os.killpg(self.process.pid, signal.SIGTERM)
        with self.process:
            pass


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A new clone, whose virtual environment `make workbench` has made, with its environment."""
    home = tmp_path_factory.mktemp("home")
    clean = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    clean |= {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    folder = home / "ibpulse"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    subprocess.run(["make", "--quiet", "--directory", str(folder), ".venv/workbench.stamp"], check=True, env=clean)
    write_inputs(folder)
    return folder, clean


def write_inputs(folder: Path) -> None:
    """The files that examples name."""
    trace = PlayedTrace()
    write_trace(folder / "rank0.json.gz", trace.timeline()[0])
    save(folder / "node7.parquet", record(trace))
    write_csv(folder / "loads.csv", LOADS)
    write_csv(folder / "plan.csv", PLACED)
    for file, page in (("moe.yaml", "overlap"), ("job.yaml", "models")):
        (block,) = blocks(ROOT / f"docs/{page}.md", "yaml")
        (folder / file).write_text(block)


@contextmanager
def shell(clone: tuple[Path, dict[str, str]]) -> Iterator[Shell]:
    opened = Shell(*clone)
    try:
        yield opened
    finally:
        opened.close()


def run_page(page: Path, there: Shell) -> None:
    """Run the commands of a page."""
    if page != README:
        there.run(". .venv/bin/activate")
    if name(page) in NODE:
        there.run(FABRIC)
        there.serve("ibpulse serve")
    for line in run_here(page):
        if line.startswith(tuple(SERVE)):
            there.serve(line.removesuffix("&"))
        elif fault := next((text for words, text in FAILS.items() if line.startswith(words)), ""):
            assert fault in there.run(f"{line} || [ $? = 1 ]")
        else:
            there.run(line)
        for written in re.findall(r" -o (\S+)", line):
            there.run(f"test -s {written}")
    if name(page) == "docs/testing.md":
        assert "8 devices answer" in there.run("ibpulse doctor --no-look --path.sysfs=report/sys")


@pytest.mark.timeout(1500)
@pytest.mark.needs("unshare", "ip")
@pytest.mark.parametrize("page", list(filter(run_here, PAGES)), ids=name)
def test_every_command_runs_as_written(page: Path, clone: tuple[Path, dict[str, str]]) -> None:
    with shell(clone) as there:
        run_page(page, there)


@pytest.mark.needs("helm")
def test_helm_renders_what_would_be_installed() -> None:
    (line,) = [line for line in commands(README) if line.startswith("helm install")]
    words = line.replace("helm install", "helm template", 1).split()
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kinds = set(re.findall(r"(?m)^kind: (\w+)", done.stdout))
    assert {"DaemonSet", "PodMonitor", "PrometheusRule", "ConfigMap"} <= kinds
