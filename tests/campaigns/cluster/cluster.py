"""The cluster of one node, from outside: started, asked, broken and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.campaigns.cluster import image, node
from tests.campaigns.cluster.programs import FOLDER
from tests.running import eventually

CGROUPS = Path("/sys/fs/cgroup")


class Cluster:
    """One node, whose state is in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start all programs; the seconds until the node is ready."""
        begin = time.monotonic()
        (self.folder / "started").unlink(missing_ok=True)
        unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*unshare, sys.executable, "-m", "tests.campaigns.cluster.node", self.folder],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "KUBERNETES_PROGRAMS": str(FOLDER)},
            )
        eventually((self.folder / "started").exists, 120, 0.2)
        eventually(lambda: self.is_ready("node", "node1"), 120, 0.3)
        return time.monotonic() - begin

    def stop(self) -> None:
        """End everything, and remove what it left in the machine's cgroups."""
        if self._process:
            self._process.kill()
            self._process.wait()
        time.sleep(2)
        for place in sorted(CGROUPS.glob("**/kubepods*/**/"), key=lambda path: -len(path.parts)):
            with suppress(OSError):
                place.rmdir()
        for place in node.OWN[1:]:
            with suppress(OSError):
                Path(place).rmdir()

    def command(self, *words: str | Path) -> list[str]:
        """A command that runs in the namespaces of the node."""
        assert self._process
        inside = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0]
        return ["nsenter", f"--target={inside}", "--net", "--mount", "--pid", f"--wdns={ROOT}", *map(str, words)]

    def run(self, *words: str | Path, text: str = "", check: bool = True, seconds: float = 180) -> str:
        """What a command says."""
        helm = {f"HELM_{name}_HOME": str(self.folder / "helm") for name in ("CACHE", "CONFIG", "DATA")}
        environment = {**os.environ, **helm, "KUBECONFIG": str(self.folder / "kubeconfig")}
        environment["PATH"] = f"{FOLDER}:{os.environ['PATH']}"
        done = subprocess.run(
            self.command(*words),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=seconds,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))[:300]}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout + ("" if check else done.stderr)

    def kubectl(self, *words: str, text: str = "", check: bool = True) -> str:
        """What kubectl says."""
        return self.run("kubectl", *words, text=text, check=check)

    def get(self, *words: str) -> dict[str, Any]:
        """What kubectl gets, as a document."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output=json"))
        return found

    def apply(self, *documents: dict[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def is_ready(self, *words: str) -> bool:
        """Whether an object has the condition Ready; false if it does not exist."""
        with suppress(RuntimeError):
            conditions = self.get(*words).get("status", {}).get("conditions", [])
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return False

    def load_images(self) -> None:
        """Give the node our image and that of sandboxes."""
        for name in (image.IMAGE, image.SANDBOX):
            archive = self.folder / "image.tar"
            archive.unlink(missing_ok=True)
            image.call("save", "--output", archive, name)
            self.run("ctr", "-n", "k8s.io", "images", "import", archive)
            archive.unlink()

    def pids(self, pattern: str) -> list[int]:
        """Processes of the node whose command line has a pattern, by their numbers in its namespace."""
        return [int(word) for word in self.run("pgrep", "-f", pattern, check=False).split()]

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process by its number in the namespace."""
        self.run("kill", f"-{number.value}", str(pid))
