"""What users of each family see: pages of the real program against those that were looked at line by line.

`python -m tests.families write` keeps the pages anew.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import pytest

from tests.families.golden import FOLDER, Pages, Visit, visit_families
from tests.families.table import BY_NAME, FAMILIES

Visits = Mapping[str, Visit]

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
}


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Visits:
    return visit_families(FAMILIES, tmp_path_factory.mktemp("families"))


def assert_same(found: str, kept: str, name: str) -> None:
    changes = "\n".join(difflib.unified_diff(kept.splitlines(), found.splitlines(), "kept", "found", lineterm="", n=1))
    assert not changes, f"{name}: if every change is true, run `python -m tests.families write {name}`:\n{changes}"


@pytest.mark.parametrize("name", BY_NAME)
def test_the_metrics_of_a_family_match_its_golden_page(visits: Visits, name: str) -> None:
    assert_same(visits[name].pages.metrics, Pages.read(name).metrics, name)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_doctor_page_of_a_family_matches_its_golden_page(visits: Visits, name: str) -> None:
    assert_same(visits[name].pages.doctor, Pages.read(name).doctor, name)


@pytest.mark.parametrize("name", TROUBLE)
def test_doctor_names_the_trouble_of_a_family_and_nothing_else(visits: Visits, name: str) -> None:
    findings = [line for line in visits[name].pages.doctor.splitlines() if line.startswith(("WARN ", "FAIL "))]
    assert tuple(" ".join(line.partition(": ")[0].split()) for line in findings) == TROUBLE[name]


def test_golden_pages_of_removed_families_are_deleted() -> None:
    assert {folder.name for folder in FOLDER.iterdir()} == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_file_of_a_tree_is_ever_written(visits: Visits, name: str) -> None:
    assert visits[name].opened
    assert visits[name].changed == frozenset()


@pytest.mark.parametrize("name", ["compat_view", "efa_old_kernel", "switchdev", "hfi1", "mana"])
def test_counters_of_a_device_are_never_opened(visits: Visits, name: str) -> None:
    opened = visits[name].opened
    assert not [path for path in opened if "/hw_counters/" in path and "/ports/" not in path]


def lines_of(visit: Visit, device: str) -> list[str]:
    """Samples of a device on the metrics page."""
    return [line for line in visit.pages.metrics.splitlines() if f'device="{device}"' in line]


def names_of(visit: Visit, device: str) -> set[str]:
    """Families that a device has samples of."""
    return {line.split("{")[0] for line in lines_of(visit, device)}


@pytest.mark.parametrize(("name", "down"), [("roce_down", "mlx5_2"), ("infiniband_down", "mlx5_1")])
def test_a_link_that_is_down_has_totals_and_neither_a_rate_nor_a_utilisation(
    visits: Visits, name: str, down: str
) -> None:
    names = names_of(visits[name], down)
    assert "ibpulse_port_transmit_bytes_total" in names
    assert not {found for found in names if "utilization_ratio" in found or "peak" in found or "rate_bytes" in found}


def test_planes_are_nowhere_on_the_page(visits: Visits) -> None:
    assert not lines_of(visits["smi_planes"], "smi1")


@pytest.mark.parametrize(
    ("name", "device"), [("compat_view", "mlx5_0"), ("rxe_old_kernel", "rxe0"), ("old_kernel", "i40iw0")]
)
def test_a_port_without_bytes_has_no_bytes_and_no_zero_instead(visits: Visits, name: str, device: str) -> None:
    assert "ibpulse_port_info" in names_of(visits[name], device)
    assert not {found for found in names_of(visits[name], device) if "_bytes_total" in found or "utilization" in found}


def test_doctor_explains_how_to_exclude_functions_that_return_einval(visits: Visits) -> None:
    assert "If it is not a rail, add it to ports.exclude." in visits["limited_functions"].pages.doctor


@pytest.mark.parametrize("index", range(4))
def test_functions_that_answer_einval_take_nothing_from_the_rails(visits: Visits, index: int) -> None:
    healthy = names_of(visits["connectx7_ndr"], f"mlx5_{index}")
    assert names_of(visits["limited_functions"], f"mlx5_{index}") == healthy


def test_soft_roce_has_no_counters_that_it_never_counts(visits: Visits) -> None:
    names = names_of(visits["rxe_new_kernel"], "rxe0")
    assert "ibpulse_link_downed_total" in names
    assert not names & {"ibpulse_port_transmit_wait_total", "ibpulse_port_discards_transmitted_total"}


def test_counters_that_a_vf_is_refused_are_absent_and_the_others_there(visits: Visits) -> None:
    names = names_of(visits["azure_vf"], "mlx5_ib0")
    assert "ibpulse_link_downed_total" not in names
    assert {"ibpulse_port_discards_transmitted_total", "ibpulse_port_transmit_bytes_total"} <= names


def test_the_saturated_counters_are_those_at_their_maximum(visits: Visits) -> None:
    lines = visits["connectx7_saturated"].pages.metrics.splitlines()
    saturated = [line for line in lines if line.startswith("ibpulse_port_counter_saturated{") and line.endswith(" 1")]
    assert saturated
    assert all('device="mlx5_0"' in line for line in saturated)
