"""The whole daemon as 65532, without any capability, on a read-only root, in the directories that it gets in use.

A kubelet makes those of the chart, systemd those of the unit. Here, they are made as both do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ibpulse.core.recordings import load
from tests import ROOT
from tests.campaigns.chart.rendering import container as rendered_container
from tests.campaigns.chart.rendering import one, pod, render
from tests.campaigns.live.docker.container import PORT, USER, Container, MemoryLimit, Run
from tests.campaigns.live.terminal.panes import pane
from tests.running import eventually

pytestmark = pytest.mark.needs("tmux", "containers")
UNIT = ROOT / "docker/systemd/ibpulse.service"
NODE = "node-a"
CAPTURES = "/api/v1/captures"
# of the chart; the unit has more
MEMORY_BYTES = 192 * 2**20
VOLUMES: dict[str, dict[str, Any]] = {
    "emptyDir": {},
    "hostPath": {"volume": "hostPath"},
    "existingClaim": {"volume": "existingClaim", "existingClaim": "shared"},
    "ephemeral": {"volume": "ephemeral"},
}


@pytest.fixture(scope="module")
def packages(installed: Path, dependencies: Path) -> list[Path]:
    return [installed, dependencies]


# what a kubelet does


def kubelet_run(values: dict[str, Any], scratch: Path, tree: Path) -> Run:
    """A pod of the chart; the ring's directory is the one in `scratch`, and stays from one container to the next."""
    documents = render({"config": {"capture": {"allow-unauthenticated": True}}, **values})
    spec, main = pod(documents), rendered_container(documents)
    context = spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (USER, USER)
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    places = {mount["name"]: mount for mount in main["volumeMounts"]}
    shown, volumes = {places["sysfs"]["mountPath"]: tree}, {}
    for volume in spec["volumes"]:
        name, path = volume["name"], scratch / volume["name"]
        if name == "sysfs":
            continue
        path.mkdir(exist_ok=True)
        if "configMap" in volume:
            for file, text in one(documents, "ConfigMap")["data"].items():
                (path / file).write_text(text)
        elif "emptyDir" in volume:
            path.chmod(0o777)
        elif "hostPath" in volume:
            # as its comment in the values wants it
            os.chown(path, USER, USER)
            path.chmod(0o750)
        elif "ephemeral" in volume:
            # a file system of its own
            (path / "lost+found").mkdir(0o700, exist_ok=True)
        if "hostPath" not in volume:
            own_by_group(path, context["fsGroup"])
        (shown if places[name].get("readOnly") else volumes)[places[name]["mountPath"]] = path
    environment = {entry["name"]: entry.get("value", NODE).replace("$(NODE_NAME)", NODE) for entry in main["env"]}
    return Run(tuple(main["args"]), shown, volumes, environment, group=context["fsGroup"])


def own_by_group(volume: Path, group: int) -> None:
    """Give a volume and all in it to the pod's fsGroup, as the kubelet does before each start of a pod."""
    for path in (volume, *volume.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        os.chown(path, -1, group)
        path.chmod(mode | (0o2770 if path.is_dir() else 0o660))


# what systemd does


def systemd_run(scratch: Path, tree: Path) -> Run:
    """The service of the unit, with what docs/systemd.md writes to /etc/default/ibpulse.

    A directory of a DynamicUser is below `private`, with a link to it.
    """
    unit = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert unit["DynamicUser"] == "yes"
    environment = {"IBPULSE_CAPTURE__ALLOW_UNAUTHENTICATED": "true"}
    volumes, links = {}, {}
    for kind, above in (("Runtime", "/run"), ("State", "/var/lib")):
        name = unit[f"{kind}Directory"]
        path = scratch / kind
        path.mkdir()
        path.chmod(int(unit[f"{kind}DirectoryMode"], 8))
        os.chown(path, USER, USER)
        volumes[f"{above}/private/{name}"] = path
        links[f"{above}/{name}"] = f"private/{name}"
        environment[f"{kind.upper()}_DIRECTORY"] = f"{above}/{name}"
    words = tuple(unit["ExecStart"].split()[1:])
    return Run(words, {"/sys": tree}, volumes, environment, links, umask=unit["UMask"])


# what both must do


def check_privileges(container: Container) -> None:
    status = container.status()
    assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    writable = {place for place, options in container.mounts().items() if "ro" not in options.split(",")}
    assert writable == {*container.run.volumes, "/proc"}


def check_samples(container: Container) -> str:
    """The address of a window that has samples and is over."""

    def sampled() -> str:
        now_ms = time.time_ns() // 1_000_000
        path = f"/api/v1/window?from={now_ms - 1500}&to={now_ms - 500}&port=mlx5_0:1&direction=transmit"
        return path if any(container.json(path)["series"][0]["values"]) else ""

    assert container.metrics().value("ibpulse_node_rails") == 8
    assert container.ask("/-/ready")[0] == 200
    return eventually(sampled)


def check_capture(container: Container, scratch: Path) -> None:
    """A capture is taken, listed, and downloaded as a recording."""
    status, text = container.ask(CAPTURES, "POST", '{"before": "1s", "after": "10ms"}')
    assert status == 202, text
    name = json.loads(text)["name"]
    eventually(lambda: name in [each["name"] for each in container.json(CAPTURES)["captures"]])
    status, content = container.fetch(f"{CAPTURES}/{name}")
    assert status == 200
    (scratch / "downloaded").write_bytes(content)
    recording = load(scratch / "downloaded")
    assert (len(recording.meta.ports), recording.meta.source) == (8, "capture")


def check_tools_of_root(container: Container, scratch: Path, *flags: str) -> None:
    """`ibpulse doctor` and `ibpulse top`, started by root, find the daemon instead of sampling themselves."""

    def found_by_doctor() -> bool:
        asked = container.beside("doctor", "--format=json", *flags)
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        assert told.stdout, told.stderr
        return bool(json.loads(told.stdout)["look"]["by_daemon"])

    eventually(found_by_doctor, seconds=60)
    with pane(scratch, container.beside("top", *flags)) as made:
        assert f"http://localhost:{PORT}" in made.wait_for("mlx5_7:1", "duty cycle").splitlines()[0]
        made.keys("q")
        assert "ended with 0" in made.wait_for("ended with")


def check_end(container: Container, window: str) -> Any:
    """SIGTERM ends the daemon without an error; what it had said of a window."""
    before = container.json(window)
    assert container.stop() == 0
    assert not re.findall("WARNING.*captures|ERROR|Traceback", container.log()), container.log()
    return before["start_ms"], before["series"]


def check_history(container: Container, window: str, before: Any) -> None:
    after = container.json(window)
    assert (after["start_ms"], after["series"]) == before


@pytest.mark.needs("helm")
def test_in_the_volumes_of_the_chart(memory: Path, tree: Path, packages: list[Path]) -> None:
    scratch, known = memory / "pod", None
    scratch.mkdir()
    with MemoryLimit(MEMORY_BYTES) as limit:
        for kind, captures in VOLUMES.items():
            run = kubelet_run({"captures": captures}, scratch, tree)
            with Container(scratch, packages, limit, run) as container:
                check_privileges(container)
                if known:
                    check_history(container, *known)
                else:
                    check_tools_of_root(container, scratch, run.words[-1])
                window = check_samples(container)
                check_capture(container, scratch)
                known = window, check_end(container, window)
            with contextlib.suppress(FileNotFoundError):
                (scratch / "captures").rename(scratch / f"captures-{kind}")
        assert limit.kills() == 0
    assert {path.parent.relative_to(scratch).as_posix() for path in scratch.glob("captures-*/**/*.parquet")} == {
        f"captures-emptyDir/ibpulse-{USER}",
        "captures-hostPath",
        f"captures-existingClaim/{NODE}",
        f"captures-ephemeral/ibpulse-{USER}",
    }


def test_in_the_directories_of_the_unit(memory: Path, tree: Path, packages: list[Path]) -> None:
    scratch = memory / "service"
    scratch.mkdir()
    run = systemd_run(scratch, tree)
    with MemoryLimit(MEMORY_BYTES) as limit:
        with Container(scratch, packages, limit, run) as container:
            check_privileges(container)
            window = check_samples(container)
            check_capture(container, scratch)
            check_tools_of_root(container, scratch)
            before = check_end(container, window)
        with Container(scratch, packages, limit, run) as container:
            check_history(container, window, before)
            check_end(container, check_samples(container))
    assert len(list((scratch / "State/captures").glob("*.parquet"))) == 1
