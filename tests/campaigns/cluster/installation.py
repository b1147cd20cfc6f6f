"""The chart on the running node: what it needs, its installation, and what it answers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.campaigns.chart.rendering import CHART
from tests.campaigns.chart.schemas import operator_directory
from tests.campaigns.cluster.cluster import Cluster
from tests.running import Metrics, eventually

SPACE, FABRIC = "ibpulse", "/run/fabric"
OURS = ["--set=image.registry=localhost", "--set=image.repository=ibpulse", "--set=image.tag=campaign"]
OURS += ["--set=image.digest=", "--set=image.pullPolicy=Never", "--set=imagePullSecrets=null"]
PORTS = [f"--set=sysfs.hostPath={FABRIC}"]


def prepare(cluster: Cluster) -> None:
    """Namespaces, the operator's resources, certificates, and a simulated fabric of eight ports on the node."""
    directory = operator_directory()
    assert directory, "the Prometheus operator's module is missing: run tests/campaigns/install"
    cluster.kubectl("apply", "--server-side", f"--filename={directory}")
    for space in (SPACE, "monitoring", "grafana", "fabric"):
        cluster.kubectl("create", "namespace", space)
        cluster.kubectl("label", "namespace", space, "pod-security.kubernetes.io/enforce=privileged")
    make_certificates(cluster)
    cluster.apply(pod("fabric", "fabric", ["simulate", "/fabric", "--workload=dense", "--ports=8"], FABRIC))
    eventually(lambda: cluster.is_ready("pod", "fabric", "-n", "fabric"), 60)
    eventually(lambda: cluster.run("ls", f"{FABRIC}/class/infiniband", check=False).count("mlx5_") == 8, 30)


def pod(name: str, space: str, args: list[str], host: str = "", **more: Any) -> dict[str, Any]:
    """A pod of our image, as root if it has a directory of the node at /fabric."""
    container: dict[str, Any] = {
        "name": name,
        "image": "localhost/ibpulse:campaign",
        "imagePullPolicy": "Never",
        **more,
    }
    container["args"] = args
    spec: dict[str, Any] = {"containers": [container], "automountServiceAccountToken": False}
    if host:
        container |= {"securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "fabric", "mountPath": "/fabric"}]}
        spec["volumes"] = [{"name": "fabric", "hostPath": {"path": host, "type": "DirectoryOrCreate"}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec}


def make_certificates(cluster: Cluster) -> None:
    """An authority, and a certificate of it as every Secret that the files of ci/ name."""
    keys = cluster.folder / "keys"
    keys.mkdir(exist_ok=True)
    sign(keys)
    (keys / "web.yml").write_text(
        "tls_server_config: {cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt,"
        " client_auth_type: RequireAndVerifyClientCert}\n"
    )
    for name in ("ibpulse-tls", "ibpulse-gateway-tls", "ibpulse-authority", "ibpulse-scrape", "ibpulse-web"):
        files = [f"--from-file={file}={keys / file}" for file in ("tls.crt", "tls.key", "ca.crt", "web.yml")]
        made = cluster.kubectl("create", "secret", "generic", name, "-n", SPACE, *files, "--dry-run=client", "-o=yaml")
        cluster.kubectl("apply", "--filename=-", text=made)


def sign(keys: Path) -> None:
    """Make a new certificate, and the authority if it is missing."""
    ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9"]
    usage = ["-addext", "keyUsage=critical,keyCertSign"]
    if not (keys / "ca.crt").exists():
        authority = ["req", "-x509", *ec, "-subj=/CN=authority", *usage, "-keyout=ca.key", "-out=ca.crt"]
        openssl(keys, *(word for each in authority for word in each.split("=", 1 if each[0] == "-" else 0)))
    openssl(keys, "req", *ec, "-subj", "/CN=ibpulse.example.com", "-keyout", "tls.key", "-out", "tls.csr")
    (keys / "names").write_text("subjectAltName=DNS:ibpulse.example.com\n")
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9", "-extfile", "names"]
    openssl(keys, "x509", "-req", "-in", "tls.csr", *signed, "-out", "tls.crt")


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@contextmanager
def installed(cluster: Cluster, *values: str, wait: bool = True) -> Iterator[None]:
    """The chart, ready unless told otherwise; afterwards nothing of it is left."""
    install(cluster, *values, wait=wait)
    try:
        yield
    finally:
        cluster.run("helm", "uninstall", "r", "-n", SPACE, "--wait", check=False)
        kinds = "daemonsets,deployments,pods,services,configmaps,secrets,serviceaccounts,networkpolicies,podmonitors"
        mine = ["-A", "--selector=app.kubernetes.io/instance=r", "--output=name"]
        cluster.kubectl("delete", "pod", "-n", SPACE, "r-ibpulse-test", "--ignore-not-found")
        eventually(lambda: not cluster.kubectl("get", f"{kinds},priorityclasses", *mine).strip(), 60)


def install(cluster: Cluster, *values: str, wait: bool = True) -> None:
    """Install or upgrade the chart, and wait until its pods are ready."""
    cluster.run("helm", "upgrade", "--install", "r", CHART, "-n", SPACE, *values, *OURS)
    if wait:
        cluster.kubectl("rollout", "status", "daemonset/r-ibpulse", "-n", SPACE, "--timeout=90s")
        if "r-ibpulse-gateway" in cluster.kubectl("get", "deployments", "-n", SPACE, "--output=name"):
            cluster.kubectl("rollout", "status", "deployment/r-ibpulse-gateway", "-n", SPACE, "--timeout=90s")


def daemon(cluster: Cluster) -> dict[str, Any]:
    """The newest pod of the DaemonSet."""
    found = cluster.get("pods", "-n", SPACE, "--selector=app.kubernetes.io/component=metrics")["items"]
    result: dict[str, Any] = max(found, key=lambda each: each["metadata"]["creationTimestamp"])
    return result


def restarts(cluster: Cluster) -> int:
    """How often the daemon's container was started again."""
    return int(daemon(cluster)["status"]["containerStatuses"][0]["restartCount"])


def ask(cluster: Cluster, path: str, *words: str, base: str = "") -> str:
    """What the daemon, or the server at an address, answers."""
    base = base or f"http://{daemon(cluster)['status']['podIP']}:10055"
    return cluster.run("curl", "-sS", "-m", "10", *words, f"{base}{path}", check=False)


def metrics(cluster: Cluster) -> Metrics:
    """The metrics of the daemon."""
    return Metrics.parse(ask(cluster, "/metrics"))


def gateway(cluster: Cluster) -> str:
    """The address of the gateway's Service."""
    service = cluster.get("service", "r-ibpulse-gateway", "-n", SPACE)
    return f"http://{service['spec']['clusterIP']}:10056"


def passes_test(cluster: Cluster) -> str:
    """Run `helm test`."""
    begin = time.monotonic()
    cluster.run("helm", "test", "r", "-n", SPACE, "--timeout=60s")
    return f"helm test {time.monotonic() - begin:.1f} s"
