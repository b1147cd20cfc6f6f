"""Creates a sysfs-like tree whose counter files are symbolic links to counters of the kernel's loopback interface.

Every read of a counter is thus a read of a real kernel file (kernfs), as on a real node, but does not involve a driver.
"""

from __future__ import annotations

from pathlib import Path

STATISTICS = Path("/sys/class/net/lo/statistics")
TRANSMIT, RECEIVE = str(STATISTICS / "tx_bytes"), str(STATISTICS / "rx_bytes")
# The files of mlx5 in ports/<n>/counters, and the loopback counter used for each.
COUNTERS = {
    "port_xmit_data": "tx_bytes",
    "port_rcv_data": "rx_bytes",
    "port_xmit_packets": "tx_packets",
    "port_rcv_packets": "rx_packets",
    "unicast_xmit_packets": "tx_packets",
    "unicast_rcv_packets": "rx_packets",
    "multicast_xmit_packets": "multicast",
    "multicast_rcv_packets": "multicast",
    "port_xmit_wait": "tx_fifo_errors",
    "port_xmit_discards": "tx_dropped",
    "port_xmit_constraint_errors": "tx_errors",
    "port_rcv_errors": "rx_errors",
    "port_rcv_constraint_errors": "rx_errors",
    "port_rcv_remote_physical_errors": "rx_frame_errors",
    "port_rcv_switch_relay_errors": "rx_errors",
    "symbol_error": "rx_crc_errors",
    "link_downed": "tx_carrier_errors",
    "link_error_recovery": "collisions",
    "local_link_integrity_errors": "rx_errors",
    "excessive_buffer_overrun_errors": "rx_over_errors",
    "VL15_dropped": "rx_dropped",
}
# Those of hw_counters that an InfiniBand port of mlx5 has and the daemon reads, and the one that refreshes them.
HW_COUNTERS = {
    "rx_write_requests": "rx_packets",
    "out_of_sequence": "rx_over_errors",
    "packet_seq_err": "rx_length_errors",
    "duplicate_request": "rx_compressed",
    "rnr_nak_retry_err": "tx_compressed",
    "local_ack_timeout_err": "tx_heartbeat_errors",
    "out_of_buffer": "rx_missed_errors",
}


def write_tree(root: Path, devices: int, *, linked: bool = True) -> Path:
    """Create `class/infiniband/mlx5_<n>` in `root` for this number of devices with one 400 Gb/s port each.

    Without `linked` the counters are plain files, because node_exporter skips symbolic links.
    """
    for number in range(devices):
        device = root / "class/infiniband" / f"mlx5_{number}"
        _write(
            device,
            node_type="1: CA",
            node_guid=f"b8ce:f603:00aa:{number:04x}",
            sys_image_guid=f"b8ce:f603:00aa:{number:04x}",
            fw_ver="28.41.1000",
            hca_type="MT4129",
            board_id="MT_0000000838",
        )
        port = device / "ports/1"
        _write(
            port,
            state="4: ACTIVE",
            phys_state="5: LinkUp",
            rate="400 Gb/sec (4X NDR)",
            link_layer="InfiniBand",
            lid="0x1a",
            cap_mask="0xa751e848",
        )
        for folder, counters in (("counters", COUNTERS), ("hw_counters", HW_COUNTERS)):
            (port / folder).mkdir()
            for name, source in counters.items():
                counter = port / folder / name
                if linked:
                    counter.symlink_to(STATISTICS / source)
                else:
                    counter.write_text("205143497464492\n")
    return root


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
