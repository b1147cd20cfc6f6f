"""Traps into which other programs fell, each with the tests that show that this one does not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import ROOT
from tests.families.golden import run_doctor
from tests.families.table import BY_NAME
from tests.families.touched import Touched
from tests.running import Running, eventually

TESTS = ROOT / "tests"

# trap: the tests that cover it, `folder/file.py::test`
TRAPS: dict[str, tuple[str, ...]] = {
    "the factor of four taken for the number of lanes": (
        "sysfs/test_byte_counters.py::test_a_count_is_four_bytes_whatever_the_width_of_the_link",
        "daemon/test_kernel_counters.py::test_totals_are_the_kernels_and_rates_are_the_truth",
    ),
    "a difference divided by the nominal interval": (
        "analysis/test_rates.py::test_a_rate_is_scale_times_difference_over_measured_time",
        "aggregator/test_port_numbers.py::test_rates_use_the_measured_time",
    ),
    "a failed read reported as 0": (
        "sampler/test_loop.py::test_a_bad_direction_does_not_hide_the_other",
        "sampler/test_loop.py::test_an_unread_port_leaves_a_missing_sample",
        "analysis/test_rates.py::test_the_value_of_an_unread_counter_does_not_matter",
        "exposition/test_page.py::test_unknown_values_are_absent",
    ),
    "a counter dropped for ever after one error": (
        "sampler/test_counter_file.py::test_a_good_read_forgets_the_failures",
        "sampler/test_loop.py::test_a_port_whose_files_recover_is_read_and_reported",
        "sysfs/test_inventory.py::test_a_rate_that_comes_back_is_read_at_the_next_scan",
    ),
    "a process that dies of an unknown physical state": (
        "sysfs/test_inventory.py::test_an_unknown_physical_state_harms_nothing",
    ),
    "one device that fails hides all others": (
        "sysfs/test_inventory.py::test_a_broken_device_hides_no_other",
        "sysfs/test_hanging_device.py::test_the_others_are_still_read",
        "families/test_discovery.py::test_functions_that_answer_einval_are_no_rails_and_hide_none",
        "families/test_discovery.py::test_a_driver_without_counters_hides_no_other",
        "families/test_discovery.py::test_a_rate_file_that_fails_is_made_up_for_by_the_netdev",
    ),
    "a filter that is applied after the files were read": (
        "sysfs/test_inventory.py::test_nothing_of_an_excluded_device_is_touched",
        "sysfs/test_inventory.py::test_nothing_of_an_excluded_port_is_touched",
        "families/test_traps.py::test_no_counter_of_an_excluded_device_is_opened_by_the_daemon_or_by_doctor",
    ),
    "a filter by LID or link layer that hides RoCE": (
        "sysfs/test_inventory.py::test_roce_is_found_though_its_lid_is_zero",
        "sysfs/test_roles.py::test_ethernet_ports_are_rails_on_a_node_without_infiniband",
    ),
    "port 1 taken for the only one": (
        "sysfs/test_inventory.py::test_ports_of_any_number_on_devices_of_any_name_are_found",
        "families/test_discovery.py::test_only_the_data_ports_of_a_multiplane_card_are_rails",
    ),
    "an unsigned difference that is never below 0": (
        "analysis/test_rates.py::test_a_decrease_is_a_reset_at_any_size",
        "analysis/test_totals.py::test_a_fall_is_a_reset_and_its_interval_adds_nothing",
        "daemon/test_faults.py::test_a_reset_counter_is_counted_and_never_taken_as_traffic",
    ),
    "milliseconds divided by 1000 in integers": ("sysfs/test_byte_counters.py::test_a_lifespan_is_milliseconds",),
    "a gauge named like a counter": ("metrics/test_metric_table.py::test_names_follow_the_conventions",),
    "counters that the program resets for everybody": (
        "families/test_golden.py::test_no_file_of_a_tree_is_ever_written",
    ),
    "hw_counters sampled faster than the kernel renews them": (
        "sampler/test_supervisor.py::test_a_cached_port_is_sampled_at_its_stride",
        "sampler/test_sampling_interval.py::test_the_stride_is_three_refreshes_rounded_up_to_a_divisor",
        "sysfs/test_byte_counters.py::test_efa_counts_bytes_of_its_port_and_the_cache_is_known",
        "daemon/test_faults.py::test_a_slow_refresh_is_measured",
    ),
    "an error logged at every tick": (
        "daemon/test_faults.py::test_two_hundred_refusing_files_cost_one_line_each_port",
        "sampler/test_supervisor.py::test_a_file_that_keeps_failing_is_said_once_also_by_a_new_sampler",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_the_tests_of_a_trap_exist(trap: str) -> None:
    for test in TRAPS[trap]:
        file, name = test.split("::")
        module = ast.parse((TESTS / file).read_text())
        assert name in {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_counter_of_an_excluded_device_is_opened_by_the_daemon_or_by_doctor(tmp_path: Path) -> None:
    tree = tmp_path / "sys"
    BY_NAME["limited_functions"].build(tree)
    touched = Touched(tree)
    exclude = "--ports.exclude=mlx5_8,mlx5_9,mlx5_10,mlx5_11"
    with Running(tree, tmp_path / "ring", exclude, "--slow.interval=1s") as running:
        eventually(lambda: running.metrics().find("ibpulse_link_downed_total"))
    run_doctor(tree, tmp_path / "doctor-ring", exclude)
    opened, _ = touched.look()
    touched.close()
    assert [path for path in opened if path.endswith("infiniband/mlx5_3/ports/1/counters/link_downed")]
    devices = {path.split("/infiniband/")[1].split("/")[0] for path in opened if "/infiniband/" in path}
    assert devices == {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}
