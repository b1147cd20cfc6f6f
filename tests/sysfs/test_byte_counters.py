from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.sysfs.byte_counters import build_source, choose_row, read_lifespan_seconds
from ibpulse.core.model import ByteSource
from tests.sysfs.trees import (
    BNXT_HW,
    EFA,
    EXTENDED_PMA,
    LEGACY_PMA,
    RXE,
    RXE_FILES,
    PortFiles,
    Tree,
    make_unreadable,
)
from tests.tables import for_each

WORDS_32 = {"port_xmit_data": "4294967295\n", "port_rcv_data": "7\n"}
LEGACY_PROBLEM = "its counters may be the legacy ones, which stop at 32 bits, so they are not used."


def find_source(port: Path, driver: str) -> ByteSource:
    row = choose_row(str(port), driver)[0]
    assert row is not None
    return build_source(row, str(port))


def file_names(paths: tuple[str, ...]) -> list[str]:
    return [f"{Path(path).parent.name}/{Path(path).name}" for path in paths]


def test_mlx5_counts_words_of_four_bytes_without_a_cache(tree: Tree) -> None:
    tree.add("mlx5_0")
    source = find_source(tree.port("mlx5_0"), "mlx5_core")
    assert source == ByteSource(
        name="port_data",
        transmit=(str(tree.port("mlx5_0") / "counters" / "port_xmit_data"),),
        receive=(str(tree.port("mlx5_0") / "counters" / "port_rcv_data"),),
        scale=4,
    )


def test_a_driver_that_nobody_knows_is_read_like_any_other(tree: Tree) -> None:
    tree.add("frob0", {1: PortFiles()}, driver="frob")
    assert find_source(tree.port("frob0"), "frob").name == "port_data"


def test_rxe_whose_words_fail_counts_bytes(tree: Tree) -> None:
    tree.add_virtual("rxe0", {1: RXE}, RXE_FILES)
    make_unreadable(tree.port("rxe0") / "counters" / "port_rcv_data")
    source = find_source(tree.port("rxe0"), "")
    assert file_names(source.transmit + source.receive) == ["hw_counters/sent_bytes", "hw_counters/rcvd_bytes"]


# files per direction, transmit first; the pages of the families of hardware show those of other drivers
ERDMA = {
    "of the kernel": ("tx_bytes_cnt", "rx_bytes_cnt"),
    "as Alibaba publishes it": ("hw_tx_bytes_cnt", "hw_rx_bytes_cnt"),
}
# what the drivers register that count no bytes; none of these names speaks of bytes
PACKETS_ONLY = {
    "hns": ("rx_rc_pkt", "tx_rc_pkt", "rx_cnp_pkt", "cmds_err"),
    "cxgb4": ("ip4InSegs", "ip4OutSegs", "ip4RetransSegs", "ip6OutRsts"),
    "mlx4_core": ("rq_num_oos", "sq_num_to"),
    "rdma_rxe": ("sent_pkts", "rcvd_pkts", "rdma_sends"),
    # these register nothing
    "siw": (),
    "qede": (),
    "vmw_pvrdma": (),
    "usnic_verbs": (),
}


def add_counting(tree: Tree, name: str, driver: str, files: tuple[str, ...]) -> Path:
    hw = {file: f"{10**position}\n" for position, file in enumerate(files)} | {"lifespan": "10\n"}
    tree.add(name, {1: PortFiles(counters=None, hw_counters=hw)}, driver=driver, pci=f"0000:{len(name):02x}:00.0")
    return tree.port(name)


@for_each(ERDMA)
def test_byte_counters_of_erdma(transmit: str, receive: str, tmp_path: Path) -> None:
    source = find_source(add_counting(Tree(tmp_path / transmit), "x0", "erdma", (transmit, receive)), "erdma")
    assert (source.name, source.scale) == ("erdma_bytes", 1)
    assert file_names(source.transmit + source.receive) == [f"hw_counters/{transmit}", f"hw_counters/{receive}"]
    # 10 ms of lifespan and a jiffy
    assert source.refresh_seconds == pytest.approx(0.014)


@for_each(PACKETS_ONLY.items())
def test_drivers_that_count_packets_only(driver: str, files: tuple[str, ...], tmp_path: Path) -> None:
    port = add_counting(Tree(tmp_path / driver), "x0", driver, files)
    assert choose_row(str(port), driver) == (None, "no file of this port counts bytes.")


@for_each(
    {
        "one": ("frob", ("tx_frob_bytes",), "hw_counters/tx_frob_bytes"),
        "as in ZTE's zxdh": (
            "zxdh",
            ("rdma_rx_bytes", "rdma_tx_bytes"),
            "hw_counters/rdma_rx_bytes and hw_counters/rdma_tx_bytes",
        ),
        "octets in capitals": ("frob", ("OutOctets", "RxPkts"), "hw_counters/OutOctets"),
        "half of a known pair": ("ionic", ("tx_rdma_ucast_bytes",), "hw_counters/tx_rdma_ucast_bytes"),
        "many": (
            "frob",
            tuple(f"bytes_{number}" for number in range(9)),
            "hw_counters/bytes_0, hw_counters/bytes_1, hw_counters/bytes_2, hw_counters/bytes_3 and 5 more files",
        ),
    }
)
def test_unknown_names_of_bytes_are_said(driver: str, files: tuple[str, ...], said: str, tmp_path: Path) -> None:
    port = add_counting(Tree(tmp_path / f"{driver}-{len(files)}-{files[0]}"), "x0", driver, files)
    assert choose_row(str(port), driver) == (
        None,
        f"its driver {driver} names bytes in {said}, but ibpulse does not know what they include, so they are not "
        "sampled.",
    )


def test_bytes_in_counters_of_a_driver_without_a_name_are_said(tree: Tree) -> None:
    tree.add("frob0", {1: PortFiles(counters={"frob_tx_bytes": "5\n"}, hw_counters=None)}, driver="")
    assert choose_row(str(tree.port("frob0")), "")[1].startswith("its driver names bytes in counters/frob_tx_bytes,")


def test_bytes_of_an_unknown_driver_carry_a_warning(tree: Tree) -> None:
    tree.add("frob0", {1: PortFiles(counters=None, hw_counters=BNXT_HW)}, driver="frob")
    assert find_source(tree.port("frob0"), "frob").note == (
        "ibpulse does not know this driver, so it is unknown what its tx_bytes and rx_bytes include."
    )


def test_a_text_that_is_no_count_is_named_as_the_problem(tree: Tree) -> None:
    tree.add("mlx5_0", {1: PortFiles(counters={"port_xmit_data": "many\n", "port_rcv_data": "1\n"})})
    assert choose_row(str(tree.port("mlx5_0")), "mlx5_core")[1] == (
        "counters/port_xmit_data holds 'many', which is not a count."
    )


@pytest.mark.parametrize(
    ("counters", "problem"),
    [
        (LEGACY_PMA | WORDS_32, LEGACY_PROBLEM),
        # a value above 32 bits proves that the table is the extended one, and so do counters of unicast
        (LEGACY_PMA | {"port_xmit_data": f"{2**32}\n", "port_rcv_data": "0\n"}, ""),
        (EXTENDED_PMA | WORDS_32, ""),
    ],
)
def test_the_legacy_table_is_refused(tree: Tree, counters: dict[str, str], problem: str) -> None:
    tree.add("old0", {1: PortFiles(counters=counters)})
    row, found = choose_row(str(tree.port("old0")), "mlx5_core")
    assert (row is None, found) == (bool(problem), problem)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10\n", 0.01), ("12\n", 0.012), ("0\n", 0.0), ("500\n", 0.5), ("99999\n", 0.01), ("x\n", 0.01), (None, 0.01)],
)
def test_a_lifespan_is_milliseconds(tmp_path: Path, text: str | None, seconds: float) -> None:
    if text is not None:
        (tmp_path / "lifespan").write_text(text)
    assert read_lifespan_seconds(str(tmp_path)) == pytest.approx(seconds)


def test_a_long_lifespan_counts_more_than_the_device(tree: Tree) -> None:
    hw = {**EFA.hw_counters, "lifespan": "5000\n"}
    tree.add("bnxt_re0", {1: PortFiles(counters=None, hw_counters=hw)}, driver="bnxt_en")
    assert find_source(tree.port("bnxt_re0"), "bnxt_en").refresh_seconds == pytest.approx(5.004)


def test_a_cache_that_may_alias_at_the_longest_interval_is_noted(tree: Tree) -> None:
    for device, lifespan in (("efa0", "329\n"), ("efa1", "500\n")):
        hw = {**EFA.hw_counters, "lifespan": lifespan}
        tree.add(device, {1: PortFiles(counters=None, hw_counters=hw)}, driver="efa")
    assert find_source(tree.port("efa0"), "efa").note == ""
    assert find_source(tree.port("efa1"), "efa").note == (
        "the kernel refreshes these counters every 0.504 s: shorter bursts are not seen, and seconds can include "
        "different numbers of updates; write a smaller number to hw_counters/lifespan."
    )
