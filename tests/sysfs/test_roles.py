from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ibpulse.agent.sysfs.roles import RoleRule, find_slow_twins
from ibpulse.core.model import COMPUTE, ByteSource, Port, PortId, PortIdentity

SOURCE = ByteSource("port_data", ("/x",), ("/y",), 4)


def make_port(
    device: str,
    gigabits: float | None = 400,
    *,
    layer: str = "InfiniBand",
    board: str = "MT_0000000838",
    source: ByteSource | None = SOURCE,
) -> Port:
    """A port of a ConnectX-7 board; no rate means that it is down."""
    identity = PortIdentity(link_layer=layer, board=board, hca_type="MT4129", driver="mlx5_core")
    rate = None if gigabits is None else gigabits * 1e9 / 8
    return Port(PortId(device, 1), identity, rate is not None, "ACTIVE" if rate else "DOWN", rate, source)


def assign(ports: Iterable[Port], patterns: Iterable[str] = ()) -> tuple[Port, ...]:
    return RoleRule({COMPUTE: tuple(patterns)}).assign(tuple(ports)).ports


def rails_of(ports: Iterable[Port], patterns: Iterable[str] = ()) -> list[str]:
    return [port.id.device for port in assign(ports, patterns) if port.rail]


def test_ports_of_the_highest_rate_are_rails() -> None:
    assert rails_of([make_port("a"), make_port("b"), make_port("c", 200)]) == ["a", "b"]


def test_an_ethernet_port_is_no_rail_beside_infiniband() -> None:
    assert rails_of([make_port("ib"), make_port("eth", 800, layer="Ethernet", board="other")]) == ["ib"]


def test_ethernet_ports_are_rails_on_a_node_without_infiniband() -> None:
    ports = [make_port("a", layer="Ethernet"), make_port("b", layer="Ethernet"), make_port("m", 25, layer="Ethernet")]
    assert rails_of(ports) == ["a", "b"]


def test_a_rail_that_is_down_is_still_a_rail() -> None:
    assert rails_of([make_port("a"), make_port("b", None)]) == ["a", "b"]


def test_a_second_port_that_no_card_uses_is_no_rail() -> None:
    unused = replace(make_port("a", None), id=PortId("a", 2))
    assert rails_of([make_port("a"), unused, make_port("b", None)]) == ["a", "b"]


def test_a_port_of_another_board_that_is_down_is_no_rail() -> None:
    assert rails_of([make_port("a"), make_port("b", None, board="MT_0000000001")]) == ["a"]


def test_a_port_without_a_byte_source_is_no_rail() -> None:
    assert rails_of([make_port("a"), make_port("b", 800, source=None)]) == ["a"]


def test_with_all_ports_down_nothing_tells_them_apart() -> None:
    assert rails_of([make_port("a", None), make_port("b", None), make_port("c", None, source=None)]) == ["a", "b"]


def test_patterns_replace_the_rule() -> None:
    assert rails_of([make_port("mlx5_0"), make_port("mlx5_1", 100, layer="Ethernet")], ["mlx5_1"]) == ["mlx5_1"]


def test_a_pattern_can_name_a_port() -> None:
    assert rails_of([make_port("mlx5_0"), make_port("mlx5_1")], ["*_0:1", "*_1:2"]) == ["mlx5_0"]


def test_no_ports_have_no_rails() -> None:
    assert assign(()) == ()


def test_the_order_of_the_ports_stays() -> None:
    ports = [make_port("b", 100), make_port("a")]
    assert [port.id.device for port in assign(ports)] == ["b", "a"]


def test_sixty_four_ports_are_all_told() -> None:
    assert len(rails_of(make_port(f"mlx5_{index}") for index in range(64))) == 64


def test_a_slow_port_of_the_rails_hardware_is_found() -> None:
    ports = assign([make_port("a"), make_port("b", 200), make_port("c", 200, board="other")])
    assert [port.id.device for port in find_slow_twins(ports)] == ["b"]


def test_a_port_that_is_down_is_no_slow_twin() -> None:
    ports = assign([make_port("a"), make_port("b", None)], ["a"])
    assert find_slow_twins(ports) == ()


@pytest.mark.parametrize(
    ("gigabits", "rail", "role"),
    [(10, 400, "management"), (25, 100, "management"), (25, 50, "unknown"), (40, 400, "unknown")],
)
def test_only_ethernet_far_slower_than_the_rails_is_for_management(gigabits: float, rail: float, role: str) -> None:
    slow = make_port("eth", gigabits, layer="Ethernet", board="other")
    slow = replace(slow, identity=replace(slow.identity, kind="pf"))
    assert assign([make_port("ib", rail), slow])[1].role == role
    virtual = replace(slow, identity=replace(slow.identity, kind="vf"))
    assert assign([make_port("ib", rail), virtual])[1].role == "unknown"


def test_ports_that_a_pattern_names_do_not_compete_for_the_rails() -> None:
    ports = [make_port("ib", 200, board="other"), make_port("eth", layer="Ethernet")]
    found = RoleRule({"storage": ["ib"]}).assign(ports).ports
    assert [port.role for port in found] == ["storage", "compute"]
