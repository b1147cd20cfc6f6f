from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import Fabric, Port
from tests.families.table import BY_NAME
from tests.tables import for_each

Scan = Callable[[str], Fabric]


def rails(fabric: Fabric) -> list[str]:
    return [str(port.id) for port in fabric.ports if port.rail]


def sources(fabric: Fabric) -> list[str]:
    return [port.source.name if port.source else "" for port in fabric.ports]


def by_name(fabric: Fabric) -> dict[str, Port]:
    return {str(port.id): port for port in fabric.ports}


def speeds(fabric: Fabric) -> list[float | None]:
    return [port.rate_bytes_per_second for port in fabric.ports]


@pytest.mark.parametrize(
    "name", ["connectx7_ndr", "connectx7_saturated", "connectx8_xdr", "mlx5_roce", "efa_new_kernel", "ionic_mi300x"]
)
def test_a_node_without_trouble_has_no_notices(scan: Scan, name: str) -> None:
    fabric = scan(name)
    assert fabric.notices == ()
    assert rails(fabric) == list(by_name(fabric))


def test_ndr_and_xdr_links_have_the_rates_of_their_names(scan: Scan) -> None:
    assert speeds(scan("connectx7_ndr")) == [50e9] * 8
    assert speeds(scan("connectx8_xdr")) == [100e9] * 4


def test_a_label_of_another_generation_changes_no_rate(scan: Scan) -> None:
    fabric = scan("mlx5_roce")
    assert fabric.ports[3].identity.rate == "400 Gb/sec (8X HDR)"
    assert speeds(fabric) == [50e9] * 4


@pytest.mark.parametrize(("name", "down"), [("roce_down", "mlx5_2:1"), ("infiniband_down", "mlx5_1:1")])
def test_a_link_that_is_down_is_a_rail_without_a_rate(scan: Scan, name: str, down: str) -> None:
    fabric = scan(name)
    assert len(rails(fabric)) == 4
    assert {str(port.id) for port in fabric.ports if port.rate_bytes_per_second is None} == {down}
    assert not by_name(fabric)[down].active


def test_the_front_end_of_an_azure_instance_is_no_rail(scan: Scan) -> None:
    fabric = scan("azure_vf")
    assert rails(fabric) == [f"mlx5_ib{index}:1" for index in range(8)]
    assert by_name(fabric)["mlx5_an0:1"].rate_bytes_per_second == 12.5e9


def test_counters_that_a_vf_is_refused_take_nothing_else_away(scan: Scan) -> None:
    fabric = scan("azure_vf")
    assert fabric.notices == ()
    assert sources(fabric) == ["port_data"] * 9


def test_only_the_data_ports_of_a_multiplane_card_are_rails(scan: Scan) -> None:
    fabric = scan("roce_multiplane")
    assert rails(fabric) == ["mlx5_0:3", "mlx5_0:6", "mlx5_0:9", "mlx5_0:12"]
    assert len(fabric.ports) == 12


def test_each_plane_of_a_multiplane_card_has_its_own_netdev(scan: Scan) -> None:
    ports = by_name(scan("roce_multiplane"))
    assert [ports[f"mlx5_0:{number}"].identity.netdev for number in (3, 6, 9, 12)] == [f"eth_r0_p{n}" for n in range(4)]
    assert {ports[f"mlx5_0:{number}"].identity.netdev for number in range(1, 12) if number % 3} == {""}


@pytest.mark.parametrize("name", ["irdma_old_kernel", "irdma_new_kernel"])
def test_both_ip_versions_are_added_up_whatever_the_other_names_are(scan: Scan, name: str) -> None:
    fabric = scan(name)
    assert sources(fabric) == ["ip_octets", "ip_octets"]
    assert all(port.source and len(port.source.transmit) == 2 for port in fabric.ports)


def test_broadcom_counters_that_answer_einval_leave_the_slow_pair(scan: Scan) -> None:
    fabric = scan("bnxt_new_kernel")
    assert sources(fabric) == ["roce_only_bytes", "dma_bytes"]
    assert fabric.notices == (
        "bnxt_re1:1: the device updates these counters once a second: shorter bursts are not seen, and a second "
        "can include no update or two.",
    )


@for_each({"ionic_mi300x": ("ionic_mi300x", "MI300X"), "ionic_mi355x": ("ionic_mi355x", "MI355X")})
def test_the_pollara_beside_each_gpu_of_amd_is_a_rail(name: str, gpu: str, scan: Scan) -> None:
    fabric = scan(name)
    assert fabric.notices == ()
    assert rails(fabric) == [f"ionic_{index}:1" for index in range(8)]
    # accelerators of the adapter are no GPUs
    assert [found.name for found in fabric.topology.gpus] == [gpu] * 8
    for port in fabric.ports[:8]:
        assert port.source is not None
        names = [path.rpartition("/")[2] for path in (*port.source.transmit, *port.source.receive)]
        assert names == [f"{way}_rdma_{kind}_bytes" for way in ("tx", "rx") for kind in ("ucast", "mcast")]
        assert port.source.scale == 1
        assert port.source.refresh_seconds == pytest.approx(0.014)
        # the switches of server and adapter
        assert (port.identity.gpu_distance, port.rate_bytes_per_second) == ("PXB", 50e9)
        assert "," not in port.identity.gpu


def test_front_end_ports_beside_ionic_are_no_rails(scan: Scan) -> None:
    ports = by_name(scan("ionic_mi355x"))
    assert {name: (port.role, port.identity.gpu_distance) for name, port in ports.items() if "mlx5" in name} == {
        "mlx5_0:1": ("unknown", "PHB"),
        "mlx5_1:1": ("unknown", "PHB"),
    }


def test_a_rate_file_that_fails_is_made_up_for_by_the_netdev(scan: Scan) -> None:
    fabric = scan("mana")
    assert (speeds(fabric), sources(fabric), fabric.notices) == ([25e9], ["hw_bytes"], ())


def test_functions_that_answer_einval_are_no_rails_and_hide_none(scan: Scan) -> None:
    fabric = scan("limited_functions")
    assert rails(fabric) == [f"mlx5_{index}:1" for index in range(4)]
    assert fabric.notices == (
        "mlx5_8:1, mlx5_9:1, mlx5_10:1, mlx5_11:1: counters/port_xmit_data cannot be read: Invalid argument.",
    )


def test_a_rate_without_a_name_is_doubted_like_sdr(scan: Scan) -> None:
    (notice,) = (text for text in scan("old_kernel").notices if text.startswith("mlx4_0:1: "))
    assert "'10 Gb/sec (4X)', as it also does for a speed that it does not know" in notice


@for_each([*BY_NAME])
def test_notices_stay_the_same_from_scan_to_scan(name: str, tmp_path: Path) -> None:
    BY_NAME[name].build(tmp_path / name)
    inventory = Inventory(tmp_path / name)
    assert len({inventory.scan().notices for _ in range(14)}) == 1
