"""A Kubernetes without containers: the real API server, controllers and scheduler on etcd, with nodes that kwok fakes.

The programs are built from source on first use, which takes 10 to 20 minutes and 3 GB; etcd and kubectl come from the
system. Nothing here asserts anything; `tests.campaigns.chart.on_api_server` does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.cluster import programs
from tests.grafana.servers import free_address
from tests.running import eventually

KWOK = "v0.8.0"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
CONTROLLERS = (
    "daemonset,deployment,replicaset,serviceaccount,serviceaccount-token,namespace,garbagecollector,"
    "nodelifecycle,endpointslice,disruption,root-ca-certificate-publisher-controller"
)
STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
TOKEN = "of-the-administrator"
# etcd 3.4 cannot stream lists: clients that try it would begin again after each refusal, and see changes half a minute
# late; told that the server does not know them, they list and watch
OLD_ETCD = "--feature-gates=WatchList=false"


def build(folder: Path) -> None:
    """Build the programs into a folder that keeps them."""
    programs.build(folder, PROGRAMS)
    if not (folder / "kwok").exists():
        programs.install(folder, f"sigs.k8s.io/kwok/cmd/kwok@{KWOK}")


@dataclass(frozen=True)
class Cluster:
    """A running API server; `kubeconfig` is the administrator's."""

    kubeconfig: Path

    def kubectl(self, *arguments: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl, with `text` as its standard input."""
        return self._run(["kubectl", *arguments], text, check)

    def helm(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm."""
        return self._run(["helm", *arguments], "", check)

    def get(self, *arguments: str) -> dict[str, object]:
        """What kubectl gets, as a document."""
        found: dict[str, object] = json.loads(self.kubectl("get", *arguments, "--output=json").stdout)
        return found

    def _run(self, command: list[str], text: str, check: bool) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done

    def add_nodes(self, nodes: Mapping[str, tuple[Mapping[str, str], list[Mapping[str, str]]]]) -> None:
        """Create nodes, each with labels and taints, that kwok keeps alive."""
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
        documents = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                    "labels": {"kubernetes.io/os": "linux", "kubernetes.io/hostname": name, **labels},
                },
                "spec": {"taints": taints},
                "status": {"allocatable": room, "capacity": room},
            }
            for name, (labels, taints) in nodes.items()
        ]
        self.kubectl("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))


@contextmanager
def running_cluster(built: Path, folder: Path) -> Iterator[Cluster]:
    """An empty cluster whose files and logs are in a folder."""
    etcd, peers, server = free_address(), free_address(), free_address()
    for command in (
        ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"],
        ["openssl", "rsa", "-in", str(folder / "sa.key"), "-pubout", "-out", str(folder / "sa.pub")],
    ):
        subprocess.run(command, check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    kubeconfig = folder / "kubeconfig"
    access = {"server": f"https://{server}", "insecure-skip-tls-verify": True}
    context = {"cluster": "c", "user": "admin"}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": access}],
                "users": [{"name": "admin", "user": {"token": TOKEN}}],
                "contexts": [{"name": "c", "context": context}],
            }
        )
    )
    cluster = Cluster(kubeconfig)
    key, public = folder / "sa.key", folder / "sa.pub"
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            program = shutil.which(name) or str(built / name)
            process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)

        start(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://{etcd}",
            f"--advertise-client-urls=http://{etcd}",
            f"--listen-peer-urls=http://{peers}",
        )
        host, _, port = server.rpartition(":")
        start(
            "kube-apiserver",
            f"--etcd-servers=http://{etcd}",
            f"--bind-address={host}",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            "--service-account-issuer=https://cluster.example",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--allow-privileged=true",
            OLD_ETCD,
        )
        eventually(lambda: cluster.kubectl("get", "--raw=/readyz", check=False).returncode == 0, 120, 1)
        for name, extra in (
            ("kube-controller-manager", (f"--controllers={CONTROLLERS}", f"--service-account-private-key-file={key}")),
            ("kube-scheduler", ()),
        ):
            start(name, f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0", *extra)
        found = subprocess.run(
            ["go", "mod", "download", "-json", f"sigs.k8s.io/kwok@{KWOK}"], check=True, capture_output=True, text=True
        )
        stages = Path(json.loads(found.stdout)["Dir"]) / "kustomize" / "stage"
        files = [
            path for name in STAGES for path in sorted((stages / name).glob("*.yaml")) if path.stem != "kustomization"
        ]
        start(
            "kwok",
            f"--kubeconfig={kubeconfig}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            *(f"--config={path}" for path in files),
        )
        time.sleep(1)
        yield cluster
