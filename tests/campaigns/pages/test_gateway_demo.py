"""The real gateway over daemons on simulated nodes, in the browser: what is wrong, captures, and a node that dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.campaigns.pages.browser import Live, live
from tests.campaigns.pages.prefixed import prefixed
from tests.running import eventually

pytestmark = pytest.mark.needs("chromium")
JOB, NODES = "1001", ("node1", "node2", "node3", "node4")
STRAGGLER, HOT = "node3", "mlx5_1:1"


@dataclass
class Demo:
    """`ibpulse gateway --demo`: its address, and its processes."""

    process: subprocess.Popen[bytes]
    url: str

    def daemon(self, node: str) -> int:
        """The process id of the daemon of a node."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (found,) = (pid for pid in children if f"/{node}/config.json" in Path(f"/proc/{pid}/cmdline").read_text())
        return int(found)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    log = tmp_path_factory.mktemp("gateway") / "log"
    command = [sys.executable, "-m", "ibpulse", "gateway", f"--demo={len(NODES)}", "--web.listen-address=127.0.0.1:0"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--capture.allow-unauthenticated=true"], stdout=output, stderr=output)
    try:
        found = eventually(lambda: re.search(r"serving (http://[^ ]+)/\n", log.read_text()), 60)
        yield Demo(process, found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert "internal error" not in log.read_text()


@pytest.fixture(scope="module")
def shown(browser: Browser, demo: Demo) -> Iterator[Live]:
    with prefixed(demo.url, "/fabric") as url, live(browser, url) as found:
        yield found
        # nothing on a page knows where it is
        assert [asked for asked in found.requests if "://" in asked and not asked.startswith(f"{url}/")] == []


def opened(found: Live, view: str = "") -> None:
    """Open the page of the job, which is known when the nodes have been asked for the first time."""
    eventually(lambda: found.page.request.get(f"{found.url}/api/v1/jobs").json()["jobs"])
    found.open(f"job/{JOB}{view}")
    found.wait("live")


def labels(found: Live) -> dict[str, str]:
    """The label of each row from top to bottom, empty if all is well."""
    items = "[...document.querySelectorAll('#names li')]"
    texts = "li => [li.querySelector('.long').textContent, li.querySelector('.mark').textContent]"
    return dict(found.page.evaluate(f"{items}.map({texts})"))


def captured(found: Live) -> str:
    """What the page says after a capture, which a node of a busy machine may refuse."""
    found.page.click("#capture")
    said = eventually(lambda: re.match("Captured.*|No capture.*", found.text(".taken")), 40)
    return said[0]


def test_the_straggler_and_the_hot_rail_are_named(shown: Live) -> None:
    opened(shown)
    eventually(lambda: f"{STRAGGLER}, ±" in shown.card("Latest node"), 60)
    eventually(lambda: f"{HOT} is hot" in shown.card("Active rails"))
    eventually(lambda: next(iter(labels(shown))) == STRAGGLER)
    assert {node: text.endswith("late") for node, text in labels(shown).items()} == {
        node: node == STRAGGLER for node in NODES
    }


def test_one_click_captures_a_held_view_on_all_nodes(shown: Live, tmp_path: Path) -> None:
    opened(shown)
    shown.press(" ")
    shown.wait("held")
    eventually(lambda: "on 4 nodes." in captured(shown), 60)
    with shown.page.expect_download() as waiting:
        shown.page.click(".taken a")
    waiting.value.save_as(tmp_path / "all.tar")
    with tarfile.open(tmp_path / "all.tar") as archive:
        assert [name.split("/")[1] for name in archive.getnames()] == list(NODES)
    shown.page.click("summary:text-is('Captures')")
    row = eventually(shown.page.locator("[aria-label=Captures] tbody tr").first.inner_text).split("\t")
    assert row[1:3] == ["job-page", "4 nodes"]


def test_a_node_leads_to_its_job_at_the_same_time(shown: Live) -> None:
    opened(shown)
    shown.press(" ")
    shown.wait("held")
    fragment = shown.page.url.partition("#")[2]
    shown.page.click(f"#names .node:has-text('{STRAGGLER}')")
    eventually(lambda: shown.page.locator("#jobs a").count())
    assert shown.text("#jobs").startswith(f"Job {JOB}")
    shown.page.click("#jobs a")
    assert re.fullmatch(rf"{shown.url}/job/\w+%3A{JOB}#{fragment}", shown.page.url)
    shown.wait("held")


def test_two_viewers_go_on_without_a_node_that_dies(browser: Browser, demo: Demo, shown: Live) -> None:
    known = "ibpulse.shown.map((port, row) => !Number.isNaN(ibpulse.moment(2 * row)))"
    others = [node != "node2" for node in NODES]
    with live(browser, demo.url) as other:
        for viewer in (shown, other):
            opened(viewer, "#sort=name")
        os.kill(demo.daemon("node2"), signal.SIGKILL)
        for viewer in (shown, other):
            eventually(lambda viewer=viewer: labels(viewer)["node2"] == "no answer", 40)
            eventually(lambda viewer=viewer: "missing: node2" in viewer.card("Nodes"))
            streamed = viewer.page.evaluate("ibpulse.store.streamedMs")
            viewer.until(f"ibpulse.store.streamedMs > {streamed} + 2000")
            eventually(lambda viewer=viewer: viewer.page.evaluate(known) == others, 40)
        shown.press(" ")
        eventually(lambda: "on 3 nodes. Not captured: node2 (" in captured(shown), 60)
        assert shown.complaints == other.complaints == []
