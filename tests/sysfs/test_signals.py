"""Which counters of a port are signals, and how each counts."""

from __future__ import annotations

from pathlib import Path

from ibpulse.agent.sysfs.byte_counters import SOFT_ROCE
from ibpulse.agent.sysfs.error_counters import FACTS, choose_signals
from ibpulse.core.signals import MAX_FIRMWARE_READS, MAX_SIGNALS, MEANINGS, Signal, SignalSource
from tests.tables import for_each

STEMS = {(fact.folder, fact.file): fact.stem for fact in FACTS}
PMA = ("port_xmit_wait", "port_xmit_discards", "symbol_error", "link_error_recovery", "port_rcv_errors")


def tree(folder: Path, driver: str, counters: tuple[str, ...] = PMA) -> Path:
    """A port with these files of `counters`, and all files of the driver in `hw_counters`."""
    own = [fact.file for fact in FACTS if fact.folder == "hw_counters" and fact.drivers.split(",")[0] == driver]
    for name in [*(f"counters/{name}" for name in counters), *(f"hw_counters/{name}" for name in own)]:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("0\n")
    return folder


def choose(folder: Path, layer: str = "InfiniBand", driver: str = "mlx5_core", netlink: bool = False) -> SignalSource:
    found = choose_signals(str(folder), layer, driver, netlink)
    assert found is not None
    return found


def test_signals_of_mlx5_on_infiniband(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, "mlx5"))
    assert found.signals == (
        Signal("packet_sequence_errors", 32, stops=True),
        Signal("local_ack_timeout_errors", 32, stops=True),
        Signal("rnr_nak_retry_packets_received", 32, stops=True),
        Signal("out_of_buffer_drops", 32, stops=True),
        Signal("duplicate_requests_packets", 32, stops=True),
        Signal("port_transmit_wait", 32, stops=True),
        Signal("symbol_error", 16, stops=True),
    )
    assert (found.asked, found.netlink, Path(found.refresh).name) == (5, False, "rx_write_requests")


def test_signals_of_mlx5_on_roce(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, "mlx5"), "Ethernet")
    names = {signal.name for signal in found.signals}
    assert len(names) == MAX_SIGNALS
    assert {"rp_cnp_packets_handled", "np_ecn_marked_roce_packets_received", "port_discards_transmitted"} < names
    assert not {"symbol_error", "out_of_sequence_packets_received"} & names


@for_each(["mlx5", "mlx4", "bnxt_re", "irdma", "mana", "rxe", "hfi1", "efa", "ionic"])
def test_every_driver_has_signs_of_loss_and_of_receivers_within_the_limits(driver: str, tmp_path: Path) -> None:
    found = choose(tree(tmp_path / driver, driver), "Ethernet", driver)
    names = [Path(file).parent.name for file in found.files]
    assert names == ["hw_counters"] * found.asked + ["counters"] * (len(names) - found.asked)
    assert len(names) == len(found.signals) <= MAX_SIGNALS
    assert names.count("counters") <= MAX_FIRMWARE_READS
    signs = {signal.meaning.sign for signal in found.signals}
    assert {"lost", "receiver"} <= signs
    stems = [STEMS[Path(file).parent.name, Path(file).name] for file in found.files]
    assert stems == [signal.name for signal in found.signals]


@for_each([("mlx5_core", True), ("mlx4_core", True), ("bnxt_en", False), (SOFT_ROCE, False), ("hfi1", False)])
def test_waiting_counts_only_where_it_is_known_to(driver: str, waits: bool, tmp_path: Path) -> None:
    found = choose(tree(tmp_path / driver, "mlx5"), "Ethernet", driver)
    assert ("port_transmit_wait" in {signal.name for signal in found.signals}) is waits


def test_what_is_asked_for_by_netlink_needs_no_refreshed_cache(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, "mlx5"), netlink=True)
    assert found.netlink
    assert not found.refresh


def test_a_port_without_counters_of_the_driver_asks_for_none(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, "none"), netlink=True)
    assert (found.asked, found.netlink, found.refresh) == (0, False, "")
    assert choose_signals(str(tmp_path / "none"), "InfiniBand", "mlx5_core", True) is None


def test_broadcom_counters_of_the_port_go_on_with_zero(tmp_path: Path) -> None:
    found = choose(tree(tmp_path, "bnxt_re"), "Ethernet", "bnxt_en")
    assert Signal("port_discards_transmitted", 16, stops=False) in found.signals


def test_every_signal_is_a_diagnostic_counter() -> None:
    assert set(MEANINGS) <= {fact.stem for fact in FACTS if fact.layers}
