"""The bundle: nothing that names the node is in it, and its tree is the same fabric again."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ibpulse.doctor.bundle import TOP, Contents, write_bundle
from ibpulse.doctor.tree_copy import TreeCopy, copy_tree
from ibpulse.errors import ConfigError
from ibpulse.events import Event
from ibpulse.model import Fabric, Port
from ibpulse.sysfs.inventory import Inventory
from tests.archives import extract
from tests.families.table import FAMILIES, Family
from tests.sysfs.drivers import COMPAT_VIEW
from tests.sysfs.opened import Opened
from tests.sysfs.trees import EFA_DEVICE_HW, MLX5_FILES, PortFiles, Tree, make_hang, make_unreadable, release, roce

HOST = "gpu-node-17"
GUIDS = ("b8ce:f603:00aa:bb00", "b8ce:f603:00aa:bb01")
SECRETS = (
    *(HOST, "b8cef603", "b8ce:f6", "10.11.12.13", "2a00:1450", "b8:ce:f6:aa:bb:00", "example.com"),
    *GUIDS,
)


def bundle(tree: TreeCopy, path: Path, **changes: Any) -> Path:
    contents = Contents(
        tree,
        page=f"ibpulse on {HOST}.example.com, GID fe80:0000:0000:0000:{GUIDS[0]}\n",
        document={"sysfs": f"/srv/{HOST}", "findings": [{"subject": "mlx5_0", "sentence": f"has {GUIDS[1]}."}]},
        settings={"web": {"listen-address": "10.11.12.13:10055"}, "ring": {"dir": f"/run/{HOST}"}},
        versions={"kernel": "6.8.0", "mac": "b8:ce:f6:aa:bb:00", "peer": "2a00:1450::1"},
        hosts=(f"{HOST}.example.com",),
    )
    write_bundle(path, replace(contents, **changes))
    return path


def copy(tree: Tree | Path) -> TreeCopy:
    root = tree if isinstance(tree, Path) else tree.root
    fabric = Inventory(root).scan()
    return copy_tree(root, fabric, sorted(path.name for path in (root / "class/infiniband").iterdir()))


def unpack(path: Path, into: Path) -> Path:
    with tarfile.open(path) as archive:
        extract(archive, into)
    return into / TOP


def files_of(guid: str) -> Mapping[str, str]:
    return MLX5_FILES | {"node_guid": f"{guid}\n", "sys_image_guid": f"{guid}\n", "node_desc": f"{HOST} mlx5_0\n"}


@pytest.fixture
def node(tree: Tree) -> Tree:
    """A node with a rail, a RoCE port on a bond, an EFA device and a port of which files refuse."""
    tree.add("mlx5_0", files=files_of(GUIDS[0]), pci="0000:18:00.0")
    tree.add("mlx5_1", {1: roce("bond0")}, files=files_of(GUIDS[1]), pci="0000:19:00.0")
    tree.add_netdev("bond0", "800000\n", bonding=True)
    efa = PortFiles(
        rate="100 Gb/sec (4X EDR)\n",
        link_layer="Unknown\n",
        counters=None,
        hw_counters={"tx_bytes": "700\n", "rx_bytes": "900\n", "lifespan": "12\n"},
    )
    tree.add("rdmap144s27", {1: efa}, driver="efa", files={}, pci="0000:1a:00.0", hw_counters=EFA_DEVICE_HW)
    tree.add("mlx5_3", files=files_of("0000:0000:0000:0000"), pci="0000:1b:00.0")
    for name in ("port_xmit_data", "VL15_dropped"):
        make_unreadable(tree.port("mlx5_3") / "counters" / name)
    return tree


def anonymous(fabric: Fabric) -> list[Port]:
    """The ports without what a bundle replaces: the GUID, the place of the files, the words of an error."""
    return [
        replace(
            port,
            identity=replace(port.identity, guid=""),
            source=port.source and replace(port.source, transmit=(), receive=()),
            problem="there is one" if port.problem else "",
        )
        for port in fabric.ports
    ]


def test_the_tree_of_a_bundle_is_the_same_fabric(node: Tree, tmp_path: Path) -> None:
    unpacked = unpack(bundle(copy(node), tmp_path / "b.tar.gz"), tmp_path / "out")
    before, after = Inventory(node.root).scan(), Inventory(unpacked / "sys").scan()
    assert anonymous(after) == anonymous(before)
    assert after.topology == before.topology
    assert len(before.ports) == 4
    guids = {port.identity.guid for port in after.ports}
    assert guids.isdisjoint(GUIDS)
    assert "0000:0000:0000:0000" in guids


def test_nothing_that_names_the_node_is_in_a_bundle(node: Tree, tmp_path: Path) -> None:
    path = bundle(copy(node), tmp_path / f"{HOST}.tar.gz")
    raw = gzip.decompress(path.read_bytes())
    for data in (raw, path.read_bytes()):
        for secret in SECRETS:
            assert secret.lower().encode() not in data.lower(), secret
    with tarfile.open(path) as archive:
        names = [name for member in archive for name in (member.name, member.linkname)]
    assert not [name for name in names for secret in SECRETS if secret in name]


def test_the_same_original_has_the_same_pseudonym_everywhere(node: Tree, tmp_path: Path) -> None:
    unpacked = unpack(bundle(copy(node), tmp_path / "b.tar.gz"), tmp_path / "out")
    port = unpacked / "sys/class/infiniband/mlx5_0"
    made = (port / "node_guid").read_text().strip()
    assert (port / "sys_image_guid").read_text().strip() == made
    assert f"GID fe80:0000:0000:0000:{made}" in (unpacked / "doctor.txt").read_text()
    sentence = json.loads((unpacked / "doctor.json").read_text())["findings"][0]["sentence"]
    assert (unpacked / "sys/class/infiniband/mlx5_1/node_guid").read_text().strip() in sentence
    host = re.search(r"host-[0-9a-f]{8}", (unpacked / "doctor.txt").read_text())
    assert host is not None
    assert yaml.safe_load((unpacked / "settings.yaml").read_text())["ring"]["dir"] == f"/run/{host.group()}"


def test_files_that_refuse_are_named_with_the_reason(node: Tree, tmp_path: Path) -> None:
    unpacked = unpack(bundle(copy(node), tmp_path / "b.tar.gz"), tmp_path / "out")
    listed = json.loads((unpacked / "unreadable.json").read_text())
    assert {path.rpartition("/")[2]: reason for path, reason in listed.items()} == {
        "port_xmit_data": "cannot be read: Invalid argument",
        "VL15_dropped": "cannot be read: Invalid argument",
    }
    assert all((unpacked / "sys" / path).read_text() == "N/A (no PMA)\n" for path in listed)


def test_links_of_a_bundle_stay_inside_it(node: Tree, tmp_path: Path) -> None:
    with tarfile.open(bundle(copy(node), tmp_path / "b.tar.gz")) as archive:
        links = [member for member in archive if member.issym()]
    assert links
    for link in links:
        assert not link.linkname.startswith("/")
        assert (Path("/") / link.name).parent.joinpath(link.linkname).resolve().is_relative_to(f"/{TOP}/sys")


def test_a_bundle_is_for_its_owner_alone(node: Tree, tmp_path: Path) -> None:
    assert bundle(copy(node), tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600


def test_no_counter_of_a_device_itself_is_ever_opened(tree: Tree, tmp_path: Path, opened: Opened) -> None:
    tree.add("rdmap144s27", {1: COMPAT_VIEW}, driver="efa", files={}, hw_counters=EFA_DEVICE_HW)
    tree.add("rdmap145s27", driver="efa", files={}, hw_counters=EFA_DEVICE_HW, pci="0000:19:00.0")
    opened.clear()
    found = copy(tree)
    files = {path for path in (*opened.paths(), *found.files) if re.search(r"infiniband/[^/]+/hw_counters/", path)}
    assert files == set()
    # that the folder exists tells that the driver counts by device
    assert any(path.endswith("rdmap145s27/hw_counters") for path in found.folders)


def test_the_file_that_renews_the_cache_is_read_first(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0")
    fabric = Inventory(tree.root).scan()
    opened.clear()
    copy_tree(tree.root, fabric, ["mlx5_0"])
    files = [path for path in opened.paths() if "/ports/1/hw_counters/" in path]
    assert files[0].endswith("/rx_write_requests")


def test_a_device_that_hangs_is_named_and_the_others_are_kept(node: Tree, tmp_path: Path) -> None:
    path = node.port("mlx5_0") / "counters/symbol_error"
    fabric = Inventory(node.root).scan()
    make_hang(path)
    found = copy_tree(node.root, fabric, ["mlx5_0", "mlx5_1"])
    release(path)
    assert found.unreadable == {"class/infiniband/mlx5_0": "did not answer"}
    assert "class/infiniband/mlx5_1" in found.links


def test_a_device_that_the_scan_gave_up_is_not_asked_again(node: Tree) -> None:
    fabric = replace(Inventory(node.root).scan(), stuck_devices=("mlx5_0",))
    assert "class/infiniband/mlx5_0" in copy_tree(node.root, fabric, ["mlx5_0", "mlx5_1"]).unreadable


def test_a_device_without_hardware_is_kept(tree: Tree, tmp_path: Path) -> None:
    tree.add_netdev("eth0")
    hw = {"sent_bytes": "5\n", "rcvd_bytes": "6\n", "lifespan": "12\n"}
    port = PortFiles(link_layer="Ethernet\n", rate="10 Gb/sec (4X SDR)\n", counters=None, hw_counters=hw)
    tree.add_virtual("rxe0", {1: port}, {"parent": "eth0\n", "node_guid": f"{GUIDS[0]}\n"})
    unpacked = unpack(bundle(copy(tree), tmp_path / "b.tar.gz"), tmp_path / "out")
    assert anonymous(Inventory(unpacked / "sys").scan()) == anonymous(Inventory(tree.root).scan())


def test_what_lies_outside_the_tree_is_left_out(tree: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "mlx5_9"
    (outside / "ports").mkdir(parents=True)
    (tree.root / "class/infiniband/mlx5_9").symlink_to(outside)
    found = copy(tree)
    assert found.files == {}
    assert found.links == {}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_is_the_same_fabric_again(family: Family, tmp_path: Path) -> None:
    family.build(tmp_path / "sys")
    unpacked = unpack(bundle(copy(tmp_path / "sys"), tmp_path / "b.tar.gz"), tmp_path / "out")
    before, after = Inventory(tmp_path / "sys").scan(), Inventory(unpacked / "sys").scan()
    assert anonymous(after) == anonymous(before)
    assert after.topology == before.topology


def test_a_first_word_that_is_the_cards_name_is_no_host(tree: Tree, tmp_path: Path) -> None:
    tree.add("mlx5_0", files=MLX5_FILES | {"node_desc": "MT4129 ConnectX7\n"})
    unpacked = unpack(bundle(copy(tree), tmp_path / "b.tar.gz", page="MT4129 card\n"), tmp_path / "out")
    assert (unpacked / "doctor.txt").read_text() == "MT4129 card\n"


def test_a_bundle_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--bundle: cannot write .*/none/b.tar.gz: No such file or directory"):
        bundle(TreeCopy(), tmp_path / "none" / "b.tar.gz")


def events_of(path: Path, into: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (unpack(path, into) / "events.jsonl").read_text().splitlines()]


def test_events_are_redacted(tree: Tree, tmp_path: Path) -> None:
    tree.add("mlx5_0")
    secret = f"{HOST}\n{HOST} 10.11.12.13 {GUIDS[0]}"
    found = events_of(
        bundle(
            copy(tree),
            tmp_path / "b.tar.gz",
            events=[
                Event(1, "disappeared", "mlx5_0:1", secret, details={"guid": GUIDS[0]}),
                Event(2, "started", "", "", details={"ports": {"rocexb8cef60300aa:1": {}}, "else": [{HOST: secret}]}),
                Event(3, "capture", "", "capture of project X", details={"labels": {"user": "alice"}}),
                Event(4, "job-began", "", "job alice-7 began", details={"job_id": "alice-7", "name": "project"}),
            ],
        ),
        tmp_path,
    )
    assert [event["kind"] for event in found] == ["disappeared", "started", "capture", "job-began"]
    assert (found[0]["subject"], found[0]["time_ns"]) == ("mlx5_0:1", 1)
    text = json.dumps(found)
    assert not [word for word in (*SECRETS, "project", "alice", "b8cef60300aa") if word in text]


def test_only_the_newest_events_are_bundled(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.add("mlx5_0")
    monkeypatch.setattr("ibpulse.doctor.bundle.MAX_EVENTS_BYTES", 1000)
    events = [Event(number, "link-up", "mlx5_0:1", "x" * 100) for number in range(100, 200)]
    found = events_of(bundle(copy(tree), tmp_path / "b.tar.gz", events=events), tmp_path)
    assert 4 <= len(found) <= 6
    assert [event["time_ns"] for event in found] == list(range(200 - len(found), 200))
