"""A sysfs-shaped tree whose counter files are links to other files, for instance to those of real interfaces."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "node_type": "1: CA",
    "node_guid": "b8ce:f603:00aa:bb00",
    "fw_ver": "28.41.1000",
    "hca_type": "MT4129",
    "board_id": "MT_0000000838",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/rate": "400 Gb/sec (4X NDR)",
    "ports/1/link_layer": "InfiniBand",
    "ports/1/counters/unicast_xmit_packets": "0",
}


def link_tree(root: Path, interfaces: dict[str, str]) -> Path:
    """A tree with one device per interface, whose data counters are the interface's byte counters."""
    for device, interface in interfaces.items():
        statistics = Path(f"/sys/class/net/{interface}/statistics")
        make_device(root, device, statistics / "tx_bytes", statistics / "rx_bytes")
    return root


def make_device(root: Path, device: str, transmit: Path, receive: Path) -> Path:
    """One device whose two data counters are links to the given files."""
    home = root / "class/infiniband" / device
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text + "\n")
    (home / "ports/1/counters/port_xmit_data").symlink_to(transmit)
    (home / "ports/1/counters/port_rcv_data").symlink_to(receive)
    return home
