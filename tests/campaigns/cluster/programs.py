"""`python -m tests.campaigns.cluster.programs`: builds Kubernetes from its source into a folder that keeps it.

That takes 13 minutes of one core, or 22 beside other work. The folder is `KUBERNETES_PROGRAMS`, or in `~/.cache`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

FOLDER = Path(os.environ.get("KUBERNETES_PROGRAMS") or Path.home() / ".cache/ibpulse-kubernetes")
VERSION = "1.36.3"
MODULES = f"v0.{VERSION.partition('.')[2]}"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
DNS, DNS_VERSION = "coredns", "v1.15.0"
POLICIES, POLICIES_VERSION = "kube-network-policies", "v0.8.0"
# its own main program has every plugin, which takes far longer to build
DNS_MAIN = """package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
"""


def build(folder: Path, names: tuple[str, ...] = PROGRAMS) -> None:
    """Build Kubernetes' own programs that the folder lacks."""
    missing = [name for name in names if not (folder / name).exists()]
    if not missing:
        return
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    imports = "".join(f'\t_ "k8s.io/kubernetes/cmd/{name}"\n' for name in PROGRAMS)
    (source / "main.go").write_text(f"//go:build programs\n\npackage main\n\nimport (\n{imports})\n")
    module = json.loads(_go(source, "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"))
    theirs = Path(module["GoMod"]).read_text()
    # what the repository has in a folder of its own is a module of its own elsewhere
    staged = [line.split()[0] for line in theirs.splitlines() if "=> ./staging/src/" in line]
    replaced = "".join(f"\t{name} => {name} {MODULES}\n" for name in staged)
    go = next(line for line in theirs.splitlines() if line.startswith("go "))
    (source / "go.mod").write_text(
        f"module programs\n\n{go}\n\ngodebug default=go1.26\n\n"
        f"require k8s.io/kubernetes v{VERSION}\n\nreplace (\n{replaced})\n"
    )
    _go(source, "mod", "tidy")
    major, minor, _ = VERSION.split(".")
    names_of = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
    stamped = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in names_of.items())
    flags = f"-ldflags=-s -w {stamped} -X k8s.io/client-go/pkg/version.gitVersion=v{VERSION}"
    for name in missing:
        _go(source, "build", flags, "-o", str(folder / name), f"k8s.io/kubernetes/cmd/{name}")


def build_network(folder: Path) -> None:
    """Build the name server and what enforces network policies."""
    if not (folder / DNS).exists():
        source = folder / "dns"
        source.mkdir(parents=True, exist_ok=True)
        (source / "main.go").write_text(DNS_MAIN)
        (source / "go.mod").write_text(f"module dns\n\ngo 1.26.0\n\nrequire github.com/coredns/coredns {DNS_VERSION}\n")
        _go(source, "mod", "tidy")
        _go(source, "build", "-ldflags=-s -w", "-o", str(folder / DNS), ".")
    if not (folder / POLICIES).exists():
        install(folder, f"sigs.k8s.io/kube-network-policies/cmd@{POLICIES_VERSION}")
        (folder / "cmd").rename(folder / POLICIES)


def build_all() -> None:
    """Build what the folder lacks of a cluster."""
    build(FOLDER)
    build_network(FOLDER)


def install(folder: Path, package: str) -> None:
    """Build the program of one package."""
    _go(folder, "install", package)


def _go(folder: Path, *arguments: str) -> str:
    """Run Go for programs in a folder; its output."""
    wanted = f"{os.environ.get('GOFLAGS', '')} -mod=mod -buildvcs=false".strip()
    environment = {**os.environ, "GOFLAGS": wanted, "GOWORK": "off", "GOBIN": str(folder)}
    done = subprocess.run(
        ["go", *arguments], cwd=folder, check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    return done.stdout


if __name__ == "__main__":
    build_all()
