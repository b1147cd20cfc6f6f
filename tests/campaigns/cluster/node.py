"""`python -m tests.campaigns.cluster.node FOLDER`: the first process of a node's namespaces; starts Kubernetes in them.

What it keeps is in the folder, so that the node can be started again. Nothing listens outside of the namespaces.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.campaigns.cluster.image import SANDBOX
from tests.campaigns.cluster.programs import FOLDER

ADDRESS, NAME, TOKEN, PODS = "10.99.0.1", "node1", "of-the-administrator", "10.244.0.0/24"
# what kubelet, containerd and CNI write to these places stays in the namespaces
OWN = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
SETUP = f"""
ip link set lo up
ip link add node0 type veth peer name node0peer
ip address add {ADDRESS}/24 dev node0
ip link set node0 up
ip link set node0peer up
ip route add default dev node0
sysctl -qw net.ipv4.ip_forward=1
iptables -t mangle -A POSTROUTING -s 10.244.0.1 -j ACCEPT
iptables -t mangle -A POSTROUTING -s {PODS} -m conntrack --ctstate NEW -j NFQUEUE --queue-num 100
iptables -t mangle -A POSTROUTING -d {PODS} ! -s 10.244.0.1 -m conntrack --ctstate NEW -j NFQUEUE --queue-num 100
iptables -t mangle -A INPUT -s {PODS} -m conntrack --ctstate NEW -j NFQUEUE --queue-num 100
"""
# restrict_oom_score_adj: no CAP_SYS_RESOURCE here
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""
COREFILE = """.:53 {{
  bind {address}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {folder}/kubeconfig c
  }}
}}
"""
NETWORK: dict[str, Any] = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def write_files(folder: Path) -> None:
    """Keys and settings of all programs."""
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "log").mkdir(exist_ok=True)
    if not (folder / "sa.key").exists():
        for words in (("genrsa", "-out", "sa.key", "2048"), ("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")):
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "address": ADDRESS,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "podLogsDir": f"{folder}/pods",
        "volumePluginDir": f"{folder}/plugins",
        "syncFrequency": "10s",
        "oomScoreAdj": 0,
        "failSwapOn": False,
        # the machine has other things on its disk
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
    access = {"server": f"https://{ADDRESS}:6443", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": access}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
    }
    for name, text in {
        "kubeconfig": json.dumps(config),
        "kubelet.yaml": json.dumps(kubelet),
        "cni/bridge.conflist": json.dumps(NETWORK),
        "tokens.csv": f'{TOKEN},admin,1,"system:masters"\n',
        "containerd.toml": CONTAINERD.format(folder=folder, sandbox=SANDBOX),
        "Corefile": COREFILE.format(folder=folder, address=ADDRESS),
        "resolv.conf": f"nameserver {ADDRESS}\n",
    }.items():
        (folder / name).write_text(text)


def commands(folder: Path) -> dict[str, list[str]]:
    """The programs with their flags, in the order of their start."""
    config, quiet = f"--kubeconfig={folder}/kubeconfig", ["--leader-elect=false", "--secure-port=0"]
    return {
        "containerd": [f"--config={folder}/containerd.toml"],
        "etcd": [
            f"--data-dir={folder}/etcd",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        ],
        "kube-apiserver": [
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            "--secure-port=6443",
            f"--cert-dir={folder}/certificates",
            "--service-account-issuer=https://kubernetes.default",
            f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder}/tokens.csv",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            # etcd 3.4 cannot stream lists
            "--feature-gates=WatchList=false",
        ],
        "kube-controller-manager": [
            config,
            *quiet,
            f"--service-account-private-key-file={folder}/sa.key",
            f"--root-ca-file={folder}/certificates/apiserver.crt",
            f"--cert-dir={folder}/certificates",
            f"--flex-volume-plugin-dir={folder}/plugins",
        ],
        "kube-scheduler": [config, *quiet],
        "kubelet": [
            f"--config={folder}/kubelet.yaml",
            config,
            f"--root-dir={folder}/kubelet",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
        ],
        "kube-proxy": [
            config,
            f"--hostname-override={NAME}",
            f"--cluster-cidr={PODS}",
            "--proxy-mode=iptables",
            "--conntrack-max-per-core=0",
        ],
        "coredns": [f"-conf={folder}/Corefile"],
        "kube-network-policies": ["--disable-nri", f"--hostname-override={NAME}", "--v=2"],
    }


def main() -> None:
    """Start everything, and wait for a signal."""
    folder = Path(sys.argv[1])
    for words in (("--make-rprivate", "/"), ("--make-rshared", "/")):
        subprocess.run(["mount", *words], check=True)
    for place in OWN:
        Path(place).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "own", place], check=True)
    write_files(folder)
    subprocess.run(["sh", "-ec", SETUP], check=True)
    own = {"KUBERNETES_SERVICE_HOST": ADDRESS, "KUBERNETES_SERVICE_PORT": "6443"}
    ready = ["kubectl", f"--kubeconfig={folder}/kubeconfig", "get", "--raw=/readyz"]
    path = f"{FOLDER}:{os.environ['PATH']}"
    os.environ["PATH"] = path
    for name, flags in commands(folder).items():
        if name == "kube-controller-manager":
            while subprocess.run(ready, capture_output=True, check=False).returncode:
                time.sleep(0.3)
            account = Path("/run/secrets/kubernetes.io/serviceaccount")
            account.mkdir(parents=True)
            (account / "token").write_text(TOKEN)
            (account / "ca.crt").write_bytes((folder / "certificates/apiserver.crt").read_bytes())
        environment = {**os.environ, **(own if name == "kube-network-policies" else {})}
        with (folder / "log" / f"{name}.log").open("ab") as log:
            subprocess.Popen([name, *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    (folder / "started").touch()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
