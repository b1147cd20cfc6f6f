"""Which counter files are read, in which order, and what they are exported as."""

from __future__ import annotations

import re
import subprocess
from collections import Counter as Tally

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibpulse.agent.metrics.page import TABLE
from ibpulse.agent.metrics.ports import DIAGNOSTIC_COUNTERS, OTHER_COUNTERS, find_counter
from ibpulse.agent.sysfs.error_counters import FACTS, CounterSet, Wanted, choose_counters, counter_name, stem_of_file
from tests.sysfs.trees import PMA_ZEROS
from tests.tables import for_each

PMA = (*PMA_ZEROS, "port_xmit_wait", "port_xmit_data", "port_rcv_data")
MLX5 = tuple(sorted(fact.file for fact in FACTS if fact.folder == "hw_counters" and fact.drivers.startswith("mlx5")))
NAMES = {metric.name for metric in (*DIAGNOSTIC_COUNTERS, *OTHER_COUNTERS)}


def choose(
    hw: tuple[str, ...] = MLX5,
    counters: tuple[str, ...] = PMA,
    layer: str = "InfiniBand",
    driver: str = "mlx5_core",
    which: CounterSet = "diagnostic",
) -> tuple[Wanted, ...]:
    return choose_counters({"counters": counters, "hw_counters": hw}, layer, driver, which)


def files(wanted: tuple[Wanted, ...]) -> set[str]:
    return {one.file for one in wanted if one.name}


def test_what_renews_the_cache_is_read_first_and_the_physical_port_last() -> None:
    wanted = choose()
    assert wanted[0] == Wanted("hw_counters", "rx_write_requests")
    folders = [one.folder for one in wanted]
    assert folders == sorted(folders, reverse=True)


def test_with_all_it_is_read_first_and_once_and_exported() -> None:
    wanted = choose(which="all")
    assert (wanted[0].file, wanted[0].name) == ("rx_write_requests", "ibpulse_rx_write_requests_total")
    assert max(Tally(one.file for one in wanted).values()) == 1


def test_without_it_the_others_are_read_alone() -> None:
    assert [one.file for one in choose(("out_of_sequence",), ())] == ["out_of_sequence"]


def test_nothing_is_read_only_to_renew_what_nobody_wants() -> None:
    assert choose(("rx_write_requests", "lifespan"), ()) == ()


@for_each(["diagnostic", "all"])
def test_only_known_files_of_a_device_and_a_netdev_are_read(which: CounterSet) -> None:
    listed = {"device hw_counters": ("cmds_err", "completed_cmds", "lifespan"), "net": ("carrier_changes", "mtu")}
    chosen = choose_counters(listed, "Unknown", "efa", which)
    assert [(one.folder, one.file, one.name) for one in chosen] == [
        ("device hw_counters", "cmds_err", "ibpulse_hw_device_cmds_err_total"),
        ("net", "carrier_changes", "ibpulse_port_carrier_changes_total"),
    ]


def test_carrier_changes_say_nothing_on_infiniband() -> None:
    assert choose_counters({"net": ("carrier_changes",)}, "InfiniBand", "mlx5_core", "diagnostic") == ()


def test_only_what_is_listed_is_asked_for() -> None:
    assert files(choose(("out_of_sequence",), ("symbol_error",))) == {"out_of_sequence", "symbol_error"}
    assert choose(which="none") == choose_counters({}, "InfiniBand", "mlx5_core", "all") == ()


def test_a_driver_is_not_among_those_that_have_what_it_never_fills() -> None:
    drivers = {fact.file: fact.drivers for fact in FACTS if fact.folder == "counters"}
    assert drivers["port_xmit_wait"] == "mlx5, mlx4, bnxt_re"
    assert drivers["port_xmit_discards"] == "mlx5, mlx4, hfi1, bnxt_re"
    assert drivers["link_downed"] == "mlx5, mlx4, hfi1, bnxt_re, rxe"


def test_all_leaves_out_what_is_no_counter() -> None:
    levels = ("lifespan", "active_qps", "watermark_qps", "current_rate")
    assert choose((*levels, "max_retry_exceeded"), (), which="all") == (
        Wanted("hw_counters", "max_retry_exceeded", "ibpulse_hw_max_retry_exceeded_total"),
    )


@pytest.mark.parametrize(
    ("file", "stem"),
    [
        ("SwLinkUp,32", "hw_sw_link_up_32"),
        ("Cce LATriggered", "hw_cce_latriggered"),
        ("Nak Sequence Error", "hw_nak_sequence_error"),
        ("ip4InOctets", "hw_ip4_in_octets"),
        ("errors_total", "hw_errors"),
        ("_", "hw_unnamed"),
        ("é%", "hw_unnamed"),
    ],
)
def test_a_file_without_a_row_is_called_after_itself(file: str, stem: str) -> None:
    assert stem_of_file("hw_counters", file) == stem


def test_files_whose_names_become_the_same_are_numbered() -> None:
    wanted = choose(("Sw Up", "SwUp", "sw_up", "sw_up_2"), ("sw_up",), which="all")
    assert [one.name for one in wanted] == [
        "ibpulse_hw_sw_up_total",
        "ibpulse_hw_sw_up_2_total",
        "ibpulse_hw_sw_up_3_total",
        "ibpulse_hw_sw_up_2_2_total",
        "ibpulse_pma_sw_up_total",
    ]


@given(st.lists(st.text(st.characters(exclude_characters="/\0"), min_size=1), unique=True))
def test_whatever_files_are_called_no_two_have_one_name_nor_that_of_another_metric(names: list[str]) -> None:
    chosen = choose(tuple(names), (), which="all")
    exported = [one.name for one in chosen if one.name]
    assert len(exported) == len(set(exported))
    assert all(re.fullmatch(r"ibpulse_[a-z0-9_]+_total", name) for name in exported)
    assert not set(exported) & {metric.name for metric in TABLE} - NAMES


@pytest.mark.parametrize(
    ("file", "driver", "full"),
    [
        ("excessive_buffer_overrun_errors", "mlx5_core", 15),
        ("link_downed", "mlx5_core", 255),
        ("symbol_error", "mlx4_core", 65535),
        ("port_xmit_wait", "mlx5_core", 4294967295),
        ("port_xmit_data", "mlx5_core", 4294967295),
        ("link_downed", "bnxt_en", None),
        ("link_downed", "bnxt_re", None),
        ("hw_counters/out_of_sequence", "mlx5_core", 4294967295),
        ("hw_counters/np_cnp_sent", "mlx5_core", None),
        ("hw_counters/odd", "mlx5_core", None),
    ],
)
def test_where_a_counter_stops(file: str, driver: str, full: int | None) -> None:
    folder, _, name = file.rpartition("/")
    (wanted,) = choose_counters({folder or "counters": (name,)}, "InfiniBand", driver, "all")
    assert wanted.full == full


def test_bytes_are_counted_in_words_of_four() -> None:
    (wanted,) = choose((), ("port_xmit_data",), which="all")
    assert (wanted.name, wanted.scale) == ("ibpulse_port_data_transmitted_bytes_total", 4)


def test_every_diagnostic_fact_has_a_row_of_the_table() -> None:
    rows = {metric.name for metric in DIAGNOSTIC_COUNTERS}
    assert {counter_name(fact.stem) for fact in FACTS if fact.layers} == rows


def test_every_other_fact_has_a_help_text() -> None:
    assert {counter_name(fact.stem) for fact in FACTS} == NAMES


def test_no_driver_has_two_files_for_one_metric() -> None:
    for driver in ("mlx5", "mlx4", "bnxt_re", "mana", "rxe", "hfi1", "efa"):
        stems = [fact.stem for fact in FACTS if driver in re.split(r"[ ,]+", fact.drivers)]
        assert max(Tally(stems).values()) == 1, driver


def test_no_file_is_in_the_table_twice() -> None:
    assert max(Tally((fact.folder, fact.file) for fact in FACTS).values()) == 1


def test_widths_are_those_of_the_kernel() -> None:
    widths = {fact.file: fact.bits for fact in FACTS if fact.folder == "counters"}
    by_width = {bits: {file for file, width in widths.items() if width == bits} for bits in (4, 8, 16, 32)}
    assert by_width == {
        4: {"local_link_integrity_errors", "excessive_buffer_overrun_errors"},
        8: {"link_error_recovery", "link_downed", "port_xmit_constraint_errors", "port_rcv_constraint_errors"},
        16: {
            *("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors"),
            *("port_xmit_discards", "port_rcv_discards", "VL15_dropped"),
        },
        32: {"port_xmit_wait"},
    }


@pytest.mark.needs("promtool")
@pytest.mark.real("process")
def test_promtool_accepts_the_name_and_help_of_every_counter() -> None:
    strange = ("SwLinkUp,32", 'quote " and \\ and \n', "Cce LATriggered", "RcvHdrOvr10", "ord limit count")
    made = [find_counter(counter_name(stem_of_file("hw_counters", file)), file) for file in strange]
    lines = [
        f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} counter\n{metric.name} 1\n"
        for metric in (*DIAGNOSTIC_COUNTERS, *OTHER_COUNTERS, *made)
    ]
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input="".join(lines), text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_row_that_was_made_is_made_once() -> None:
    assert find_counter("ibpulse_hw_made_total", "made") is find_counter("ibpulse_hw_made_total", "Made")


def test_the_spellings_of_ionic_are_the_same_counter() -> None:
    for name in ("resp_rx_outof_seq", "resp_rx_outouf_seq"):
        (wanted,) = choose((name,), (), "Ethernet", "ionic")
        assert wanted.name == counter_name("out_of_sequence_packets_received")
