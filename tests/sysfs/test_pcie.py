"""PCIe links: what the files say, what a link carries, what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ibpulse.agent.sysfs import pcie
from ibpulse.core.model import PcieLink
from tests.sysfs import machines
from tests.sysfs.machines import GEN4, GEN5, NO_LINK, Machine, expand
from tests.sysfs.trees import make_unreadable
from tests.tables import for_each

CARD = "15/15:01.0/16:00.0/17:00.0/18:00.0"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "sys")


def links_of(machine: Machine, place: str = CARD) -> tuple[PcieLink, ...]:
    return pcie.read_links(str(machine.root / expand(place)))


@for_each([("32.0 GT/s PCIe", 32.0), ("2.5 GT/s", 2.5), ("Unknown speed", None), ("0.0 GT/s PCIe", None), ("", None)])
def test_a_speed_is_read_in_each_form_of_the_kernel(text: str, speed: float | None) -> None:
    assert pcie.parse_speed(text) == speed


@for_each([("16", 16), ("1", 1), ("0", None), ("255", None), ("-1", None), ("", None)])
def test_a_width_that_stands_for_an_unknown_one_is_none(text: str, width: int | None) -> None:
    assert pcie.parse_width(text) == width


# the kernel's Documentation and PCI-SIG's tables: GB/s of sixteen lanes, one direction
@pytest.mark.parametrize(
    ("speed", "gigabytes"), [(2.5, 4.0), (5.0, 8.0), (8.0, 15.75), (16.0, 31.51), (32.0, 63.02), (64.0, 128.0)]
)
def test_a_link_of_sixteen_lanes_carries_what_its_generation_does(speed: float, gigabytes: float) -> None:
    assert pcie.count_bytes(speed, 16) == pytest.approx(gigabytes * 1e9, rel=0.001)


def test_a_chain_begins_at_the_last_host_bridge() -> None:
    path = "/sys/devices/pci0000:80/0000:80:00.5/pci10000:80/10000:80:02.0/10000:81:00.0"
    assert pcie.find_chain(path) == ("pci10000:80", "10000:80:02.0", "10000:81:00.0")


@pytest.mark.parametrize("path", ["/sys/devices/virtual/infiniband/rxe0", "", "/sys/devices/pci0000:00"])
def test_a_path_without_a_function_has_no_chain(path: str) -> None:
    assert pcie.find_chain(path) == ()


def test_what_hangs_below_a_function_belongs_to_it() -> None:
    function = "/sys/devices/pci0000:00/0000:08:00.0"
    assert pcie.find_function_folder(f"{function}/mlx5_core.sf.4") == function
    assert pcie.find_function_folder("/sys/devices/virtual/net") == ""


def test_the_links_are_those_between_a_port_and_what_is_plugged_into_it(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD)
    links = links_of(machine)
    assert [(link.upper, link.address) for link in links] == [
        ("0000:15:01.0", "0000:16:00.0"),
        ("0000:17:00.0", "0000:18:00.0"),
    ]
    assert {(link.speed_gts, link.width, link.max_speed_gts, link.max_width) for link in links} == {
        (32.0, 16, 32.0, 16)
    }


def test_the_most_of_a_link_is_what_both_ends_can(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD, link=machines.write_link(GEN4, 4, GEN5, 16))
    machine.rewrite("15/15:01.0/16:00.0/17:00.0", {"max_link_speed": GEN4, "max_link_width": "8"})
    link = links_of(machine)[-1]
    assert (link.speed_gts, link.width, link.max_speed_gts, link.max_width) == (16.0, 4, 16.0, 8)


def test_where_one_end_says_nothing_the_other_counts(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD)
    make_unreadable(machine.root / expand(CARD) / "current_link_speed")
    link = links_of(machine)[-1]
    assert (link.speed_gts, link.width) == (32.0, 16)


def test_a_hidden_root_leaves_a_link_with_one_end() -> None:
    links = pcie.pair_ends([pcie.End("b"), pcie.End("c"), pcie.End("d", 32.0, 16, 32.0, 16)])
    assert [(link.upper, link.address) for link in links] == [("", "b"), ("c", "d")]


def test_a_virtual_function_has_the_link_of_its_physical_one(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD)
    place = CARD.replace("18:00.0", "18:00.1")
    virtual = machine.add_nic("mlx5_1", place, ids=machines.VF, link=NO_LINK)
    (virtual / "physfn").symlink_to("../0000:18:00.0")
    link = links_of(machine, place)[-1]
    assert (link.address, link.speed_gts, link.width) == ("0000:18:00.1", 32.0, 16)


def test_a_port_of_a_virtual_machine_has_no_say(machine: Machine) -> None:
    machine.add_function("00/00:01.0", machines.EMULATED_PORT, link=machines.write_link("2.5 GT/s PCIe", 1))
    machine.add_nic("mlx5_0", "00/00:01.0/01:00.0")
    (link,) = links_of(machine, "00/00:01.0/01:00.0")
    assert (link.max_speed_gts, link.max_width, link.bytes_per_second) == (32.0, 16, pcie.count_bytes(32.0, 16))


def test_the_narrowest_link_counts(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD)
    machine.rewrite("15/15:01.0/16:00.0", {"current_link_width": "4", "max_link_width": "8"})
    assert pcie.narrowest(links_of(machine)) == (pcie.count_bytes(32.0, 4), pcie.count_bytes(32.0, 8))


def test_an_unknown_link_above_the_card_is_passed_over(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD)
    for place in ("15/15:01.0", "15/15:01.0/16:00.0"):
        machine.rewrite(place, NO_LINK)
    assert pcie.narrowest(links_of(machine)) == (pcie.count_bytes(32.0, 16), pcie.count_bytes(32.0, 16))


def test_an_unknown_link_of_the_card_makes_the_way_unknown(machine: Machine) -> None:
    machine.add_nic("mlx5_0", CARD, link=NO_LINK)
    machine.rewrite(CARD.rpartition("/")[0], NO_LINK)
    assert pcie.narrowest(links_of(machine)) == (None, None)
    assert pcie.narrowest(()) == (None, None)


def link(speed: float | None, width: int | None, most: float | None = 32.0, lanes: int | None = 16) -> PcieLink:
    return PcieLink(
        "0000:18:00.0", "", speed, width, most, lanes, pcie.count_bytes(speed, width), pcie.count_bytes(most, lanes)
    )


ABOVE = PcieLink(
    "0000:16:00.0", "0000:15:01.0", 32.0, 4, 32.0, 16, pcie.count_bytes(32.0, 4), pcie.count_bytes(32.0, 16)
)


@for_each(
    {
        "as fast as both ends can": ((link(32.0, 16),), 50e9, "", ""),
        "a downtrained card": (
            *((link(16.0, 16),), 50e9, pcie.DOWNTRAINED),
            "its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s x16, and carries 31.5 GB/s of its "
            "port's 50 GB/s: reseat the card, or check the riser and slot.",
        ),
        "downtrained but wide enough": (
            *((link(32.0, 8),), 25e9, pcie.DOWNTRAINED),
            "its PCIe link runs at 32 GT/s x8, but both ends support 32 GT/s x16: ",
        ),
        "downtrained above the card": (
            *((ABOVE, link(32.0, 16)), 50e9, pcie.DOWNTRAINED),
            "the PCIe link of the switch 0000:16:00.0 above it runs at 32 GT/s x4",
        ),
        "a slow slot": (
            *((link(16.0, 16, 16.0),), 50e9, pcie.SLOW_SLOT),
            "its PCIe path carries 31.5 GB/s at most, less than the 50 GB/s of its port: move the card to a faster "
            "slot.",
        ),
        "a slow slot by now, where the most is unknown": ((link(16.0, 16, None, None),), 50e9, pcie.SLOW_SLOT, ""),
        "a port without a rate": ((link(16.0, 16, 16.0),), None, "", ""),
        "unknown": (
            *((link(None, None, None, None),), 50e9, pcie.UNKNOWN),
            "the kernel does not report the speed of its PCIe link, as in a virtual machine: check it on the host, "
            "or set it in topology.file.",
        ),
        "no link": ((), 50e9, "", ""),
    }
)
def test_links_are_judged(links: tuple[PcieLink, ...], rate: float | None, word: str, begins: str) -> None:
    found = pcie.judge(links, *pcie.narrowest(links), rate)
    assert [verdict.word for verdict in found] == [word] * bool(word)
    assert all(verdict.sentence.startswith(begins) for verdict in found)


def test_half_a_link_is_not_downtrained_by_what_is_not_known() -> None:
    assert not pcie.is_downtrained(link(None, 16))
    assert pcie.is_downtrained(link(None, 8))
