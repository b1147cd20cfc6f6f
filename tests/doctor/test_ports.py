"""The slow counters of ports, and what doctor says of rails, other ports, PCIe paths and counter files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ibpulse.agent.doctor import Level, examine, worst_level
from ibpulse.agent.doctor.facts import Counts, Facts
from ibpulse.agent.doctor.ports import READ_TWICE, join_counts, read_counts
from ibpulse.agent.sysfs.byte_counters import LEGACY, NO_BYTES, UNKNOWN_BYTES
from ibpulse.agent.sysfs.device import NO_PORTS
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.core.model import DevicePlace, Port, PortId, Verdict
from tests.doctor.making import assert_only, make_facts, make_port, make_topology, only_trouble, sentences, troubles
from tests.sysfs.opened import Opened
from tests.sysfs.trees import Tree, make_unreadable
from tests.tables import for_each
from tests.virtual.world import SECOND, World

RAILS = (make_port("mlx5_0"), make_port("mlx5_1"))
OTHER = {"board": "B"}
NAMED: dict[str, Any] = {"roles": {"compute": ("mlx5_0",)}}
PORT = PortId("mlx5_0", 1)


def second(**changes: Any) -> Facts:
    """Two rails, of which the second is changed."""
    return make_facts([RAILS[0], replace(RAILS[1], **changes)])


def third(*, identity: dict[str, str] | None = None, **changes: Any) -> Facts:
    """Two rails and a third port."""
    return make_facts([*RAILS, make_port("mlx5_2", identity=identity, **changes)])


def at_places(*places: DevicePlace, rails: int = 1, **fabric: Any) -> Facts:
    ports = [make_port(f"mlx5_{number}") for number in range(rails)]
    return make_facts(ports, fabric={"topology": make_topology(places), **fabric})


def counting(name: str, reason: str = "cannot be read: Invalid argument") -> dict[str, Counts]:
    """Counts of the second rail, one of which has no value."""
    return {"mlx5_1": Counts({}, {}, (), {name: reason})}


SLOW_LINK = "its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s x16"


# what the pages of the families of hardware show is not repeated here
@for_each(
    {
        "FAIL rails mlx5_1:1: is a rail, but its link is in an unknown state.": second(active=False, state=""),
        "WARN rails mlx5_1:1: is a rail: rate cannot be read: Invalid argument.": second(
            problem="rate cannot be read: Invalid argument."
        ),
        "WARN rails mlx5_2:1: is not sampled: refuses.": third(
            identity={"board": "NVD0000000054"}, source=None, rail=False, problem="refuses."
        ),
        "WARN rails mlx5_1:1: is not a rail: it is of the rails' model but runs at 25.0 GB/s.": second(
            rail=False, rate_bytes_per_second=25e9
        ),
        "WARN rails mlx5_1:1: is a rail that trained down: it runs at 25.0 GB/s, others of its make are "
        "faster.": second(rate_bytes_per_second=25e9, trained_down=True),
        f"FAIL remarks mlx5_2: {NO_PORTS}": make_facts(fabric={"notices": (f"mlx5_2: {NO_PORTS}",)}),
        "WARN likeness mlx5_2:1: has firmware 28.39.1002, but 2 of 3 links up have 28.41.1000": third(
            identity={"firmware": "28.39.1002"}
        ),
        "WARN likeness mlx5_2:1: has rate 25.0 GB/s, but 2 of 3 links up have 50.0 GB/s.": make_facts(
            [*RAILS, make_port("mlx5_2", rate_bytes_per_second=25e9)], options={"roles": {"compute": ("mlx5_*",)}}
        ),
        "WARN likeness mlx5_1:1: has PCIe path 31.5 GB/s, but 2 of 3 links up have 63 GB/s": at_places(
            *(DevicePlace(f"mlx5_{n}", pcie_bytes_per_second=rate) for n, rate in enumerate((63e9, 31.5e9, 63e9))),
            rails=3,
        ),
        f"WARN pcie mlx5_0: {SLOW_LINK}. ~ Reseat the card.": at_places(
            DevicePlace("mlx5_0", verdicts=(Verdict("downtrained", f"{SLOW_LINK}: reseat the card."),)),
            DevicePlace("mlx5_9"),
            notices=(f"mlx5_0: {SLOW_LINK}: reseat the card.",),
        ),
    }.items()
)
def test_a_fault_of_a_port_is_the_only_finding(line: str, facts: Facts) -> None:
    assert_only(facts, line)


@for_each(
    [
        third(identity={"rate": "400 Gb/sec (8X HDR)"}),
        third(rate_bytes_per_second=None),
        at_places(DevicePlace("mlx5_0", verdicts=(Verdict("unknown", "no word."),))),
    ]
)
def test_ports_without_a_fault_have_no_finding(facts: Facts) -> None:
    assert troubles(facts) == []


@for_each(
    [
        (make_port("x0", identity={"link_layer": "", "driver": "d"}, rail=False), {}, "its link layer is unknown"),
        (make_port("mlx5_2", rail=False), NAMED, "no pattern in ports.roles matches it as compute"),
        (make_port("mlx5_2", identity={"kind": "twin"}, rail=False), {}, "it shares its PCI function with another"),
        (
            make_port("mlx5_2", identity=OTHER, rail=False, active=False, state="DOWN"),
            {},
            "its link is DOWN, and it is not of the rails' model",
        ),
        (make_port("mlx5_2", identity=OTHER, rail=False, rate_bytes_per_second=None), {}, "rate is unknown"),
        (
            make_port("mlx5_2", identity=OTHER, rail=False, rate_bytes_per_second=12.5e9),
            {},
            "it runs at 12.5 GB/s, but the rails are faster",
        ),
        (make_port("mlx5_2", identity=OTHER, rail=False, role="storage"), {}, "it is for storage"),
    ]
)
def test_a_port_that_is_no_rail_says_why(port: Port, options: dict[str, object], why: str) -> None:
    facts = make_facts([*RAILS, port], options=options)
    assert why in sentences(facts, "rails")[-1]
    assert worst_level(examine(facts, ["rails"])) is Level.OK


def test_an_unknown_rate_and_an_unknown_link_layer_are_named() -> None:
    assert "mlx5_1:1: is a rail: InfiniBand link ACTIVE, unknown data rate." in sentences(
        second(rate_bytes_per_second=None), "rails"
    )
    facts = make_facts([make_port("rdmap0", identity={"link_layer": "Unknown"})])
    assert sentences(facts, "rails") == ["rdmap0:1: is a rail: link ACTIVE, 50.0 GB/s."]


def test_only_new_remarks_of_the_scan_are_findings() -> None:
    notices = (
        "There is no thing",
        "mlx5_0:1: it is the bond bond0: its rate is that of one link, so its utilisation may exceed 1.",
        "mlx5_1:1: irdma counts IP octets, without the Ethernet header.",
        "smi1: ignored, because it shows the single planes of mlx5_0.",
        "mlx5_7: it did not answer in time; showing its last known ports.",
        "mlx5_1:1: refuses.",
    )
    facts = make_facts([RAILS[0], replace(RAILS[1], problem="refuses.")], fabric={"notices": notices})
    assert [(one.level, one.subject) for one in examine(facts, ["remarks"])] == [
        (Level.WARN, "mlx5_0:1"),
        (Level.OK, "mlx5_1:1"),
        (Level.OK, "smi1"),
    ]


@for_each(
    [
        ("mthca", LEGACY, "It is sampled as soon as one of its counters exceeds 32 bits"),
        ("hns", NO_BYTES, "Its driver shows no file that counts bytes; the driver of a newer kernel may."),
        (
            "frob",
            f"its driver frob names bytes in hw_counters/x, but {UNKNOWN_BYTES}",
            "Send a report as described in ",
        ),
    ]
)
def test_a_port_without_bytes_has_the_advice_for_its_reason(driver: str, problem: str, advice: str) -> None:
    port = make_port("x0", identity={"driver": driver}, source=None, rail=False, problem=problem)
    finding = only_trouble(make_facts([*RAILS, port]))
    assert finding.advice.startswith(advice)
    assert finding.advice.endswith("If it is not a rail, add it to ports.exclude.")


@for_each([("counters/VL15_dropped", False), ("hw_counters/out_of_buffer", True)])
def test_counters_of_the_physical_port_may_refuse_a_virtual_function(file: str, judged: bool) -> None:
    facts = make_facts([RAILS[0], make_port("mlx5_1", identity={"kind": "vf"})], counts=counting(file))
    assert ("files" in {finding.topic for finding in troubles(facts)}) is judged
    usual = "Invalid argument. This is normal on a virtual function; the daemon skips such files."
    assert sentences(facts, "files")[-1].endswith(usual) is not judged


# the slow counters


def test_full_and_unreadable_counters_are_told(tree: Tree) -> None:
    tree.add("mlx5_0")
    make_unreadable(tree.port("mlx5_0") / "counters/VL15_dropped")
    (tree.port("mlx5_0") / "counters/symbol_error").write_text("rubbish\n")
    found = read_counts(tree.root, Inventory(tree.root).scan().ports)[PORT]
    assert found.full == ("counters/link_downed", "counters/port_xmit_wait")
    assert found.end["counters/port_xmit_data"] == 205143497464492
    assert found.unreadable == {
        "counters/VL15_dropped": "cannot be read: Invalid argument",
        "counters/symbol_error": "holds 'rubbish', which is not a count",
    }


def test_the_file_that_renews_the_cache_is_read_first(tree: Tree, opened: Opened) -> None:
    tree.add("mlx5_0")
    ports = Inventory(tree.root).scan().ports
    opened.clear()
    read_counts(tree.root, ports)
    files = [path for path in opened.paths() if "/hw_counters/" in path]
    assert files[0].endswith("/rx_write_requests")


def test_only_the_telling_ones_are_read_when_asked(tree: Tree) -> None:
    tree.add("mlx5_0")
    found = read_counts(tree.root, Inventory(tree.root).scan().ports, READ_TWICE)[PORT]
    assert set(found.end) == {
        "hw_counters/rx_write_requests",
        "counters/link_downed",
        "counters/link_error_recovery",
    }


def test_a_hung_device_does_not_delay_the_others(tree: Tree, world: World) -> None:
    tree.add("mlx5_0")
    tree.add("mlx5_1", pci="0000:19:00.0")
    ports = Inventory(tree.root).scan().ports
    world.hang("mlx5_0", tree.root, "symbol_error")
    began_ns = world.monotonic_ns
    assert set(read_counts(tree.root, ports)) == {PortId("mlx5_1", 1)}
    assert world.monotonic_ns - began_ns == 1.5 * SECOND


def test_rises_are_counted_between_two_readings(tree: Tree) -> None:
    tree.add("mlx5_0")
    ports = Inventory(tree.root).scan().ports
    begin = read_counts(tree.root, ports, READ_TWICE)
    (tree.port("mlx5_0") / "hw_counters/rx_write_requests").write_text("12\n")
    joined = join_counts(begin, read_counts(tree.root, ports))[PORT]
    assert joined.rise("hw_counters/rx_write_requests") == 12
    assert joined.rise("counters/link_downed") == 0
    assert joined.rise("counters/nothing") == 0
    assert join_counts({}, read_counts(tree.root, ports))[PORT].rise("hw_counters/rx_write_requests") == 0


def test_ports_without_bytes_are_not_asked(tree: Tree, opened: Opened) -> None:
    folder = tree.add("mlx5_0")
    for name in ("port_xmit_data", "port_rcv_data"):
        Path(folder, "ports/1/counters", name).unlink()
    ports = Inventory(tree.root).scan().ports
    opened.clear()
    assert read_counts(tree.root, ports) == {}
    assert opened.paths() == []
