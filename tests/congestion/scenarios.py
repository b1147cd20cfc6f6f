"""Draws networks, workloads and faults from seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.congestion.network import FLOWS, PORTS, TICK, Scenario

SECONDS = 6
GIGABIT = 1e9 / 8
# share of all scenarios, line rates in Gb/s, and how congestion is controlled: credits or pauses, marks
FAMILIES: dict[str, tuple[float, tuple[int, ...], bool, bool]] = {
    "mlx5 InfiniBand": (0.22, (200, 400, 400, 800), True, False),
    "mlx5 InfiniBand, waiting full": (0.08, (400, 400, 800), True, False),
    "mlx5 RoCE": (0.24, (100, 200, 400, 400), True, True),
    "mlx5 RoCE, pauses only": (0.06, (200, 400), True, False),
    "bnxt_re": (0.1, (200, 400), True, True),
    "ionic": (0.1, (400,), True, True),
    "irdma": (0.06, (100, 200), False, True),
    "efa": (0.08, (100, 200, 400), False, False),
    "rxe": (0.06, (10, 25), False, False),
}

Random = np.random.Generator
Span = tuple[int, int]


def draw(seed: int, seconds: float = SECONDS) -> Scenario:
    """The scenario of a seed: a healthy network and its workload, with one or two faults for a while."""
    random = np.random.default_rng([seed, 0])
    names = [*FAMILIES]
    family = names[int(random.choice(len(names), p=np.array([FAMILIES[name][0] for name in names])))]
    scenario = healthy(random, seed, family, round(seconds / TICK))
    possible = [fault for fault in FAULTS if fault is not damage or family.startswith("mlx5 InfiniBand")]
    ticks = len(scenario.background)
    for _ in range(int(random.choice([1, 2]))):
        fault = possible[int(random.integers(len(possible)))]
        begin = int(random.uniform(0.1, 0.6) * ticks)
        end = min(ticks, begin + int(random.uniform(0.2, 0.6) * ticks))
        words = f"{fault.__name__} {begin * TICK:.2f}-{end * TICK:.2f} s"
        scenario = replace(fault(random, scenario, (begin, end)), fault=f"{scenario.fault}; {words}".strip("; "))
    return scenario


def healthy(random: Random, seed: int, family: str, ticks: int) -> Scenario:
    """A network without faults, whose ports send to their neighbours."""
    _, rates, lossless, marks = FAMILIES[family]
    nominal = float(random.choice(rates)) * GIGABIT
    rate = nominal * random.uniform(0.94, 0.995)
    receiver = (np.arange(PORTS)[:, None] + np.array([1, 2])) % PORTS
    full = np.full((ticks, PORTS), 1.0)
    return Scenario(
        seed=seed, family=family, fault="", nominal=nominal, rate=rate, credits=lossless, marks=marks,
        uplink_rate=rate * PORTS, uplink_buffer=rate * 400e-6, egress_buffer=rate * random.uniform(300e-6, 800e-6),
        receive_buffer=rate * 300e-6, posted_buffers=rate * 2e-3, mark_at=rate * random.uniform(10e-6, 60e-6),
        send_queue=rate * 0.3, window=rate * random.uniform(10e-6, 100e-6), nak_pause=random.uniform(0.5e-3, 2e-3),
        timeout=float(random.choice([0.067, 0.268, 0.537])),
        rnr_timer=float(random.choice([0.64e-3, 1.28e-3, 5.12e-3])), recover=random.uniform(2e-3, 20e-3),
        tail=random.uniform(0.0, 0.02), stray_wait=random.choice([0.0, 10 ** random.uniform(-5, -2.3)]),
        stray_losses=random.choice([0.0, random.uniform(0.05, 1)]),
        stray_marks=random.choice([0.0, random.uniform(0.5, 20)]), failing=random.choice([0.0, 0.0, 0.01]),
        cleared=int(random.integers(1, ticks // 10)) if random.random() < 0.05 and "full" not in family else 0,
        receiver=receiver, crosses=random.random((PORTS, FLOWS)) < 0.3,
        offered=offer(random, rate, ticks), background=np.zeros(ticks), drain=full * rate * 1.2,
        posts=full * rate * 4, loss=full * 0, damage=full * 0, width=full.copy(),
    )  # fmt: skip


def offer(random: Random, rate: float, ticks: int) -> Any:
    """Bytes given to the streams: steps of a training or no silences, in bulk, at a pace, or in bursts; one or two."""
    offered = np.zeros((ticks, PORTS, FLOWS))
    pace = np.full((ticks, 1), 1.3)
    match random.choice(["bulk", "bulk", "pace", "bursts"]):
        case "pace":
            pace[:] = random.uniform(0.2, 0.9)
        case "bursts":
            pace = 2 * random.uniform(0, 1, (ticks, PORTS)) ** 2 * random.uniform(0.3, 1)
    if random.random() < 0.25:
        offered[:, :, 0] = rate * TICK * pace
    else:
        period, duty = random.uniform(0.2, 1.5), random.uniform(0.2, 0.9)
        late = random.integers(0, 3, PORTS)
        for begin in np.arange(random.uniform(0, period), ticks * TICK, period):
            for port in range(PORTS):
                first = round(begin / TICK) + int(late[port])
                offered[first : first + max(1, round(duty * period / TICK / 1.3)), port, 0] = 1
        offered[:, :, 0] *= rate * TICK * pace
    if random.random() < 0.4:
        offered[:, :, 1] = offered[:, :, 0] * random.uniform(0.2, 0.8)
        offered[:, :, 0] -= offered[:, :, 1]
    return offered


def some_ports(random: Random, least: int = 1) -> Any:
    return random.permutation(PORTS)[: random.integers(least, PORTS + 1)]


def slow_source(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Processors, PCIe or the framework give the port fewer bytes than it could send."""
    offered, ports = scenario.offered.copy(), some_ports(random)
    begin, end = span
    pace = random.uniform(0.05, 0.8, len(ports)) * random.normal(1, 0.08, (end - begin, len(ports))).clip(0.5, 1.1)
    busy = offered[begin:end, ports, 0] > 0
    offered[begin:end, ports, 0] = busy * pace * scenario.rate * TICK
    offered[begin:end, ports, 1] = 0
    return replace(scenario, offered=offered)


def incast(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Several ports send to one, in addition to what they send to their neighbours."""
    hot, ports = int(random.integers(PORTS)), some_ports(random, 3)
    receiver, offered = scenario.receiver.copy(), scenario.offered.copy()
    begin, end = span
    senders = ports[ports != hot]
    receiver[senders, 1] = hot
    offered[begin:end, senders, 1] = scenario.rate * TICK * random.uniform(0.4, 1.2)
    if random.random() < 0.5:
        offered[begin:end, senders, 0] = 0
    return replace(scenario, receiver=receiver, offered=offered)


def busy_uplink(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Other tenants take most of an uplink."""
    crosses = scenario.crosses.copy()
    crosses[some_ports(random, 2)] = True
    share = random.uniform(0.3, 0.9, span[1] - span[0]) if random.random() < 0.5 else random.uniform(0.4, 0.9)
    background = scenario.background.copy()
    background[span[0] : span[1]] = share
    uplink = scenario.rate * max(1.0, crosses[:, 0].sum() * random.uniform(0.8, 1.2))
    return replace(scenario, crosses=crosses, background=background, uplink_rate=uplink)


def slow_drain(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Receivers whose PCIe or memory takes bytes too slowly."""
    drain = scenario.drain.copy()
    ports = some_ports(random)[:2]
    drain[span[0] : span[1], ports] = scenario.rate * random.uniform(0.1, 0.8, len(ports))
    return replace(scenario, drain=drain)


def no_buffers(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Receivers whose software posts buffers too slowly, or with pauses."""
    posts, ports = scenario.posts.copy(), some_ports(random)
    rate = scenario.rate * random.uniform(0.02, 0.6, len(ports))
    awake = random.random((span[1] - span[0], len(ports))) < random.choice([0.5, 1.0])
    posts[span[0] : span[1], ports] = rate * awake
    return replace(scenario, posts=posts)


def lossy_path(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """Packets are lost on the paths from some ports, now and then or often."""
    loss, ports = scenario.loss.copy(), some_ports(random)
    packets = scenario.rate / 4096
    loss[span[0] : span[1], ports] = 10 ** random.uniform(0.5, 3.3) / packets
    return replace(scenario, loss=loss, tail=random.choice([0.001, 0.05, 0.3]))


def damage(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """A cable damages packets in both directions."""
    damaged, ports = scenario.damage.copy(), some_ports(random)[:2]
    damaged[span[0] : span[1], ports] = 10 ** random.uniform(1, 3.3) / (scenario.rate / 4096)
    return replace(scenario, damage=damaged)


def narrow_link(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """A link goes down, and comes back with a part of its lanes until the end; or has had only these for long."""
    width, ports = scenario.width.copy(), some_ports(random)[:2]
    back = 0 if random.random() < 0.5 else span[0] + int(random.integers(20, 100))
    width[min(span[0], back) : back, ports] = 0
    width[back:, ports] = random.choice([0.25, 0.5])
    return replace(scenario, width=width)


def flaps(random: Random, scenario: Scenario, span: Span) -> Scenario:
    """A link that goes down again and again, for a moment."""
    width, port = scenario.width.copy(), int(random.integers(PORTS))
    for begin in range(span[0], span[1], int(random.integers(30, 150))):
        width[begin : begin + int(random.integers(2, 30)), port] = 0
    return replace(scenario, width=width)


FAULTS: tuple[Callable[[Random, Scenario, Span], Scenario], ...] = (
    slow_source, slow_source, slow_source, incast, incast, busy_uplink, busy_uplink, slow_drain, no_buffers,
    no_buffers, lossy_path, lossy_path, damage, narrow_link, flaps,
)  # fmt: skip
