"""`python -m tests.campaigns.cluster.image`: builds the image, runs it as Kubernetes would, and prints its size.

Its bases are Debian 13 with Python, made by debootstrap, because no registry of images is needed then; they are kept.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests import ROOT
from tests.campaigns.cluster.programs import FOLDER
from tests.campaigns.vm.packages import KEYRING, read_mirror

IMAGE, SANDBOX, BASES = "localhost/ibpulse:campaign", "localhost/sandbox:1", {"run": "python3", "build": "python3-pip"}
AUTHORITIES = "etc/ssl/certs/ca-certificates.crt"
"""Of the machine: an index of packages may have a certificate of its own."""
# what Kubernetes' restricted level asks for, and the chart sets
RESTRICTED = ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--network=none")
# no more than the machine allows; podman would raise them
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
LARGEST = 12


def engine() -> str:
    """Podman or Docker, whichever is there."""
    found = shutil.which("podman") or shutil.which("docker")
    if not found:
        raise SystemExit("neither podman nor docker is there: run tests/campaigns/install")
    return found


def call(*arguments: str | Path, text: str = "", check: bool = True) -> str:
    """Run the engine; its output."""
    # of cgroups that mix versions 1 and 2, podman's crun knows nothing
    runtime = ["--runtime=runc"] if "podman" in engine() and shutil.which("runc") else []
    done = subprocess.run([engine(), *runtime, *arguments], input=text, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + ("" if check else done.stderr)


def make_bases(folder: Path = FOLDER) -> dict[str, str]:
    """Names of the images with Python, and with pip as well."""
    for name, package in BASES.items():
        archive, base = folder / f"base-{name}.tar", f"localhost/ibpulse-base:{name}"
        if not archive.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="ibpulse-base-") as scratch:
                options = ["--variant=minbase", f"--keyring={KEYRING}", f"--include={package}"]
                made = ["debootstrap", *options, "trixie", scratch, read_mirror()]
                subprocess.run(made, check=True, capture_output=True)
                Path(scratch, AUTHORITIES).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(f"/{AUTHORITIES}", f"{scratch}/{AUTHORITIES}")
                left_out = [f"--exclude=./{path}" for path in ("var/cache/apt/*", "var/lib/apt/*", "dev/*", "proc/*")]
                subprocess.run(["tar", *left_out, "-C", scratch, "-cf", f"{archive}.new", "."], check=True)
            Path(f"{archive}.new").replace(archive)
        if not call("images", "--quiet", base):
            # Debian's pip neither installs beside Debian's own packages nor replaces them unless it is told to
            pip = ("PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_IGNORE_INSTALLED=1", f"PIP_CERT=/{AUTHORITIES}")
            call("import", *(f"--change=ENV {each}" for each in pip if name == "build"), archive, base)
    return {name: f"localhost/ibpulse-base:{name}" for name in BASES}


def build() -> None:
    """Build the image of this checkout, and the one that holds the namespaces of a pod."""
    bases = make_bases()
    arguments = [f"--build-arg={name.upper()}_BASE={base}" for name, base in bases.items()]
    isolated = ["--isolation=chroot"] if "podman" in engine() else []
    call("build", *isolated, "--network=host", *arguments, "--file", ROOT / "docker/Dockerfile", "--tag", IMAGE, ROOT)
    with tempfile.TemporaryDirectory() as empty:
        text = f'FROM {bases["run"]}\nUSER 65535:65535\nENTRYPOINT ["/usr/bin/sleep", "infinity"]\n'
        call("build", *isolated, "--file=-", "--tag", SANDBOX, empty, text=text)


def layers() -> list[tuple[str, int]]:
    """Each layer of the image, by what made it, and its bytes as an archive has them."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "image.tar")
        call("save", "--output", archive, IMAGE)
        with tarfile.open(archive) as members:
            manifest = json.load(members.extractfile("manifest.json") or sys.stdin)
            sizes = [members.getmember(name).size for name in manifest[0]["Layers"]]
            config = json.load(members.extractfile(manifest[0]["Config"]) or sys.stdin)
    assert config["config"]["User"] == "65532:65532"
    made = [each.get("created_by", "") for each in config["history"] if not each.get("empty_layer")]
    return list(zip((text.removeprefix("/bin/sh -c #(nop) ") for text in made), sizes, strict=True))


# a node, a recording of it, and what reads recordings: all that needs a library of the image
WORK = """
import os, subprocess, sys, time
os.environ["HOME"] = "/tmp"
def run(*words):
    subprocess.run([sys.executable, "-m", "ibpulse", *words], check=True, stdout=subprocess.DEVNULL)
node = subprocess.Popen([sys.executable, "-m", "ibpulse", "demo", "--web.listen-address=127.0.0.1:10055"],
                        stdout=subprocess.DEVNULL)
run("record", "/tmp/a.parquet", "--duration=5s", "--url=http://127.0.0.1:10055")
node.terminate()
run("report", "/tmp/a.parquet")
run("render", "/tmp/a.parquet", "-o", "/tmp/a.perfetto")
root, found = "/opt/ibpulse", {}
for folder, _, files in os.walk(root):
    for name in files:
        path = os.path.join(folder, name)
        part = os.path.relpath(path, root).split(os.sep)[0]
        found[part] = found.get(part, 0) + os.lstat(path).st_size
for name, size in sorted(found.items(), key=lambda item: -item[1]):
    print(size, name)
"""


def main() -> int:
    """Build, run as the chart does, and print the sizes."""
    build()
    run = ["run", "--rm", *RESTRICTED, *LIMITS]
    version = call(*run, IMAGE, "--version").strip()
    listed = call(*run, "--tmpfs=/tmp", "--entrypoint=/usr/bin/python3", IMAGE, "-c", WORK).splitlines()
    found = layers()
    print(f"{version}, recorded, reported and rendered in it: {sum(size for _, size in found) / 1e6:.0f} MB")
    for made, size in found:
        print(f"{size / 1e6:8.1f} MB  {made[:60]}")
    print("of which in /opt/ibpulse")
    for size, name in (line.split(" ", 1) for line in listed[:LARGEST]):
        print(f"{int(size) / 1e6:8.1f} MB  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
