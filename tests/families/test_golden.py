"""What users of each family see: pages of the program against those that were checked line by line.

`python -m tests.families write` keeps the pages again.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.families.golden import FOLDER, Pages, Visit, visit
from tests.families.table import BY_NAME, FAMILIES
from tests.tables import for_each

Visits = Mapping[str, Visit]

IONIC_RESOLUTION = f"WARN resolution {', '.join(f'ionic_{index}:1' for index in range(8))}"
# What doctor finds wrong with a family, and nothing else: level, check and what it is about.
TROUBLE: dict[str, tuple[str, ...]] = {
    "connectx7_ndr": (),
    "connectx8_xdr": (),
    "roce_multiplane": (),
    "smi_planes": (),
    "switchdev": (),
    "rxe_new_kernel": (),
    "connectx7_saturated": ("WARN saturation mlx5_0:1",),
    "roce_down": ("FAIL rails mlx5_2:1",),
    "infiniband_down": ("FAIL rails mlx5_1:1",),
    "compat_view": ("FAIL tree path.sysfs",),
    "limited_functions": ("WARN rails mlx5_8:1, mlx5_9:1, mlx5_10:1, mlx5_11:1",),
    "azure_vf": (),
    "mlx5_roce": (),
    "rxe_old_kernel": ("FAIL rails rxe0:1", "FAIL rails No port of this node is a rail."),
    "bnxt_new_kernel": (
        "WARN remarks bnxt_re1:1",
        "WARN files bnxt_re1:1",
        "WARN resolution bnxt_re0:1",
        "WARN resolution bnxt_re1:1",
    ),
    "irdma_new_kernel": ("WARN resolution rocep56s0f0:1, rocep56s0f1:1",),
    "bond": ("WARN remarks mlx5_bond_0:1",),
    "ionic_mi300x": (IONIC_RESOLUTION,),
    "ionic_mi355x": (IONIC_RESOLUTION,),
}


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Visits:
    return {family.name: visit(family, tmp_path_factory.mktemp(family.name)) for family in FAMILIES}


@for_each(list(BY_NAME))
def test_pages_of_a_family_match_the_kept_ones(name: str, visits: Visits) -> None:
    found, kept = visits[name].pages, Pages.read(name)
    for old, new in ((kept.metrics, found.metrics), (kept.doctor, found.doctor)):
        changes = difflib.unified_diff(old.splitlines(), new.splitlines(), "kept", "found", lineterm="", n=1)
        assert old == new, "\n".join((f"if all is true, run `python -m tests.families write {name}`:", *changes))


def test_pages_of_removed_families_are_deleted() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == set(BY_NAME)


@for_each(list(BY_NAME))
def test_no_file_of_a_tree_is_ever_written(name: str, visits: Visits) -> None:
    assert visits[name].opened
    assert visits[name].changed == frozenset()


def list_device_counters(visit: Visit) -> set[str]:
    """The counters of devices, as opposed to those of their ports, that were opened."""
    return {path.rpartition("/")[2] for path in visit.opened if "/hw_counters/" in path and "/ports/" not in path}


@for_each(["compat_view", "switchdev", "hfi1", "mana"])
def test_counters_of_a_device_are_never_opened(name: str, visits: Visits) -> None:
    assert list_device_counters(visits[name]) == set()


def test_counters_of_an_efa_device_are_opened_beside_its_ports(visits: Visits) -> None:
    assert list_device_counters(visits["efa_old_kernel"]) == {
        *("no_completion_cmds", "cmds_err", "keep_alive_rcvd"),
        *("reg_mr_err", "create_qp_err", "create_cq_err", "create_ah_err"),
    }


def test_no_file_of_an_excluded_device_is_opened(tmp_path: Path) -> None:
    exclude = "--ports.exclude=mlx5_8,mlx5_9,mlx5_10,mlx5_11"
    opened = visit(BY_NAME["limited_functions"], tmp_path, exclude).opened
    assert [path for path in opened if path.endswith("infiniband/mlx5_3/ports/1/counters/link_downed")]
    devices = {path.split("/infiniband/")[1].split("/")[0] for path in opened if "/infiniband/" in path}
    assert devices == {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}


# the kept pages


@for_each(TROUBLE.items())
def test_doctor_names_the_trouble_of_a_family_and_nothing_else(name: str, trouble: tuple[str, ...]) -> None:
    findings = [line for line in Pages.read(name).doctor.splitlines() if line.startswith(("WARN ", "FAIL "))]
    assert tuple(" ".join(line.partition(": ")[0].split()) for line in findings) == trouble


def lines_of(family: str, device: str) -> list[str]:
    """Samples of a device on the metrics page."""
    return [line for line in Pages.read(family).metrics.splitlines() if f'device="{device}"' in line]


def names_of(family: str, device: str) -> set[str]:
    """The metrics that a device has."""
    return {line.split("{")[0] for line in lines_of(family, device)}


@for_each([("roce_down", "mlx5_2"), ("infiniband_down", "mlx5_1")])
def test_a_link_that_is_down_has_totals_and_no_rates(family: str, down: str) -> None:
    names = names_of(family, down)
    assert "ibpulse_port_transmit_bytes_total" in names
    assert not {found for found in names if "utilization_ratio" in found or "peak" in found or "rate_bytes" in found}


def test_planes_are_nowhere_on_the_page() -> None:
    assert not lines_of("smi_planes", "smi1")


@for_each([("compat_view", "mlx5_0"), ("rxe_old_kernel", "rxe0"), ("old_kernel", "i40iw0")])
def test_a_port_without_byte_counters_has_no_bytes(family: str, device: str) -> None:
    names = names_of(family, device)
    assert "ibpulse_port_info" in names
    assert not {found for found in names if "_bytes_total" in found or "utilization" in found}


def test_doctor_explains_how_to_exclude_functions_that_return_einval() -> None:
    assert "If it is not a rail, add it to ports.exclude." in " ".join(Pages.read("limited_functions").doctor.split())


@for_each(range(4))
def test_functions_that_return_einval_take_nothing_from_the_rails(index: int) -> None:
    assert names_of("limited_functions", f"mlx5_{index}") == names_of("connectx7_ndr", f"mlx5_{index}")


def test_soft_roce_has_no_counters_that_it_never_counts() -> None:
    names = names_of("rxe_new_kernel", "rxe0")
    assert "ibpulse_link_downed_total" in names
    assert not names & {"ibpulse_port_transmit_wait_total", "ibpulse_port_discards_transmitted_total"}


def test_counters_refused_to_a_vf_are_absent() -> None:
    names = names_of("azure_vf", "mlx5_ib0")
    assert "ibpulse_link_downed_total" not in names
    assert {"ibpulse_port_discards_transmitted_total", "ibpulse_port_transmit_bytes_total"} <= names


def test_the_saturated_counters_are_those_at_their_maximum() -> None:
    lines = Pages.read("connectx7_saturated").metrics.splitlines()
    saturated = [line for line in lines if line.startswith("ibpulse_port_counter_saturated{") and line.endswith(" 1")]
    assert saturated
    assert all('device="mlx5_0"' in line for line in saturated)
