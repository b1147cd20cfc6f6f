"""What users of each family see: pages of the program against those that were checked line by line.

`python -m tests.families write` keeps the pages again.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from tests.families.golden import FOLDER, Pages, Visit, visit
from tests.families.table import BY_NAME, FAMILIES
from tests.tables import for_each

Visits = Mapping[str, Visit]


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
    assert visits[name].written == frozenset()


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


@for_each(list(BY_NAME))
def test_notices_stay_the_same_from_scan_to_scan(name: str, tmp_path: Path) -> None:
    BY_NAME[name].build(tmp_path / name)
    inventory = Inventory(tmp_path / name)
    assert len({inventory.scan().notices for _ in range(14)}) == 1
