"""Facts as the checks get them: a healthy node of two rails, to be changed by what a test is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ibpulse.agent.doctor import DoctorOptions, Finding, Level, examine
from ibpulse.agent.doctor.examination import FactsRequest
from ibpulse.agent.doctor.facts import (
    Card,
    Counts,
    Facts,
    Folders,
    Machine,
    Mount,
    PortSamples,
    Reads,
    SamplingResult,
    Space,
    TreeFacts,
    WebPort,
)
from ibpulse.agent.sampler.supervisor import SupervisorOptions
from ibpulse.agent.sysfs.inventory import Inventory
from ibpulse.base.clocks import ClockState
from ibpulse.core.answers.summary import RailStatistics
from ibpulse.core.model import ByteSource, DevicePlace, Fabric, Port, PortId, PortIdentity, SamplerHealth, Topology
from tests.running import HANG_SECONDS

MS = 1_000_000
FOLDER = "/sys/class/infiniband"
SYSFS = Mount("/sys", "sysfs", True)
IDENTITY = PortIdentity(
    link_layer="InfiniBand",
    rate="400 Gb/sec (4X NDR)",
    board="MT_0000000838",
    hca_type="MT4129",
    firmware="28.41.1000",
    driver="mlx5_core",
    kind="pf",
)


def make_request(options: DoctorOptions) -> FactsRequest:
    """What doctor's child does with these options, with a patient inventory and the sampler that they describe."""
    inventory = Inventory(options.sysfs, options.include, options.exclude, options.roles, HANG_SECONDS)
    return FactsRequest(options, inventory, SupervisorOptions(options.scheduler, options.cpu))


def make_port(
    device: str = "mlx5_0", number: int = 1, *, identity: Mapping[str, str] | None = None, **changes: Any
) -> Port:
    """An ACTIVE rail at 400 Gb/s."""
    folder = f"{FOLDER}/{device}/ports/{number}/counters"
    source = ByteSource("port_data", (f"{folder}/port_xmit_data",), (f"{folder}/port_rcv_data",), 4)
    bus = 0x18 + int("".join(filter(str.isdigit, device.partition("_")[2])) or 0)
    named = replace(IDENTITY, **{"pci_address": f"0000:{bus:02x}:00.0", **(identity or {})})
    port = Port(PortId(device, number), named, True, "ACTIVE", 50e9, source, rail=True)
    return replace(port, **changes)


def make_card(
    address: str, kind: tuple[str, str] = ("0x15b3", "0x1021"), *, infiniband: bool = True, rdma: bool = False
) -> Card:
    """A card on a root port of its own."""
    return Card(("pci0000:00", address), kind, infiniband, rdma)


def make_topology(places: Sequence[DevicePlace]) -> Topology:
    """A node without GPUs."""
    return Topology(tuple(places), distances=((),) * len(places))


def make_port_samples(**changes: Any) -> PortSamples:
    """A port that carries 20 GB/s each way, sampled without a fault."""
    port = PortSamples(
        samples=350,
        stride=1,
        reads=Reads(1e-6, 10e-6, 50e-6, 20e-6),
        rates=(20e9, 20e9),
        resets=0,
        errors=0,
        last_errno=0,
        left_alone=False,
        gone=False,
        resolution_seconds=0.01,
        standing=RailStatistics(rail_share_ratio=0.5, rail_idle=False, rail_slow=False),
    )
    return replace(port, **changes)


def make_facts(
    ports: Iterable[Port] | None = None,
    *,
    samples: Mapping[str, PortSamples] | None = None,
    later: Iterable[Port] | None = None,
    sampling: Mapping[str, Any] | None = None,
    no_sampling: str = "",
    tree: Mapping[str, Any] | None = None,
    fabric: Mapping[str, Any] | None = None,
    counts: Mapping[str, Counts] | None = None,
    machine: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Facts:
    """The facts of a node of these ports, with the parts that are named changed; `no_sampling` means none was taken."""
    chosen = (make_port("mlx5_0"), make_port("mlx5_1")) if ports is None else tuple(ports)
    names = tuple(dict.fromkeys(port.id.device for port in chosen))
    places = tuple(
        DevicePlace(name, numa_node=0, local_cpus="0-3", pcie_bytes_per_second=63e9, pcie_max_bytes_per_second=63e9)
        for name in names
    )
    first = Fabric(chosen, topology=make_topology(places))
    first = replace(first, **(fabric or {}))
    fabrics = (first,) if later is None else (first, replace(first, ports=tuple(later)))
    taken = SamplingResult(
        by_daemon=False,
        interval_ns=10 * MS,
        seconds=3.5,
        history_seconds=3.5,
        fabrics=fabrics,
        health=SamplerHealth(),
        ports={port.id: (samples or {}).get(port.id.device, make_port_samples()) for port in chosen if port.source},
        ticks=350,
        missed_ticks=0,
        clock_steps=0,
        lateness_p50=1e-4,
        lateness_p99=1e-3,
        timer_slack_ns=1,
        quota_cpus=float("inf"),
    )
    shown = TreeFacts(
        mount=SYSFS,
        listed=names,
        admitted=names,
        folders={port.id: Folders(True, True, 10) for port in chosen},
        cards=tuple(make_card(port.identity.pci_address, rdma=True) for port in chosen),
    )
    here = Machine(
        kernel="6.8.0-45-generic",
        clock=ClockState(True, 0.002),
        quota_cpus=float("inf"),
        allowed_cpus=frozenset(range(4)),
        available_bytes=10**12,
        spaces=(Space("ring.dir", "/dev/shm/ibpulse", 10**7, 10**9, True, "tmpfs"),),
        web=WebPort("free"),
    )
    numbers = Counts({}, {"counters/symbol_error": 0, "hw_counters/rx_write_requests": 5})
    return Facts(
        options=replace(DoctorOptions(sysfs=Path("/sys")), **(options or {})),
        fabric=first,
        tree=replace(shown, **(tree or {})),
        sampling=None if no_sampling else replace(taken, **(sampling or {})),
        no_sampling=no_sampling,
        counts={port.id: (counts or {}).get(port.id.device, numbers) for port in chosen if port.source},
        machine=replace(here, **(machine or {})),
    )


def troubles(facts: Facts) -> list[Finding]:
    """All findings that are not OK."""
    return [finding for finding in examine(facts) if finding.level not in (Level.OK, Level.SKIP)]


def only_trouble(facts: Facts) -> Finding:
    """The one finding that is not OK."""
    found = troubles(facts)
    assert len(found) == 1, found
    return found[0]


def assert_only(facts: Facts, expected: str) -> None:
    """One finding is not OK: level, check, subject and sentence begin as expected; after ` ~ ` comes advice."""
    finding = only_trouble(facts)
    line, _, advice = expected.partition(" ~ ")
    assert f"{finding.level.name} {finding.topic} {finding.subject}: {finding.sentence}".startswith(line), finding
    assert advice in f"{finding.meaning} {finding.advice}", finding


def sentences(facts: Facts, check: str) -> list[str]:
    """What one check says, each with its subject in front."""
    return [f"{finding.subject}: {finding.sentence}" for finding in examine(facts, [check])]
