"""Reads nodes with hostile job files and cgroups: `python -m tests.jobs.hostile_nodes SEED FIRST COUNT`.

Of the things FIRST to FIRST + COUNT, it prints how many there were of each kind, how many jobs were found, and the
memory that reading took. Whatever harms ends it with a stack trace that names the node, and so does a node that takes
longer than `HANG_SECONDS`. The same seed and number give the same node.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ibpulse.agent.jobs.owners import place_jobs
from ibpulse.agent.jobs.watch import JobsView, merge
from ibpulse.core.answers.jobs import JobsAnswer
from ibpulse.core.events import Event
from ibpulse.core.events.log import decode_event, encode_event
from ibpulse.core.jobs import Claim, job_details
from ibpulse.core.model import Fabric
from tests.jobs.job_nodes import ADDRESSES, UID, CaseView, NodeTree, Pages, pages_in, under
from tests.recordings.damage import damage
from tests.running import HANG_SECONDS

THINGS_OF_NODE = 20
# file systems take names of up to 255 bytes
MAX_NAME_BYTES = 255
GOOD = {"id": "good", "scheduler": "flux", "gpus": [ADDRESSES[0]], "devices": ["mlx5_7"]}
SCOPE = "system.slice/slurmstepd.scope"
NASTY = (
    *("\x00", "\n", "\r\n", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff", "\ud800", "\U0001f600", "é"),
    *('"', "\\", "{", "}", "'", "%s", "{0}", "..", "*", "$(reboot)", "<img src=x onerror=alert(1)>", "=cmd|' /C'!A0"),
    *("-1", "0", "99999999999999999999", "1e999", "NaN", "true", "null", "a" * 200, " ", "\t"),
)
NAMES = (
    *(b"42.json", b"0", b"7.1", b"job_4711", b"uid_1000", b"slurm", b"slurmstepd.scope", b"system.slice", b"freezer"),
    *(f"pod{UID}".encode(), f"kubepods-burstable-pod{under(UID)}.slice".encode(), b"kubepods.slice", b"burstable"),
)


def nasty_text(rng: random.Random) -> str:
    """A text that some program has taken badly."""
    return "".join(rng.choice(NASTY) for _ in range(rng.choice((1, 1, 2, 5, 30))))


def nasty_value(rng: random.Random, depth: int = 3) -> Any:
    """A value of JSON, or of what Python takes for it."""
    match rng.randrange(9 if depth else 6):
        case 0:
            return rng.choice((None, True, False))
        case 1:
            return rng.choice((0, -1, 42, 2**64, -(2**63), 10 ** rng.randrange(300)))
        case 2:
            return rng.choice((0.1, float("nan"), float("inf"), -0.0, 1e308))
        case 3:
            return rng.choice((ADDRESSES[1], ADDRESSES[2].upper(), "00000000:19:00.0", "mlx5_0", "slurm", "12"))
        case 6 | 7:
            return [nasty_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 3, 65)))]
        case 8:
            return {nasty_text(rng): nasty_value(rng, depth - 1) for _ in range(rng.randrange(4))}
        case _:
            return nasty_text(rng)


def nasty_document(rng: random.Random, name: str) -> bytes:
    """The content of a document about the job of this name, damaged in its bytes, members or values."""
    whole = {"id": name, "scheduler": rng.choice(("slurm", "flux", "a-b")), "gpus": [rng.choice(ADDRESSES)]}
    match rng.randrange(12):
        case 0:
            return rng.randbytes(rng.randrange(5000))
        case 1:
            return rng.choice((b"[", b'{"id":', b'{"a":[')) * rng.randrange(1, 4000)
        case 2 | 3:
            return damage(json.dumps(whole).encode(), rng)
        case 4:
            # each member by itself, so that some are given twice
            members = [*whole.items(), (rng.choice(("id", "name", "devices", "user")), nasty_value(rng))]
            rng.shuffle(members)
            return ("{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in members) + "}").encode()
        case 5 | 6:
            changed = {rng.choice(("name", "namespace", "scheduler", "devices")): nasty_text(rng)}
            return json.dumps(whole | changed).encode()
        case _:
            names = ("id", "scheduler", "name", "namespace", "gpus", "devices", "boot_id", nasty_text(rng))
            changed = {rng.choice(names): nasty_value(rng) for _ in range(rng.randrange(3))}
            return json.dumps(whole | changed, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")


def nasty_bytes(rng: random.Random, *usual: bytes) -> bytes:
    """The content of a mapping file or of a file of a cgroup."""
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.randrange(20_000))
        case 1:
            return rng.choice((*usual, b"\n", b" ")) * rng.choice((1, 50, 3000))
        case 2:
            return b"\n".join(nasty_text(rng).encode(errors="surrogatepass") for _ in range(rng.randrange(50)))
        case _:
            return damage(rng.choice(usual), rng)


def nasty_name(rng: random.Random, *usual: bytes) -> bytes:
    """A name that a file can have."""
    raw = rng.choice((*usual, *usual, *NAMES))
    if rng.random() < 0.3:
        raw = nasty_text(rng).encode(errors="surrogatepass")
    elif rng.random() < 0.7:
        raw = damage(raw, rng)
    raw = raw.replace(b"/", b"").replace(b"\0", b"")[:MAX_NAME_BYTES]
    return raw if raw not in (b"", b".", b"..") else b"\xff"


def put(folder: Path, name: bytes, content: bytes, rng: random.Random) -> None:
    """Something of this name: mostly a regular file of this content. What exists already stays."""
    path = folder / os.fsdecode(name)
    kind = rng.randrange(20)
    with contextlib.suppress(FileExistsError):
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.symlink_to(rng.choice(("good.json", "/dev/zero", "/proc/self/mem", path.name)))
        elif kind == 2:
            path.mkdir()
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(descriptor, content)
            if kind == 3:
                os.truncate(descriptor, 2**40)
            os.close(descriptor)


def add_document(node: NodeTree, rng: random.Random) -> None:
    """A document, sometimes under a name that no document has."""
    node.owners.mkdir(exist_ok=True)
    name = rng.choice(("42", "run-1", "a.b_c", "x" * 123, f"j{rng.randrange(1000)}"))
    content = nasty_document(rng, name)
    put(node.owners, nasty_name(rng, b"42.json") if rng.random() < 0.3 else f"{name}.json".encode(), content, rng)


def add_mapping(node: NodeTree, rng: random.Random) -> None:
    """A mapping file."""
    node.mapping.mkdir(exist_ok=True)
    name = nasty_name(rng, b"0", b"7.1") if rng.random() < 0.3 else str(rng.randrange(1, 12)).encode()
    put(node.mapping, name, nasty_bytes(rng, b"12", b"12\n13\n", b"a.b-c_d "), rng)


def add_cgroup(node: NodeTree, rng: random.Random) -> None:
    """A cgroup at a place where Slurm or the kubelet makes them, with files that the kernel would not write."""
    places = ("freezer", "freezer/slurm", "freezer/slurm/uid_1000", "rdma")
    if (node.cgroup / SCOPE).exists():
        places = ("", "kubepods.slice", "system.slice", SCOPE, SCOPE)
    parent = node.group(rng.choice(places))
    folder = parent / os.fsdecode(nasty_name(rng, *NAMES[3:]))
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    if folder.is_dir():
        for name, usual in (
            (b"cgroup.events", b"populated 0\nfrozen 0\n"),
            (b"rdma.current", b"mlx5_0 hca_handle=1\n"),
        ):
            if rng.random() < 0.5:
                put(folder, name, nasty_bytes(rng, usual), rng)


def add_pod(node: NodeTree, rng: random.Random) -> None:
    """A pod with something in place of its open devices."""
    uid = f"{rng.randrange(16**8):08x}{UID[8:]}"
    lines = (b"mlx5_0 hca_handle=1 hca_object=20\n", b"mlx5_1 hca_handle=max hca_object=0\n")
    put(node.group(f"kubepods/burstable/pod{uid}"), b"rdma.current", nasty_bytes(rng, *lines), rng)


KINDS: tuple[Callable[[NodeTree, random.Random], None], ...] = (
    *(add_document, add_document, add_mapping, add_cgroup, add_pod),
)


def build(seed: int, number: int, root: Path) -> tuple[NodeTree, Counter[str]]:
    """A node of hostile things beside a good document, mapping file and cgroup, and how many of each kind."""
    rng, node, counts = random.Random(f"{seed} {number}"), NodeTree(root), Counter[str]()
    node.document(**GOOD)
    node.map(gpu0="good-map-1")
    if rng.random() < 0.5:
        node.slurm("job_7/step_0")
    else:
        node.slurm_1("uid_1/job_7/step_0")
    for _ in range(THINGS_OF_NODE):
        add = rng.choice(KINDS)
        add(node, rng)
        counts[add.__name__] += 1
    return node, counts


def check(node: NodeTree, fabric: Fabric, pages: Pages) -> int:
    """Read the node and assert that nothing is harmed; the number of its jobs."""
    answers = node.read()
    merged = merge(answers)
    claims = merged.claims or ()
    placement = place_jobs(claims, fabric.ports, fabric.topology)
    view = JobsView(placement.jobs, merged.present, merged.pods, (*merged.remarks, *placement.remarks))
    by_id = {claim.id: claim for claim in claims}
    # what is good is found, whatever is beside it
    assert (by_id["good"].gpus, by_id["good"].devices) == ((ADDRESSES[0],), ("mlx5_7",))
    assert Claim("good-map-1", "slurm", "slurm-map", gpu_indexes=(0,)) in answers["slurm-map"].claims
    assert "7" in {claim.id for claim in answers["slurm-cgroup"].claims}
    for claim in claims:
        assert re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,127}", claim.id), claim
        assert all(re.fullmatch(r"[0-9a-f]{4,8}(:[0-9a-f]{2}){2}\.[0-7]", gpu) for gpu in claim.gpus), claim
        assert all(re.fullmatch("[A-Za-z0-9_.-]{1,64}", device) for device in claim.devices), claim
        assert len(claim.gpus) <= 64, claim
    assert all(found.whole for found in answers.values()), answers
    for notice in view.notices:
        assert not {unicodedata.category(sign) for sign in notice} & {"Cc", "Cs", "Zl", "Zp"}, notice
        assert notice.endswith("."), notice
        assert len(notice) < 5000, notice
    check_pages(CaseView(view, fabric.ports, node), pages)
    return len(claims)


def check_pages(view: CaseView, pages: Pages) -> None:
    """Both pages and the event log can be read by others, and are bounded."""
    samples = pages.samples(view)
    assert len(samples) <= 1 + len(view.ports) * (1 + 16)
    families = list(text_string_to_metric_families("\n".join(samples) + "\n"))
    assert sum(len(family.samples) for family in families) == len(samples)
    JobsAnswer.model_validate(pages.answer(view), strict=True)
    for job in view.jobs.jobs or ():
        event = Event(1, "job-began", "", f"job {job.claim.id} began", details=job_details(job))
        assert decode_event(encode_event(event).rstrip(b"\n")) == event


def examine(seed: int, first: int, count: int, place: Path) -> dict[str, int]:
    """Read the nodes of so many things; the counts, and the memory that they took, in bytes."""
    rails = NodeTree(place / "rails")
    fabric, outcomes = rails.add_rails(), Counter[str]()
    with pages_in(place) as pages:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(first // THINGS_OF_NODE, (first + count) // THINGS_OF_NODE):
            node, counts = build(seed, number, place / f"node-{number}")
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            try:
                outcomes["jobs"] += check(node, fabric, pages)
            except BaseException as error:
                error.add_note(f"node {number} of seed {seed}")
                raise
            outcomes += counts
            shutil.rmtree(node.root)
        faulthandler.cancel_dump_traceback_later()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {**outcomes, "grown_bytes": 1024 * grown}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        json.dump(examine(*map(int, sys.argv[1:4]), Path(name)), sys.stdout)
