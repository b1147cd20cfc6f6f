"""What is said of the tree, its devices, its rails and their likeness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ibpulse.agent.doctor import Level, examine, worst_level
from ibpulse.agent.doctor.facts import Folders, Mount
from ibpulse.agent.doctor.ports import NEVER
from ibpulse.agent.sysfs.byte_counters import LEGACY, NO_BYTES, UNKNOWN_BYTES
from ibpulse.agent.sysfs.device import NO_PORTS
from ibpulse.agent.sysfs.kinds import NEVER_RAILS
from ibpulse.core.model import DevicePlace, Port, SamplerHealth, Verdict
from tests.doctor.making import (
    make_card,
    make_facts,
    make_port,
    make_port_samples,
    make_topology,
    only_trouble,
    sentences,
    troubles,
)
from tests.tables import for_each

ETHERNET = {"link_layer": "Ethernet", "hca_type": "MT4126", "rate": "100 Gb/sec (4X EDR)"}
RAILS = (make_port("mlx5_0"), make_port("mlx5_1"))


def test_a_healthy_node_is_all_ok() -> None:
    assert troubles(make_facts()) == []


def test_a_tree_without_the_class_has_nothing_to_sample() -> None:
    facts = make_facts((), tree={"listed": None, "admitted": ()}, no_sampling="no port has byte counters")
    finding = only_trouble(facts)
    assert (finding.level, finding.sentence) == (Level.FAIL, "has no class/infiniband.")
    assert "set path.sysfs to the mount point of the host's /sys" in finding.advice


def test_a_class_without_devices_has_nothing_to_sample() -> None:
    facts = make_facts((), tree={"listed": ()}, no_sampling="no port has byte counters")
    assert only_trouble(facts).sentence == "has no devices in class/infiniband."


@for_each([("mlx5_0", "mlx5_1"), ("mlx5_1",)])
def test_links_to_devices_that_are_not_mounted_are_a_failure(*absent: str) -> None:
    here = [port for port in RAILS if port.id.device not in absent]
    tree = {"listed": ("mlx5_0", "mlx5_1"), "admitted": ("mlx5_0", "mlx5_1"), "absent": absent}
    facts = make_facts(here, tree=tree, no_sampling="" if here else "no port has byte counters")
    (finding,) = (finding for finding in troubles(facts) if finding.subject == "path.sysfs")
    names = ", ".join(absent)
    assert finding.sentence == f"class/infiniband links to devices that are not here: {names}."
    assert finding.advice.startswith("Mount the whole /sys of the host")
    answering = [sentence for sentence in sentences(facts, "devices") if "answer" in sentence]
    assert answering == ([": 1 device answers."] if here else [])


def test_a_device_without_ports_is_a_failure() -> None:
    finding = only_trouble(make_facts(fabric={"notices": (f"mlx5_2: {NO_PORTS}",)}))
    assert (finding.level, finding.subject, finding.sentence) == (Level.FAIL, "mlx5_2", NO_PORTS)


@for_each([(None, Level.FAIL), ((), Level.FAIL), (("mlx5_0", "mlx5_1"), Level.WARN)])
def test_slingshot_is_said_not_to_be_supported(listed: tuple[str, ...] | None, level: Level) -> None:
    ports = RAILS if listed else ()
    tree = {"listed": listed, "admitted": listed or (), "unsupported": {"Slingshot": 4}}
    finding = only_trouble(make_facts(ports, tree=tree, no_sampling="" if listed else "no port has byte counters"))
    assert (finding.level, finding.subject) == (level, "Slingshot")
    assert finding.sentence == "is not supported: it has no RDMA devices, and 4 adapters here cannot be sampled."


def test_patterns_that_leave_nothing_are_named() -> None:
    facts = make_facts(
        (), tree={"listed": ("mlx5_0", "mlx5_1"), "admitted": ()}, no_sampling="no port has byte counters"
    )
    finding = only_trouble(facts) if len(troubles(facts)) == 1 else troubles(facts)[0]
    assert finding.sentence == "and ports.include exclude all 2 devices of this node."


def test_the_view_of_another_namespace_is_one_failure() -> None:
    ports = [replace(port, source=None, problem="no file of this port counts bytes.") for port in RAILS]
    folders = {port.id: Folders(False, False) for port in ports}
    facts = make_facts(ports, tree={"folders": folders}, no_sampling="no port has byte counters")
    finding = only_trouble(facts)
    assert "as the sysfs of another network namespace does" in finding.sentence
    assert "hostNetwork is not needed" in finding.advice


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (Mount("/host/sys", "sysfs", True), "sysfs mounted at /host/sys, read-only."),
        (Mount("/sys", "sysfs", False), "sysfs mounted at /sys, writable."),
        (Mount("/", "ext4", False), "holds plain files, not a kernel's sysfs"),
        (None, "its mount is unknown."),
    ],
)
def test_the_mount_is_told(mount: Mount | None, words: str) -> None:
    facts = make_facts(tree={"mount": mount})
    assert words in sentences(facts, "tree")[0]
    assert troubles(facts) == []


def test_the_machine_is_not_judged_over_a_tree_that_is_no_kernels() -> None:
    facts = make_facts(tree={"mount": Mount("/", "ext4", False)}, machine={"clock": None}, sampling={"quota_cpus": 0.2})
    quota = examine(facts, ["cpu"])[0]
    assert (quota.level, quota.advice) == (Level.SKIP, "")
    assert quota.meaning.startswith("Not judged: ")
    assert "0.2 CPUs" in quota.sentence


def test_a_stuck_device_is_one_failure() -> None:
    facts = make_facts(tree={"listed": ("mlx5_0", "mlx5_1", "mlx5_2"), "admitted": ("mlx5_0", "mlx5_1", "mlx5_2")})
    finding = only_trouble(replace(facts, fabric=replace(facts.fabric, stuck_devices=("mlx5_2",))))
    assert (finding.subject, finding.level) == ("mlx5_2", Level.FAIL)
    assert finding.sentence.startswith("does not answer")
    assert "Until then, add it to ports.exclude." in finding.advice


def test_a_device_that_the_sampler_tries_alone_is_one_failure() -> None:
    facts = make_facts(
        sampling={"health": SamplerHealth(quarantined_devices=("mlx5_1",)), "missed_ticks": 60},
        samples={
            "mlx5_1": make_port_samples(samples=0, reads=None, rates=None, standing=None, resolution_seconds=None)
        },
    )
    assert only_trouble(facts).subject == "mlx5_1"


def test_devices_left_out_by_patterns_are_told_and_fine() -> None:
    facts = make_facts(tree={"listed": ("mlx5_0", "mlx5_1", "mlx5_9")})
    assert sentences(facts, "devices") == [
        "mlx5_9: is excluded by ports.include and ports.exclude; none of its files is read.",
        ": 2 devices answer.",
    ]


def test_one_device_answers() -> None:
    assert sentences(make_facts([RAILS[0]]), "devices") == [": 1 device answers."]


def test_a_card_without_its_device_is_a_failure() -> None:
    facts = make_facts()
    cards = (*(facts.tree.cards or ()), make_card("0000:3d:00.0"))
    finding = only_trouble(replace(facts, tree=replace(facts.tree, cards=cards)))
    assert (finding.subject, finding.level) == ("0000:3d:00.0", Level.FAIL)
    assert finding.sentence == "is a card of the rails' model, but it has no RDMA device."


def test_a_card_of_another_make_may_be_without_a_device() -> None:
    facts = make_facts()
    cards = (*(facts.tree.cards or ()), make_card("0000:3d:00.0", ("0x8086", "0x1592"), infiniband=False))
    assert troubles(replace(facts, tree=replace(facts.tree, cards=cards))) == []


def test_the_second_function_of_a_bond_is_not_missed() -> None:
    bond = make_port("mlx5_bond_0", identity={"kind": "bond", "pci_address": "0000:18:00.0"})
    facts = make_facts([bond])
    cards = (*(facts.tree.cards or ()), make_card("0000:18:00.1"))
    assert troubles(replace(facts, tree=replace(facts.tree, cards=cards))) == []


def test_a_rail_whose_layer_the_kernel_does_not_know_is_told_without_it() -> None:
    facts = make_facts([make_port("rdmap0", identity={"link_layer": "Unknown"})])
    assert sentences(facts, "rails") == ["rdmap0:1: is a rail: link ACTIVE, 50.0 GB/s."]


def test_every_kind_that_is_never_a_rail_says_why() -> None:
    assert set(NEVER) == set(NEVER_RAILS)


def test_without_rails_every_infiniband_card_must_have_a_device() -> None:
    facts = make_facts([make_port("mlx5_an0", identity=ETHERNET, rail=False)])
    cards = (
        make_card("0000:3d:00.0"),
        make_card("0000:3e:00.0", ("0x15b3", "0x101d"), infiniband=False),
    )
    facts = replace(facts, tree=replace(facts.tree, cards=cards))
    assert [finding.subject for finding in examine(facts, ["devices"]) if finding.level is Level.FAIL] == [
        "0000:3d:00.0"
    ]


def test_a_device_that_goes_away_during_the_look_is_named() -> None:
    facts = make_facts(later=[RAILS[0]], samples={"mlx5_1": make_port_samples(gone=True, errors=2)})
    finding = only_trouble(facts)
    assert (finding.subject, finding.sentence) == ("mlx5_1", "disappeared while doctor was running.")


def test_a_port_that_only_the_daemon_remembers_is_named() -> None:
    facts = make_facts(sampling={"by_daemon": True, "remembered": ("mlx5_2:1",)})
    finding = only_trouble(facts)
    assert (finding.subject, finding.level) == ("mlx5_2:1", Level.FAIL)
    assert finding.sentence == "disappeared; the daemon sampled it earlier."


def test_the_daemons_memory_names_the_device_of_a_bare_card() -> None:
    facts = make_facts(sampling={"by_daemon": True, "remembered": ("mlx5_2:1",)})
    cards = (*(facts.tree.cards or ()), make_card("0000:3d:00.0"))
    finding = only_trouble(replace(facts, tree=replace(facts.tree, cards=cards)))
    assert finding.sentence.endswith("no RDMA device. The daemon sampled mlx5_2:1 earlier.")


def test_a_rail_that_is_down_is_a_failure() -> None:
    facts = make_facts([RAILS[0], replace(RAILS[1], active=False, state="DOWN", rate_bytes_per_second=None)])
    finding = only_trouble(facts)
    assert (finding.subject, finding.sentence) == ("mlx5_1:1", "is a rail, but its link is DOWN.")


def test_a_rail_without_a_known_state_says_so() -> None:
    facts = make_facts([RAILS[0], replace(RAILS[1], active=False, state="")])
    assert "its link is in an unknown state" in only_trouble(facts).sentence


def test_a_rail_with_a_problem_is_a_warning() -> None:
    facts = make_facts([RAILS[0], replace(RAILS[1], problem="rate cannot be read: Invalid argument.")])
    finding = only_trouble(facts)
    assert (finding.level, finding.sentence) == (Level.WARN, "is a rail: rate cannot be read: Invalid argument.")


def test_a_rail_of_unknown_rate_is_told() -> None:
    facts = make_facts([RAILS[0], replace(RAILS[1], rate_bytes_per_second=None)])
    assert "mlx5_1:1: is a rail: InfiniBand link ACTIVE, unknown data rate." in sentences(facts, "rails")


def test_a_port_of_the_rails_make_that_is_not_sampled_is_a_failure() -> None:
    problem = "counters/port_xmit_data cannot be read: Invalid argument."
    facts = make_facts([RAILS[0], replace(RAILS[1], source=None, rail=False, problem=problem)])
    finding = only_trouble(facts)
    assert (finding.level, finding.sentence) == (Level.FAIL, f"is not sampled: {problem}")


def test_a_port_of_another_make_that_is_not_sampled_is_a_warning() -> None:
    port = make_port("mlx5_4", identity={"board": "NVD0000000054"}, source=None, rail=False, problem="refuses.")
    assert only_trouble(make_facts([*RAILS, port])).level is Level.WARN


def test_a_slow_twin_is_a_warning() -> None:
    slow = replace(RAILS[1], rail=False, rate_bytes_per_second=25e9)
    finding = only_trouble(make_facts([RAILS[0], slow]))
    assert finding.sentence == "is not a rail: it is of the rails' model but runs at 25.0 GB/s."


NAMED: dict[str, object] = {"roles": {"compute": ("mlx5_0",)}}


def test_a_rail_that_trained_down_is_a_warning() -> None:
    slow = replace(RAILS[1], rate_bytes_per_second=25e9, trained_down=True)
    finding = only_trouble(make_facts([RAILS[0], slow]))
    assert (finding.level, finding.subject) == (Level.WARN, str(slow.id))
    assert finding.sentence == ("is a rail that trained down: it runs at 25.0 GB/s, others of its make are faster.")
    assert not sentences(make_facts([RAILS[0], slow]), "likeness")


def test_a_port_near_no_gpu_says_so_if_the_rails_are_near_some() -> None:
    rail = make_port("mlx5_0", identity={"gpu": "0000:1b:00.0", "gpu_distance": "PXB"})
    facts = make_facts([rail, make_port("mlx5_9", rail=False)])
    assert sentences(facts, "rails")[-1].endswith("is not a rail: it is near no GPU, but the rails are.")


@pytest.mark.parametrize(
    ("port", "options", "why"),
    [
        (
            make_port("mlx5_an0", identity=ETHERNET, rail=False),
            {},
            "its link layer is Ethernet, but the rails are InfiniBand",
        ),
        (make_port("x0", identity={"link_layer": "", "driver": "d"}, rail=False), {}, "its link layer is unknown"),
        (
            make_port("mlx5_9", rail=False),
            NAMED,
            "no pattern in ports.roles matches it as compute",
        ),
        (
            make_port("mlx5_9", identity={"kind": "twin"}, rail=False),
            {},
            "it shares its PCI function with another device",
        ),
        (
            make_port("mlx5_9", identity={"kind": "unused"}, rail=False),
            {},
            "this port of a multiplane card carries no data",
        ),
        (
            make_port("mlx5_9", identity={"board": "B"}, rail=False, active=False, state="DOWN"),
            {},
            "its link is DOWN, and it is not of the rails' model",
        ),
        (make_port("mlx5_9", identity={"board": "B"}, rail=False, rate_bytes_per_second=None), {}, "rate is unknown"),
        (
            make_port("mlx5_9", identity={"board": "B"}, rail=False, rate_bytes_per_second=12.5e9),
            {},
            "it runs at 12.5 GB/s, but the rails are faster",
        ),
        (make_port("mlx5_9", identity={"board": "B"}, rail=False, role="storage"), {}, "it is for storage"),
    ],
)
def test_a_port_that_is_no_rail_says_why(port: Port, options: dict[str, object], why: str) -> None:
    facts = make_facts([*RAILS, port], options=options)
    assert why in sentences(facts, "rails")[-1]
    assert worst_level(examine(facts, ["rails"])) is Level.OK


def test_a_node_without_a_rail_is_a_failure() -> None:
    facts = make_facts([make_port("mlx5_9", rail=False, identity={"board": "B"})], options=NAMED)
    assert [finding.sentence for finding in troubles(facts)] == ["No port of this node is a rail."]


def test_remarks_of_the_scan_are_passed_on() -> None:
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


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("firmware", "28.39.1002", "firmware 28.39.1002, but 2 of 3 links up have 28.41.1000"),
        ("board", "MT_0000000840", "board MT_0000000840"),
        ("driver", "mlx4_core", "driver mlx4_core"),
    ],
)
def test_rails_that_differ_are_named(field: str, value: str, what: str) -> None:
    facts = make_facts([*RAILS, make_port("mlx5_2", identity={field: value})])
    finding = only_trouble(facts)
    assert (finding.subject, finding.topic) == ("mlx5_2:1", "likeness")
    assert what in finding.sentence


def test_a_rail_of_another_rate_is_named() -> None:
    slow = make_port("mlx5_2", rate_bytes_per_second=25e9)
    assert only_trouble(make_facts([*RAILS, slow], options={"roles": {"compute": ("mlx5_*",)}})).sentence == (
        "has rate 25.0 GB/s, but 2 of 3 links up have 50.0 GB/s."
    )


def test_the_same_rate_under_another_label_is_no_difference() -> None:
    assert troubles(make_facts([*RAILS, make_port("mlx5_2", identity={"rate": "400 Gb/sec (8X HDR)"})])) == []


def test_a_rail_of_unknown_rate_is_not_compared() -> None:
    assert troubles(make_facts([*RAILS, make_port("mlx5_2", rate_bytes_per_second=None)])) == []


@pytest.mark.parametrize(
    ("driver", "problem", "advice"),
    [
        (
            "mlx5_core",
            "counters/port_xmit_data cannot be read: Invalid argument.",
            "Check the kernel log for errors from",
        ),
        ("i40e", "counters/port_xmit_data says 'N/A (no PMA)': the driver has no counters.", "Its driver has no "),
        ("mthca", LEGACY, "It is sampled as soon as one of its counters exceeds 32 bits"),
        ("rdma_rxe", NO_BYTES, "Soft-RoCE counts bytes from Linux 7.2 on (rxe_process_mad): upgrade the kernel."),
        ("hns", NO_BYTES, "Its driver shows no file that counts bytes; the driver of a newer kernel may."),
        (
            "frob",
            f"its driver frob names bytes in hw_counters/x, but {UNKNOWN_BYTES}",
            "Send a report as described in ",
        ),
    ],
)
def test_a_port_without_bytes_has_the_advice_for_its_reason(driver: str, problem: str, advice: str) -> None:
    port = make_port("x0", identity={"driver": driver}, source=None, rail=False, problem=problem)
    finding = only_trouble(make_facts([*RAILS, port]))
    assert finding.advice.startswith(advice)
    assert finding.advice.endswith("If it is not a rail, add it to ports.exclude.")


def test_rails_on_different_pcie_paths_are_named() -> None:
    places = (
        DevicePlace("mlx5_0", pcie_bytes_per_second=63e9),
        DevicePlace("mlx5_1", pcie_bytes_per_second=31.5e9),
        DevicePlace("mlx5_2", pcie_bytes_per_second=63e9),
    )
    facts = make_facts([*RAILS, make_port("mlx5_2")], fabric={"topology": make_topology(places)})
    finding = only_trouble(facts)
    assert finding.sentence.startswith("has PCIe path 31.5 GB/s, but 2 of 3 links up have 63 GB/s")


def test_a_faulty_pcie_path_is_named_with_its_advice() -> None:
    sentence = "its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s x16: reseat the card."
    places = (DevicePlace("mlx5_0", verdicts=(Verdict("downtrained", sentence),)), DevicePlace("mlx5_9"))
    facts = make_facts([RAILS[0]], fabric={"topology": make_topology(places), "notices": (f"mlx5_0: {sentence}",)})
    finding = only_trouble(facts)
    assert finding.sentence == "its PCIe link runs at 16 GT/s x16, but both ends support 32 GT/s x16."
    assert finding.advice == "Reseat the card."


def test_a_pcie_path_of_unknown_speed_is_no_fault() -> None:
    places = (DevicePlace("mlx5_0", verdicts=(Verdict("unknown", "the kernel does not say."),)),)
    facts = make_facts([RAILS[0]], fabric={"topology": make_topology(places)})
    assert sentences(facts, "pcie") == ["mlx5_0: has a PCIe path whose speed the kernel does not report."]
