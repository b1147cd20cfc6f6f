"""What doctor says about GPUDirect, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ibpulse.agent.doctor import Finding, Level, examine
from ibpulse.agent.doctor.facts import Facts, GpuDirectFacts, Mount, PciFacts
from ibpulse.core.model import DevicePlace, Gpu, Topology
from tests.doctor.making import make_facts, make_port

ABOVE = ("pci0000:15", "0000:15:01.0", "0000:16:00.0")
NIC, GPU, PORTS = "0000:18:00.0", "0000:19:00.0", ("0000:17:00.0", "0000:17:01.0")
CARD = Gpu(GPU, "0x10de", "0x2330", "H100 80GB", "SXM", 0, (*ABOVE, PORTS[1], GPU))
PLACE = DevicePlace("mlx5_0", "pf", NIC, 0, chain=(*ABOVE, PORTS[0], NIC), gpus=(GPU,), gpu_distance="PIX")
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 16:30:26 UTC 2024"
READY = GpuDirectFacts(
    frozenset({"nvidia", "nvidia_peermem"}),
    "580.95.05",
    OPEN,
    {NIC: PciFacts("identity", False, True), GPU: PciFacts("identity")} | {port: PciFacts("", False) for port in PORTS},
)


def make_node(
    *,
    place: Mapping[str, Any] | None = None,
    card: Mapping[str, Any] | None = None,
    functions: Mapping[str, PciFacts] | None = None,
    direct: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Facts:
    """One rail under the same switch as its H100, ready for GPUDirect but for the changes."""
    gpu = replace(CARD, **(card or {}))
    here = replace(PLACE, **(place or {}))
    facts = make_facts(
        [make_port()], fabric={"topology": Topology((here,), (gpu,), ((here.gpu_distance,),))}, **changes
    )
    known = replace(READY, functions={**READY.functions, **(functions or {})})
    return replace(facts, gpudirect=replace(known, **(direct or {})))


def findings(facts: Facts, *, part: str = "") -> list[Finding]:
    return [one for one in examine(facts, ["gpudirect"]) if part in one.sentence]


def only(facts: Facts, part: str) -> Finding:
    found = findings(facts, part=part)
    assert len(found) == 1, findings(facts)
    return found[0]


def test_a_node_that_is_ready_has_no_warning() -> None:
    found = findings(make_node())
    assert [(one.level, one.subject, one.sentence) for one in found] == [
        (Level.OK, "", "GPU memory is open to network cards: nvidia_peermem is loaded."),
        (Level.OK, NIC, "is in IOMMU pass-through mode."),
        (Level.OK, GPU, "is in IOMMU pass-through mode."),
        (Level.OK, "mlx5_0", f"reaches GPU {GPU} through PCIe switches (PIX)."),
        (Level.OK, "mlx5_0", "has no ACS redirection between it and its GPU."),
        (Level.OK, "mlx5_0", "may use PCIe relaxed ordering."),
    ]


def test_a_node_without_gpus_or_rails_has_one_quiet_finding() -> None:
    assert findings(make_facts()) == [
        Finding(Level.OK, "", "Not checked, because no GPU is visible.", topic="gpudirect")
    ]
    no_rail = make_facts([make_port(rail=False)], fabric={"topology": Topology((PLACE,), (CARD,), (("PIX",),))})
    assert [one.sentence for one in findings(no_rail)] == ["Not checked, because no rail is visible."]


def test_a_node_that_shows_nothing_has_no_warning() -> None:
    found = findings(make_node(direct={"modules": frozenset(), "functions": {}}, place={"gpu_distance": ""}))
    assert {one.level for one in found} == {Level.OK}
    assert all("cannot be seen" in one.sentence for one in found)


@pytest.mark.parametrize(
    ("changes", "level", "part"),
    [
        ({"direct": {"modules": frozenset({"nvidia", "nv_peer_mem"})}}, Level.OK, "nv_peer_mem is loaded"),
        ({}, Level.OK, "dma-buf is available (open driver 580, Linux 6.8)"),
        ({"machine": {"kernel": "5.12.0"}}, Level.OK, "dma-buf is available"),
        ({"machine": {"kernel": "5.11.22"}}, Level.WARN, "dma-buf came to RDMA with Linux 5.12"),
        ({"machine": {"kernel": "unknown"}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"driver_text": CLOSED}}, Level.WARN, "is not the open one"),
        ({"direct": {"driver_text": ""}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"driver_version": "510.47.03"}}, Level.WARN, "is older than 515"),
        ({"direct": {"driver_version": "9" * 4000}}, Level.OK, "dma-buf cannot be seen"),
        # this machine's kernel and driver are not the node's
        ({"tree": {"mount": Mount("/", "ext4", False)}}, Level.OK, "dma-buf cannot be seen"),
        ({"direct": {"modules": frozenset({"mlx5_core"})}}, Level.OK, "does not show a loaded NVIDIA driver"),
        ({"card": {"vendor": "0x1002"}}, Level.OK, "Peer memory of these GPUs cannot be seen"),
    ],
)
def test_peer_memory(changes: Mapping[str, Any], level: Level, part: str) -> None:
    direct = {"modules": frozenset({"nvidia"})} | changes.get("direct", {})
    found = findings(make_node(**{**changes, "direct": direct}))[0]
    assert (found.level, part in found.sentence) == (level, True), found
    assert bool(found.advice) is (level is Level.WARN)


@pytest.mark.parametrize(
    ("kind", "is_kernel", "level", "sentence"),
    [
        ("identity", True, Level.OK, "is in IOMMU pass-through mode."),
        ("", True, Level.OK, "is not behind an IOMMU."),
        ("", False, Level.OK, "has an IOMMU mode that cannot be seen."),
        (None, True, Level.OK, "has an IOMMU mode that cannot be seen."),
        ("DMA", True, Level.WARN, "is behind an IOMMU that translates its addresses (type DMA)."),
        ("DMA-FQ", True, Level.WARN, "is behind an IOMMU that translates its addresses (type DMA-FQ)."),
    ],
)
@pytest.mark.parametrize("address", [NIC, GPU])
def test_iommu(address: str, kind: str | None, is_kernel: bool, level: Level, sentence: str) -> None:
    tree = {} if is_kernel else {"mount": Mount("/", "ext4", False)}
    facts = make_node(functions={address: PciFacts(kind, False, True)}, tree=tree)
    found = [one for one in findings(facts) if one.subject == address]
    assert [(one.level, one.sentence) for one in found] == [(level, sentence)]
    assert ("iommu=pt" in found[0].advice) is (level is Level.WARN)


@pytest.mark.parametrize("port", PORTS)
def test_acs_that_redirects_on_either_side_is_a_warning(port: str) -> None:
    # the other port cannot be seen, which does not hide this one
    functions = dict.fromkeys(PORTS, PciFacts()) | {port: PciFacts("", True)}
    found = only(make_node(functions=functions), "ACS")
    assert (found.level, found.subject) == (Level.WARN, "mlx5_0")
    assert found.sentence == f"has peer traffic redirected by ACS at {port}, between it and its GPU."
    assert "virtual machines" in found.advice


@pytest.mark.parametrize("port", PORTS)
def test_acs_that_one_port_does_not_show_cannot_be_seen(port: str) -> None:
    found = only(make_node(functions={port: PciFacts("")}), "ACS")
    assert (found.level, "cannot be seen" in found.sentence) == (Level.OK, True)


def test_acs_above_the_shared_switch_does_not_matter() -> None:
    assert only(make_node(functions={ABOVE[1]: PciFacts("", True)}), "ACS").level is Level.OK


@pytest.mark.parametrize(
    ("enabled", "kind", "level", "part"),
    [
        (True, "pf", Level.OK, "may use"),
        (False, "pf", Level.WARN, "may not use"),
        (None, "pf", Level.OK, "cannot be seen"),
        (False, "vf", Level.OK, "cannot be seen"),
    ],
)
def test_relaxed_ordering(enabled: bool | None, kind: str, level: Level, part: str) -> None:
    facts = make_node(functions={NIC: PciFacts("identity", False, enabled)}, place={"kind": kind})
    found = only(facts, "relaxed ordering")
    assert (found.level, part in found.sentence) == (level, True), found


@pytest.mark.parametrize(
    ("word", "level", "cost"),
    [
        ("PIX", Level.OK, ""),
        ("PXB", Level.OK, ""),
        ("PHB", Level.WARN, "root complex"),
        ("NODE", Level.WARN, "host bridges"),
        ("SYS", Level.WARN, "between CPU sockets"),
    ],
)
def test_the_path_to_the_nearest_gpu(word: str, level: Level, cost: str) -> None:
    found = only(make_node(place={"gpu_distance": word}), f"({word})")
    assert (found.level, cost in found.meaning) == (level, True)


def test_a_superchip_reaches_its_gpu_through_the_cpu() -> None:
    facts = make_node(place={"gpu_distance": "NODE"}, card={"form_factor": "superchip"})
    assert only(facts, "(NODE)").level is Level.OK


def test_a_rail_whose_distance_to_gpus_is_unknown_is_no_warning() -> None:
    found = only(make_node(place={"gpus": (), "gpu_distance": ""}), "path to the GPUs")
    assert (found.level, "cannot be seen" in found.sentence) == (Level.OK, True)
