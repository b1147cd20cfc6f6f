"""What is checked of the chart on a running node: functions that return a figure, or raise."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests import ROOT
from tests.campaigns.chart.rendering import CHART
from tests.campaigns.cluster.cluster import CGROUPS, Cluster
from tests.campaigns.cluster.installation import (
    PORTS,
    SPACE,
    ask,
    daemon,
    gateway,
    install,
    installed,
    make_certificates,
    metrics,
    passes_test,
    pod,
    restarts,
)
from tests.campaigns.cluster.node import ADDRESS, TOKEN
from tests.running import eventually

PAGE = ROOT / "docs/kubernetes.md"
CHECKS: list[tuple[str, Callable[[Cluster], str]]] = []


def check(title: str) -> Callable[[Callable[[Cluster], str]], Callable[[Cluster], str]]:
    """Add a function to the checks."""

    def add(function: Callable[[Cluster], str]) -> Callable[[Cluster], str]:
        CHECKS.append((title, function))
        return function

    return add


@check("defaults, a node without ports: ready, helm test, nothing left")
def defaults(cluster: Cluster) -> str:
    begin = time.monotonic()
    with installed(cluster):
        seconds = time.monotonic() - begin
        assert "Ready" in ask(cluster, "/-/ready")
        return f"ready in {seconds:.0f} s, {passes_test(cluster)}, restarts {restarts(cluster)}"


@check("README.md and docs/kubernetes.md name this node")
def pages(cluster: Cluster) -> str:
    node = cluster.get("node", "node1")["status"]["nodeInfo"]
    (kubernetes,) = re.findall(r"v(\d+\.\d+)\.", node["kubeletVersion"])
    (runtime,) = re.findall(r"containerd://(\d+\.\d+)\.", node["containerRuntimeVersion"])
    groups = f"cgroup v{2 if (CGROUPS / 'cgroup.controllers').exists() else 1}"
    readme, page = ((ROOT / name).read_text().replace("\n", " ") for name in ("README.md", "docs/kubernetes.md"))
    assert f"one Kubernetes {kubernetes} node ({groups})" in readme
    assert f"builds Kubernetes {kubernetes} and our image" in page
    assert f"on one node (containerd {runtime}, {groups})" in page
    return f"Kubernetes {kubernetes}, containerd {runtime}, {groups}"


INSIDE = """
fields = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
mounts = [line.split()[4:6] for line in open("/proc/self/mountinfo")]
below = [options for place, options in mounts if place.startswith("/host/sys/")]
root = next(options for place, options in mounts if place == "/")
print(fields["Uid"].split()[1], fields["CapEff"].strip(), fields["NoNewPrivs"].strip(), fields["Seccomp"].strip(),
      root.split(",")[0], sum(options.startswith("rw") for options in below), len(below))
"""


@check("security context, seen inside; jobs from cgroups of pods")
def inside(cluster: Cluster) -> str:
    with installed(cluster):
        run = ["exec", "-n", SPACE, "daemonset/r-ibpulse", "--", "/usr/bin/python3", "-c", INSIDE]
        user, capabilities, no_new, seccomp, root, writable, below = cluster.kubectl(*run).split()
        assert (user, int(capabilities, 16), no_new, seccomp, root) == ("65532", 0, "1", "2", "ro")
        uid = daemon(cluster)["metadata"]["uid"]
        eventually(lambda: uid in ask(cluster, "/api/v1/jobs"), 30)
        return f"uid 65532, no capability, root read-only; {writable} of {below} mounts below /host/sys rw"


@check("sysfs.recursiveReadOnly: Enabled, which starts with no writable mount below /sys or not at all")
def recursive(cluster: Cluster) -> str:
    def outcome() -> str:
        with suppress(ValueError):  # no pod yet
            (status, *_) = daemon(cluster)["status"].get("containerStatuses") or [{}]
            if status.get("ready"):
                run = ["exec", "-n", SPACE, "daemonset/r-ibpulse", "--", "/usr/bin/python3", "-c", INSIDE]
                assert cluster.kubectl(*run).split()[5] == "0"
                return "started"
            return str(status.get("state", {}).get("waiting", {}).get("message", ""))
        return ""

    with installed(cluster, "--set=sysfs.recursiveReadOnly=Enabled", wait=False):
        return eventually(outcome, 60)


@check("eight ports: samples in the pod's cgroup, 30 s")
def samples(cluster: Cluster) -> str:
    with installed(cluster, *PORTS):
        eventually(lambda: ask(cluster, "/metrics").count("\nibpulse_port_info{") == 8, 30)
        ticks, missed, throttled = sampled(cluster)
        assert ticks > 2000
        share = missed / (ticks + missed)
        return f"{ticks:.0f} samples, {missed:.0f} missed ({share:.1%}), {throttled:.0f} times throttled"


@check("CPU limits of 200m and 100m, 30 s each")
def cpu_limits(cluster: Cluster) -> str:
    said = []
    for limit in ("200m", "100m"):
        with installed(cluster, *PORTS, f"--set=resources.limits.cpu={limit}"):
            time.sleep(15)  # starting is throttled, too
            before = pod_throttled(cluster)
            ticks, missed, throttled = sampled(cluster)
            periods = f"throttled {throttled:.0f} times, its pod's cgroup {pod_throttled(cluster) - before}"
            said.append(f"{limit}: {missed / (ticks + missed):.1%} missed, {periods}")
    return "; ".join(said)


def pod_throttled(cluster: Cluster) -> int:
    """Periods in which the daemon's pod was throttled by the quota that it has besides that of its container."""
    return int((re.search(r"nr_throttled (\d+)", (group_of(cluster, "cpu") / "cpu.stat").read_text()) or [0, 0])[1])


def sampled(cluster: Cluster, seconds: int = 30) -> tuple[float, float, float]:
    """Samples, missed samples and throttled periods of some seconds."""
    names = [f"ibpulse_{name}_total" for name in ("sampler_ticks", "sampler_missed_ticks", "cgroup_throttled_periods")]
    before = metrics(cluster)
    time.sleep(seconds)
    after = metrics(cluster)
    ticks, missed, throttled = (sum(after.find(each).values()) - sum(before.find(each).values()) for each in names)
    return ticks, missed, throttled


@check("gateway: the node by its name, its pages and metrics through the Service")
def through_gateway(cluster: Cluster) -> str:
    with installed(cluster, *PORTS, "--set=gateway.enabled=true"):
        base = gateway(cluster)
        eventually(lambda: '"node":"node1"' in ask(cluster, "/api/v1/nodes", base=base), 30)
        for path in ("/", "/node/node1/", "/metrics"):
            code = ask(cluster, path, "-o", "/dev/null", "-w", "%{http_code}", base=base)
            assert code == "200", (path, code)
        seen = watch_names(
            cluster, base, lambda: cluster.kubectl("delete", "pod", "-n", SPACE, daemon(cluster)["metadata"]["name"])
        )
        return f"replaced pod: node1 gone or silent for {seen:.1f} s"


def watch_names(cluster: Cluster, base: str, change: Callable[[], object]) -> float:
    """Seconds from a change until the node is well again; it never has another name."""
    change()
    begin = time.monotonic()
    while True:
        listed = json.loads(ask(cluster, "/api/v1/nodes", base=base))["nodes"]
        assert [each["node"] for each in listed] in ([], ["node1"]), listed
        age = time.monotonic() - begin
        if age > 3 and listed and not listed[0]["problem"]:
            return age
        assert age < 40, listed
        time.sleep(0.2)


GAP = """
import json, ssl, sys, time, urllib.request
server, token, space, seconds = sys.argv[1:]
url, anyone = f"{server}/api/v1/namespaces/{space}/pods", ssl._create_unverified_context()
begin = last = time.monotonic()
gap = 0.0
while time.monotonic() - begin < float(seconds):
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    for pod in json.load(urllib.request.urlopen(asked, context=anyone))["items"]:
        try:
            body = urllib.request.urlopen(f"http://{pod['status']['podIP']}:10055/metrics", timeout=0.5).read()
        except (OSError, KeyError):
            continue
        if b"\\nibpulse_port_info{" in body:
            gap, last = max(gap, time.monotonic() - last), time.monotonic()
    time.sleep(0.1)
print(max(gap, time.monotonic() - last))
"""


def gap_of(cluster: Cluster, change: Callable[[], object], seconds: int = 25) -> float:
    """The longest time without metrics of ports while something changes."""
    words = [sys.executable, "-c", GAP, f"https://{ADDRESS}:6443", TOKEN, SPACE, str(seconds)]
    process = subprocess.Popen(cluster.command(*words), stdout=subprocess.PIPE, text=True)
    time.sleep(3)
    change()
    return float(process.communicate()[0])


@check("update, one pod after the other and with maxSurge")
def update(cluster: Cluster) -> str:
    again = "--set-string=podAnnotations.update"
    surge = ["--set=updateStrategy.rollingUpdate.maxSurge=1", "--set=updateStrategy.rollingUpdate.maxUnavailable=0"]
    with installed(cluster, *PORTS):
        eventually(lambda: "\nibpulse_port_info{" in ask(cluster, "/metrics"), 30)
        plain = gap_of(cluster, lambda: install(cluster, *PORTS, f"{again}=1"))
        install(cluster, *PORTS, f"{again}=1", *surge)
        surged = gap_of(cluster, lambda: install(cluster, *PORTS, f"{again}=2", *surge))
        assert surged < plain < 15
        return f"no metrics for {plain:.1f} s, with maxSurge {surged:.1f} s"


@check("kill -9 of the daemon, SIGSTOP of the sampler")
def killed(cluster: Cluster) -> str:
    with installed(cluster, *PORTS):
        time.sleep(10)
        before = metrics(cluster).value("ibpulse_sampler_ticks_total")
        (pid, *_) = cluster.pids("ibpulse serve --config.file")
        cluster.signal(pid, signal.SIGKILL)
        begin = time.monotonic()
        eventually(lambda: restarts(cluster) == 1, 60)
        eventually(lambda: "\nibpulse_port_info{" in ask(cluster, "/metrics"), 60)
        back = time.monotonic() - begin
        assert metrics(cluster).value("ibpulse_sampler_ticks_total") > before, "its samples are lost"
        sampler = cluster.pids("ibpulse.agent.sampler")[-1]
        cluster.signal(sampler, signal.SIGSTOP)
        eventually(lambda: sampler not in cluster.pids("ibpulse.agent.sampler"), 30)
        assert restarts(cluster) == 1
        return f"back after {back:.1f} s with its samples; a stopped sampler is replaced without a restart"


def group_of(cluster: Cluster, controller: str = "memory") -> Path:
    """The cgroup of the daemon's pod."""
    uid = daemon(cluster)["metadata"]["uid"]
    for root in (CGROUPS / controller, CGROUPS):
        for found in root.glob(f"**/kubepods*/**/*{uid}*"):
            return found
    raise AssertionError(f"no cgroup of {uid}")


def peak(group: Path) -> float:
    """The most memory that it took, in MiB."""
    found = [group / name for name in ("memory.peak", "memory.max_usage_in_bytes") if (group / name).exists()]
    return int(found[0].read_text()) / 2**20


def held(group: Path) -> float:
    """The memory that it holds and that the kernel cannot take back, in MiB: no pages of files but those of tmpfs."""
    found = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    names = ("total_rss", "total_shmem") if "total_rss" in found else ("anon", "shmem")
    return sum(int(found[name]) for name in names) / 2**20


@check("memory of eight ports, normally and while a capture is written: at most what docs/kubernetes.md says")
def memory_table(cluster: Cluster) -> str:
    (row,) = re.findall(r"(?m)^\| 8 \| \d+ to (\d+) MiB \| \d+ to (\d+) MiB \|$", PAGE.read_text())
    normally, capturing = map(int, row)
    with installed(cluster, *PORTS, "--set=config.capture.allow-unauthenticated=true"):
        time.sleep(75)  # a capture has the minute before it
        group = group_of(cluster)
        normal = held(group)
        seen, over = [normal], threading.Event()

        def watch() -> None:
            while not over.wait(0.005):
                seen.append(held(group))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            ask(cluster, "/api/v1/captures", "-d", '{"reason":"campaign","after":"1s"}')
            eventually(lambda: json.loads(ask(cluster, "/api/v1/captures"))["captures"], 60)
        finally:
            over.set()
            watcher.join()
        figure = f"{normal:.0f} of {normally} MiB, {max(seen):.0f} of {capturing} MiB"
        # memory differs from start to start by some megabytes
        assert 0.75 * normally < normal < 1.05 * normally, figure
        assert normal < max(seen) < 1.05 * capturing, figure
        return figure


@check("memory during a capture; with too little, the daemon lives")
def memory(cluster: Cluster) -> str:
    values = [*PORTS, "--set=config.capture.allow-unauthenticated=true", "--set=resources.requests.memory=64Mi"]
    said = []
    for limit in (192, 112, 104, 96):
        with installed(cluster, *values, f"--set=resources.limits.memory={limit}Mi"):
            time.sleep(30)
            normal = peak(group_of(cluster))
            posted = ask(cluster, "/api/v1/captures", "-d", '{"reason":"campaign","after":"1s"}')
            assert '"ready_ms"' in posted, posted
            eventually(lambda: not json.loads(ask(cluster, "/api/v1/captures"))["pending"], 60)
            taken = len(json.loads(ask(cluster, "/api/v1/captures"))["captures"])
            assert restarts(cluster) == 0, f"the daemon ended with {limit} MiB ({'; '.join(said)})"
            errors = metrics(cluster).value("ibpulse_capture_errors_total")
            assert taken + errors == 1
            said.append(f"{limit}: {normal:.0f} to {peak(group_of(cluster)):.0f}{'' if taken else ', refused'}")
    return f"MiB {'; '.join(said)}"


@check("mutual TLS, and a renewed certificate")
def mutual_tls(cluster: Cluster) -> str:
    keys = cluster.folder / "keys"
    with installed(cluster, f"--values={CHART}/ci/mutual-tls-values.yaml", *PORTS):
        address = daemon(cluster)["status"]["podIP"]
        base = "https://ibpulse.example.com:10055"
        trusted = ["--cacert", f"{keys}/ca.crt", "--resolve", f"ibpulse.example.com:10055:{address}"]
        ours = [*trusted, "--cert", f"{keys}/tls.crt", "--key", f"{keys}/tls.key"]
        assert "ibpulse_build_info" in ask(cluster, "/metrics", *ours, base=base)
        assert "ibpulse_build_info" not in ask(cluster, "/metrics", *trusted, base=base)
        passes_test(cluster)
        script = f"openssl s_client -connect {address}:10055 </dev/null 2>/dev/null | openssl x509 -noout -serial"

        def serial() -> str:
            return cluster.run("sh", "-c", script, check=False)

        old = serial()
        make_certificates(cluster)
        begin = time.monotonic()
        eventually(lambda: "serial=" in (new := serial()) and new != old, 150, 1)
        assert restarts(cluster) == 0
        return f"refused without a certificate; a renewed one is used after {time.monotonic() - begin:.0f} s"


ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"


def reaches(cluster: Cluster, space: str, url: str) -> bool:
    """Whether a pod in a namespace gets an answer."""
    cluster.kubectl("delete", "pod", "asker", "-n", space, "--ignore-not-found")
    asker = pod("asker", space, ["-c", ASK, url], command=["/usr/bin/python3"])
    asker["spec"]["restartPolicy"] = "Never"
    cluster.apply(asker)

    def phase() -> str:
        return cluster.kubectl("get", "pod", "asker", "-n", space, "-o=jsonpath={.status.phase}")

    return eventually(lambda: phase() in ("Succeeded", "Failed") and phase(), 60) == "Succeeded"


CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"


def connects(cluster: Cluster, workload: str, address: str, port: int) -> bool:
    """Whether a pod of the chart can open a connection."""
    run = ["exec", "-n", SPACE, workload, "--", "/usr/bin/python3", "-c", CONNECT, address, str(port)]
    said = cluster.kubectl(*run, check=False)
    assert not said or "TimeoutError" in said, said
    return not said


@check("network policies, enforced: what the daemon and the gateway reach")
def egress(cluster: Cluster) -> str:
    found = {}
    for enforced in (False, True):
        switches = [f"--set={each}networkPolicy.enabled={str(enforced).lower()}" for each in ("", "gateway.")]
        with installed(cluster, *PORTS, "--set=gateway.enabled=true", "--set=gateway.replicas=1", *switches):
            pods = cluster.get("pods", "-n", SPACE, "--selector=app.kubernetes.io/instance=r")["items"]
            at = {each["metadata"]["labels"]["app.kubernetes.io/component"]: each["status"]["podIP"] for each in pods}
            ways = {
                "daemon to gateway": ("daemonset/r-ibpulse", at["gateway"], 10056),
                "daemon to API server": ("daemonset/r-ibpulse", ADDRESS, 6443),
                "gateway to daemon": ("deployment/r-ibpulse-gateway", at["metrics"], 10055),
                "gateway to API server": ("deployment/r-ibpulse-gateway", ADDRESS, 6443),
            }
            found[enforced] = [name for name, way in ways.items() if connects(cluster, *way)]
    assert found[False] == list(ways), found
    assert found[True] == ["gateway to daemon"], found
    return f"{', '.join(found[True])}, and nothing else of {', '.join(ways)}"


@check("network policies, enforced: permitted clients, helm test and the gateway, and nobody else")
def policies(cluster: Cluster) -> str:
    peer = 'networkPolicy.from=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]'
    with installed(cluster, *PORTS, f"--set-json={peer}", "--set=gateway.enabled=true"):
        url = f"http://{daemon(cluster)['status']['podIP']}:10055/-/ready"
        assert reaches(cluster, "monitoring", url)
        assert not reaches(cluster, "grafana", url)
        said = passes_test(cluster)
        base = gateway(cluster)
        eventually(lambda: '"node":"node1"' in ask(cluster, "/api/v1/nodes", base=base), 30)
        return f"refused from another namespace; {said}"


@check("Pod Security: baseline and restricted refuse the node's pod alone; helm test says so")
def pod_security(cluster: Cluster) -> str:
    said, mine = [], ["-n", SPACE, "--selector=app.kubernetes.io/component=gateway"]
    for level in ("baseline", "restricted"):
        cluster.kubectl("label", "--overwrite", "namespace", SPACE, f"pod-security.kubernetes.io/enforce={level}")
        try:
            with installed(cluster, "--set=gateway.enabled=true", wait=False):
                # without nodes it is not ready
                eventually(lambda: "Running" in cluster.kubectl("get", "pods", *mine), 60)
                events = cluster.kubectl("get", "events", "-n", SPACE, "--field-selector=reason=FailedCreate")
                assert re.search(rf'"{level}:latest": .*"sysfs"', events), events
                tested = cluster.run("helm", "test", "r", "-n", SPACE, "--timeout=20s", "--logs", check=False)
                assert "no pods: " in tested, tested
                said.append(level)
        finally:
            cluster.kubectl("label", "--overwrite", "namespace", SPACE, "pod-security.kubernetes.io/enforce=privileged")
    return f"{' and '.join(said)}: the gateway runs"


def case(name: str, values: str) -> tuple[str, Callable[[Cluster], str]]:
    """The check of an example."""

    def run(cluster: Cluster) -> str:
        path = cluster.folder / "values.yaml"
        path.write_text(values)
        extra = []
        if "network-operator" in name:
            extra = ["--set=captures.hostPath=/run/captures", "--set=priorityClassName=system-node-critical"]
            cluster.run("install", "-d", "-m", "0770", "-o", "65532", "-g", "65532", "/run/captures")
            labels = (
                "feature.node.kubernetes.io/pci-15b3.present=true",
                "network.nvidia.com/operator.mofed.wait=false",
            )
            cluster.kubectl("label", "--overwrite", "node", "node1", *labels)
        with installed(cluster, f"--values={path}", *PORTS, *extra):
            return f"ready, {passes_test(cluster)}, restarts {restarts(cluster)}"

    return name, run


# openshift needs OpenShift, everything images and a volume that are not here
CHECKS += [
    case(f"ci/{path.name}", path.read_text())
    for path in sorted((CHART / "ci").glob("*.yaml"))
    if path.name.partition("-")[0] not in ("default", "openshift", "everything")
]
CHECKS += [
    case(f"docs/kubernetes.md, example {number}", values)
    for number, values in enumerate(re.findall(r"```yaml\n(image:.*?)```", PAGE.read_text(), re.DOTALL), 1)
]


@check("restart of the node")
def node_restart(cluster: Cluster) -> str:
    with installed(cluster):
        cluster.stop()
        seconds = cluster.start()
        begin = time.monotonic()
        eventually(lambda: "Ready" in ask(cluster, "/-/ready"), 120, 0.5)
        return f"node ready after {seconds:.0f} s, the daemon {time.monotonic() - begin:.0f} s later"
