"""The pod that Helm renders, as a container in the machine. Its image is the machine's own file system.

runc brings the mounts and masks of a runtime, and Debian the profile of system calls that engines use by default.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.campaigns.chart.rendering import container, one, pod, render
from tests.campaigns.vm.daemon import POD_WEB_PORT, Daemon
from tests.campaigns.vm.debian import SECCOMP_PROFILE
from tests.campaigns.vm.hw_counters import HW_ONLY
from tests.campaigns.vm.machine import Machine, Outcome

NAME = "pod"
BUNDLE = f"/run/{NAME}"
ENVIRONMENT = ("NODE_NAME=node", "OPENBLAS_NUM_THREADS=1", "PATH=/usr/local/bin:/usr/bin:/bin", *HW_ONLY[1:])
SET_UP = (
    f"mount -t cgroup2 cgroup2 /sys/fs/cgroup && ip netns add {NAME} && ip -n {NAME} link set lo up"
    f" && mkdir -p {BUNDLE}/rootfs && mount --bind / {BUNDLE}/rootfs && cd {BUNDLE} && runc spec && cat config.json"
)
TEAR_DOWN = f"ip netns del {NAME}; umount {BUNDLE}/rootfs && rm -r {BUNDLE}; umount /sys/fs/cgroup"
# Without a root that could be exchanged, as in any initramfs.
RUN = ("runc", "run", "--no-pivot", "--bundle", BUNDLE, NAME)


class Pod:
    """What a node has of a pod: its volumes, its network, and the configuration of its container."""

    def __init__(self, machine: Machine) -> None:
        """Make it of the chart's default values."""
        objects = render()
        self.machine, self.spec, self.main = machine, pod(objects), container(objects)
        self._config = json.loads(machine.run(SET_UP).stdout)
        profile = json.loads(machine.run(f"cat /{SECCOMP_PROFILE}").stdout)
        for volume in self.spec["volumes"]:
            if "hostPath" not in volume:
                machine.run(f"install -d -m 2777 -g {self.spec['securityContext']['fsGroup']} {_source(volume)}")
        for name, text in one(objects, "ConfigMap")["data"].items():
            machine.run(f"printf %s {shlex.quote(text)} >{BUNDLE}/config/{name}")
        describe(self._config, self.spec, self.main, profile)

    def run(self, *command: str) -> Outcome:
        """Outcome of another command in the container."""
        self.configure(*command)
        return self.machine.run(shlex.join(RUN), check=False, timeout_seconds=240)

    def configure(self, *command: str) -> None:
        """Write the configuration of a container that runs this command."""
        self._config["process"]["args"] = command
        self.machine.run(f"printf %s {shlex.quote(json.dumps(self._config))} >{BUNDLE}/config.json")


@contextmanager
def deployed(machine: Machine) -> Iterator[Pod]:
    """The pod, without a running container."""
    try:
        yield Pod(machine)
    finally:
        machine.run(f"runc delete --force {NAME}; {TEAR_DOWN}", check=False)


class Contained(Daemon):
    """The daemon of a pod."""

    def __init__(self, deployed: Pod) -> None:
        """Start it, and wait until it is ready."""
        self.machine, self.port = deployed.machine, POD_WEB_PORT
        port = str(deployed.main["ports"][0]["containerPort"])
        relay = ["python3", "/guest/relay.py", str(POD_WEB_PORT), NAME, port]
        self._relay = self.machine.start(relay, "/tmp/relay.log")
        deployed.configure("ibpulse", *deployed.main["args"])
        self.start(RUN, f"/tmp/{NAME}.log")

    def end(self) -> None:
        """End it, which must be clean."""
        assert self.program.stop(240) == 0, self.program.output()
        self._relay.kill()


def describe(config: dict[str, Any], spec: Mapping[str, Any], main: Mapping[str, Any], profile: dict[str, Any]) -> None:
    """Change a runtime's default configuration to that of a pod's container, as kubelet and a node's runtime do."""
    rights = {**spec["securityContext"], **main["securityContext"]}
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec[name]] == []
    node = {"$(NODE_NAME)": "node"}
    given = [f"{entry['name']}={node.get(entry['value'], entry['value'])}" for entry in main["env"] if "value" in entry]
    config["process"] = {
        "cwd": "/",
        "env": [*ENVIRONMENT, *given],
        "user": {"uid": rights["runAsUser"], "gid": rights["runAsGroup"], "additionalGids": [rights["fsGroup"]]},
        "capabilities": {},
        "noNewPrivileges": not rights["allowPrivilegeEscalation"],
    }
    config["root"] = {"path": "rootfs", "readonly": rights["readOnlyRootFilesystem"]}
    volumes = {volume["name"]: _source(volume) for volume in spec["volumes"]}
    config["mounts"] += [_bind(volumes[mount["name"]], mount) for mount in main["volumeMounts"]]
    linux = config["linux"]
    (network,) = [one for one in linux["namespaces"] if one["type"] == "network"]
    network["path"] = f"/run/netns/{NAME}"
    mebibytes = int(main["resources"]["limits"]["memory"].removesuffix("Mi"))
    linux["resources"]["memory"] = {"limit": mebibytes * 2**20}
    linux["seccomp"] = {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [_rule(entry) for entry in profile["syscalls"] if _applies(entry)],
    }


def _source(volume: Mapping[str, Any]) -> str:
    host: Mapping[str, str] = volume.get("hostPath", {})
    return host.get("path", f"{BUNDLE}/{volume['name']}")


def _bind(source: str, mount: Mapping[str, Any]) -> dict[str, Any]:
    read_only = "rro" if mount.get("recursiveReadOnly") else "ro"
    options = ["rbind", "rprivate", read_only if mount.get("readOnly") else "rw"]
    return {"destination": mount["mountPath"], "type": "bind", "source": source, "options": options}


def _applies(entry: Mapping[str, Any]) -> bool:
    """Whether a rule of the profile is for this processor and for a container without capabilities."""
    wanted: Mapping[str, Sequence[str]] = entry["includes"]
    return "caps" not in wanted and "amd64" in wanted.get("arches", ["amd64"])


def _rule(entry: Mapping[str, Any]) -> dict[str, Any]:
    """It in the runtime's form."""
    return {key: entry[key] for key in ("names", "action", "errnoRet", "args") if entry.get(key)}
