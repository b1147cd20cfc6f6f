"""Moves bytes from sources through links and queues to receivers, and notes in every step what limits each port.

Each of `PORTS` ports sends `FLOWS` streams to other ports through one switch. A stream may first cross an uplink that
it shares with other tenants; then it waits in the switch's queue to its receiver, and in the receiver's own buffer.
With credits a full queue holds back whoever feeds it; without them the excess is dropped. Queues above a threshold mark
packets, and the receiver of a mark asks the sender to slow down. Lost packets are sent again after a negative
acknowledgement or after a timer. A receiver without posted buffers refuses what arrives.

All scenarios of a batch move together in arrays; their random numbers come from their own seeds, so the company of a
scenario does not change it. Bytes are fluid: a step of 0.25 ms moves fractions of packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

PORTS, FLOWS = 6, 2
STEP = 0.000_25
STEPS_PER_TICK = 40
TICK = STEP * STEPS_PER_TICK
TICKS_PER_READING = 10
PACKET = 4096
FIRST_LATE_STEPS = 4
NOTIFICATION_GAP = 50e-6
# bytes of acknowledgements per received byte
ACKNOWLEDGED = 0.002
ALPHA_GAIN = 1 / 16
SLOWEST = 0.01
# bytes below which a queue is empty, in a fluid of floats
NOTHING = 1.0

EVENTS = (
    "waited_bytes", "marks_seen", "notices_sent", "notices_obeyed", "sequence_naks", "out_of_order", "duplicates",
    "rnr_received", "refused", "timeouts", "resent_packets", "dropped_at_receiver", "link_downs", "recoveries",
    "bit_errors",
)  # fmt: skip


class Limit(IntEnum):
    """What a port's transmit is limited by during a step."""

    IDLE = 0
    SOURCE = 1  # everything offered was sent
    LINE = 2  # the port sends as fast as its undamaged link can
    UPLINK = 3  # a queue shared with other tenants
    EGRESS = 4  # the switch's queue to the receiver's port
    DRAIN = 5  # the receiver takes bytes out of its buffer too slowly
    BUFFERS = 6  # the receiver has no buffers posted
    LOSS = 7
    LINK = 8  # the port's own link is down, slower than it should be, or damages packets


@dataclass(frozen=True)
class Scenario:
    """One network and its input. Rates are bytes per second, times seconds, buffers bytes.

    Arrays begin with ticks of 10 ms, T of them, followed by ports P and streams K.
    """

    seed: int
    family: str
    fault: str  # in words, for whoever reads a wrong label
    nominal: float  # line rate of an undamaged link
    rate: float  # what it carries at most
    credits: bool
    marks: bool
    uplink_rate: float
    uplink_buffer: float
    egress_buffer: float
    receive_buffer: float
    posted_buffers: float
    mark_at: float
    send_queue: float
    window: float  # bytes that are sent again after a loss
    nak_pause: float
    timeout: float
    rnr_timer: float
    recover: float  # seconds from a standstill to full rate without notifications
    tail: float  # share of losses that only the timer finds
    stray_wait: float  # share of the time of sending, lost to collisions of single packets
    stray_losses: float  # per second
    stray_marks: float  # per second
    failing: float  # share of reads of counters
    cleared: int  # the reading at which somebody has cleared `counters/`, 0 for never
    receiver: Any  # (P, K) port that receives
    crosses: Any  # (P, K) whether the stream crosses the uplink
    offered: Any  # (T, P, K) bytes
    background: Any  # (T,) share of the uplink that others take
    drain: Any  # (T, P) bytes per second
    posts: Any  # (T, P) bytes per second of buffers that are posted
    loss: Any  # (T, P) probability per packet, by sender
    damage: Any  # (T, P) probability per packet, by either end
    width: Any  # (T, P) share of the link's lanes that work


@dataclass(frozen=True)
class Run:
    """What happened: N scenarios, S steps, T ticks, R readings of events per port.

    `limits` is (S, N, P); `used` of the same shape is the share of the line's bytes that were sent for the first time,
    in percent. `sent` and `received` are (T, `FIRST_LATE_STEPS`, N, P): totals at each of the first steps of
    a tick. `events` are totals, (R, N, P) each: port p is read in the ticks 10 r + p, at the end of their first step.
    """

    limits: Any
    used: Any
    sent: Any
    received: Any
    events: dict[str, Any]


def _share(part: Any, whole: Any) -> Any:
    """`part / whole` where there is any, at most 1; 1 for nothing."""
    return np.minimum(1.0, np.divide(part, whole, out=np.ones(np.broadcast(part, whole).shape), where=whole > 1e-6))


# bytes per stream that a full queue marks, the limit that they are a sign of, whether the queue is the switch's
Mark = tuple[Any, int, bool]


class Network:
    """The state of a batch of scenarios."""

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self.scenarios = scenarios
        self.count = len(scenarios)
        flows, ports = (self.count, PORTS, FLOWS), (self.count, PORTS)
        self.random = [np.random.default_rng([scenario.seed, 1]) for scenario in scenarios]
        for name in ("rate", "uplink_rate", "uplink_buffer", "egress_buffer", "receive_buffer", "posted_buffers",
                     "mark_at", "send_queue", "window", "nak_pause", "timeout", "rnr_timer", "recover", "tail",
                     "stray_wait", "stray_losses", "stray_marks", "credits", "marks"):  # fmt: skip
            setattr(self, name, np.array([getattr(scenario, name) for scenario in scenarios])[:, None])
        receiver = np.stack([scenario.receiver for scenario in scenarios])
        self.flat = (receiver + np.arange(self.count)[:, None, None] * PORTS).ravel()
        self.crosses = np.stack([scenario.crosses for scenario in scenarios])
        self.backlog, self.again = np.zeros(flows), np.zeros(flows)
        self.in_uplink, self.in_egress, self.in_receiver = np.zeros(flows), np.zeros(flows), np.zeros(flows)
        self.stall, self.on_timer, self.why = np.zeros(flows), np.zeros(flows, bool), np.zeros(flows, np.int8)
        self.speed, self.alpha, self.marked_by = np.ones(flows), np.ones(flows), np.zeros(flows, np.int8)
        self.posted = np.broadcast_to(self.posted_buffers, ports).copy()
        self.was_up = np.ones(ports)
        self.sent, self.received = np.zeros(ports), np.zeros(ports)
        self.events = {name: np.zeros(ports) for name in EVENTS}

    def run(self) -> Run:
        """Move everything through all ticks."""
        ticks = len(self.scenarios[0].background)
        readings = -(-ticks // TICKS_PER_READING)
        limits = np.zeros((ticks * STEPS_PER_TICK, self.count, PORTS), np.int8)
        used = np.zeros_like(limits)
        sent = np.zeros((ticks, FIRST_LATE_STEPS, self.count, PORTS))
        received = np.zeros_like(sent)
        events = {name: np.zeros((readings, self.count, PORTS)) for name in EVENTS}
        for tick in range(ticks):
            self._begin_tick(tick)
            for step in range(STEPS_PER_TICK):
                at = tick * STEPS_PER_TICK + step
                limits[at] = self._step(step)
                used[at] = np.rint(100 * self.new / (self.rate * STEP))
                if step < FIRST_LATE_STEPS:
                    sent[tick, step], received[tick, step] = self.sent, self.received
                if step == 0 and (port := tick % TICKS_PER_READING) < PORTS:
                    for name, totals in self.events.items():
                        events[name][tick // TICKS_PER_READING, :, port] = totals[:, port]
        return Run(limits, used, sent, received, events)

    def _begin_tick(self, tick: int) -> None:
        def now(name: str) -> Any:
            return np.stack([getattr(scenario, name)[tick] for scenario in self.scenarios])

        self.offered = now("offered") / STEPS_PER_TICK
        self.background = now("background")[:, None]
        self.drain, self.posts, self.loss, self.damage, self.width = map(
            now, ("drain", "posts", "loss", "damage", "width")
        )
        up = (self.width > 0).astype(float)
        self.events["link_downs"] += (self.was_up > 0) & (up == 0)
        self.events["recoveries"] += (self.was_up == 0) & (up > 0)
        self.was_up = up
        self.dice = np.stack([random.random((STEPS_PER_TICK, 4, PORTS, FLOWS)) for random in self.random], axis=2)

    def _at_receivers(self, values: Any) -> Any:
        """Sums over the streams to each port."""
        return np.bincount(self.flat, values.ravel(), self.count * PORTS).reshape(self.count, PORTS)

    def _of_receivers(self, values: Any) -> Any:
        """For each stream the value of the port that receives it."""
        return values.ravel()[self.flat].reshape(self.count, PORTS, FLOWS)

    def _step(self, step: int) -> Any:
        dice = self.dice[step]
        room = np.maximum(self.send_queue[..., None] - self.backlog, 0)
        self.backlog += np.minimum(self.offered, room)
        self._end_stalls()
        marks, refused = self._deliver()
        dropped = self._cross_uplink(marks)
        lost, limits = self._send()
        self._notify(marks, dice[0])
        self._lose(dropped + lost, dice[1], dice[2])
        self._stray(dice[3])
        self._refuse(refused)
        return limits

    def _begin_stalls(self, streams: Any, seconds: Any, why: Any) -> None:
        """Stop streams from the next step on."""
        self.stall = np.where(streams, seconds[..., None] + STEP, self.stall)
        self.why = np.where(streams, why, self.why).astype(np.int8)

    def _end_stalls(self) -> None:
        """Count timers that expire, and stall streams that meet a dead link until theirs does."""
        ending = (self.stall > 0) & (self.stall <= STEP)
        expired = ending & self.on_timer
        self.stall = np.maximum(self.stall - STEP, 0)
        self.events["timeouts"] += expired.sum(axis=-1)
        self.again += np.where(expired, self.window[..., None], 0)
        self.on_timer &= ~expired
        own, other = self.width[..., None] == 0, self._of_receivers(self.width) == 0
        dead = (own | other) & (self.backlog + self.again > NOTHING) & (self.stall == 0)
        self._begin_stalls(dead, self.timeout, np.where(own, Limit.LINK, Limit.LOSS))
        self.on_timer |= dead

    def _deliver(self) -> tuple[list[Mark], Any]:
        """Empty the receivers' buffers and fill them from the switch: bytes marked, by place, and bytes refused."""
        held = self._at_receivers(self.in_receiver)
        self.in_receiver *= 1 - self._of_receivers(_share(self.drain * STEP, held))
        held = self._at_receivers(self.in_receiver)
        queued, line = self._at_receivers(self.in_egress), self.rate * self.width * STEP
        room = np.maximum(self.receive_buffer + self.drain * STEP - held, 0)
        self.switch_serves = np.where(self.credits, np.minimum(line, room), line)
        leaving = np.minimum(queued, self.switch_serves)
        self.receiver_full = leaving < np.minimum(queued, line) - NOTHING
        moved = self.in_egress * self._of_receivers(np.where(queued > 0, leaving / np.maximum(queued, NOTHING), 0))
        self.in_egress -= moved
        arrived = self._at_receivers(moved)
        self.received += arrived
        self.sent += arrived * ACKNOWLEDGED
        accepted, refused = self._take_buffers(moved, arrived)
        kept = self._of_receivers(np.where(self.credits, 1.0, _share(room, self._at_receivers(accepted))))
        self.events["dropped_at_receiver"] += self._at_receivers(accepted * (1 - kept)) / PACKET
        self.overflow = accepted * (1 - kept)
        self.in_receiver += accepted * kept
        ramp = np.clip(((queued - leaving) / self.mark_at - 1) / 3, 0, 1)
        full = np.clip((held / self.receive_buffer - 0.5) * 2, 0, 1)
        by_switch, behind = moved * self._of_receivers(ramp), self._of_receivers(self.receiver_full)
        return [
            (moved * self._of_receivers(full), Limit.DRAIN, False),
            (by_switch * behind, Limit.DRAIN, True),
            (by_switch * ~behind, Limit.EGRESS, True),
        ], refused

    def _take_buffers(self, moved: Any, arrived: Any) -> tuple[Any, Any]:
        self.posted = np.minimum(self.posted + self.posts * STEP, self.posted_buffers)
        taken = self._of_receivers(_share(self.posted, arrived))
        self.posted = np.maximum(self.posted - arrived, 0)
        return moved * taken, moved * (1 - taken)

    def _refuse(self, refused: Any) -> None:
        """Send again later what met no buffer; of a burst only the first packets are counted as refused."""
        hit = (refused > PACKET) & (self.stall == 0)
        self.again += refused
        self._begin_stalls(hit, self.rnr_timer, Limit.BUFFERS)
        self.events["rnr_received"] += hit.sum(axis=-1)
        self.events["refused"] += self._at_receivers(np.where(hit, np.minimum(refused / PACKET, 8), 0))

    def _cross_uplink(self, marks: list[Mark]) -> Any:
        """Move what the uplink carries into the switch; the bytes dropped there and at the receivers, by stream."""
        total = self.in_uplink.sum(axis=(1, 2))[:, None]
        self.uplink_serves = self.uplink_rate * (1 - self.background) * STEP
        moved = self.in_uplink * _share(self.uplink_serves, total)[..., None]
        ramp = np.clip(((total - self.uplink_serves) / self.mark_at - 1) / 3, 0, 1)
        fits = self._of_receivers(_share(self._switch_room(), self._at_receivers(moved)))
        entering = moved * fits
        lossless = self.credits[..., None]
        self.in_uplink -= np.where(lossless, entering, moved)
        self.in_egress += entering
        marks.append((entering * ramp[..., None], Limit.UPLINK, True))
        return np.where(lossless, 0, moved - entering) + self.overflow

    def _switch_room(self) -> Any:
        """Bytes that the queue to each port can take until the end of the step, with those that leave it meanwhile."""
        return np.maximum(self.egress_buffer + self.switch_serves - self._at_receivers(self.in_egress), 0)

    def _send(self) -> tuple[Any, Any]:
        """Send what may be sent: bytes dropped at the first queue, by stream, and the limit of each port."""
        ready = np.where(self.stall > 0, 0, self.backlog + self.again)
        allowed = self.speed * self.rate[..., None] * STEP
        wanted, budget = np.minimum(ready, allowed), self.rate * self.width * STEP
        total = wanted.sum(axis=-1)
        offered = wanted * _share(budget, total)[..., None]
        crossing = np.where(self.crosses, offered, 0)
        room = np.maximum((self.uplink_buffer + self.uplink_serves)[:, 0] - self.in_uplink.sum(axis=(1, 2)), 0)
        through_uplink = _share(room, crossing.sum(axis=(1, 2)))[:, None, None]
        through_switch = self._of_receivers(_share(self._switch_room(), self._at_receivers(offered - crossing)))
        fits = offered * np.where(self.crosses, through_uplink, through_switch)
        self.in_uplink += np.where(self.crosses, fits, 0)
        self.in_egress += np.where(self.crosses, 0, fits)
        sent = np.where(self.credits[..., None], fits, offered)
        self.packets = sent / PACKET
        self.sent += sent.sum(axis=-1)
        self.events["waited_bytes"] += np.minimum(total, budget) - sent.sum(axis=-1)
        resent = np.minimum(self.again, sent)
        self.again -= resent
        self.new = (sent - resent).sum(axis=-1)
        self.backlog = np.maximum(self.backlog - (sent - resent), 0)
        self.events["resent_packets"] += resent.sum(axis=-1) / PACKET
        self.events["duplicates"] += self._at_receivers(resent) / PACKET / 2
        held_back = sent < offered - NOTHING
        slowed = (wanted < ready - NOTHING) & (self.speed < 1)
        limits = self._judge(sent, resent, held_back, slowed, total >= budget - NOTHING)
        return sent - fits, limits

    def _judge(self, sent: Any, resent: Any, held_back: Any, slowed: Any, at_line: Any) -> Any:
        """The limit of each port: the constraint that binds the stream with the most left to send."""
        left = self.backlog + self.again
        behind = self._of_receivers(self.receiver_full)
        queue = np.where(self.crosses, Limit.UPLINK, np.where(behind, Limit.DRAIN, Limit.EGRESS))
        line = np.where(self.width < 1, Limit.LINK, Limit.LINE)[..., None]
        of_stream = np.select(
            [self.stall > 0, held_back, resent > sent / 2, slowed & ~at_line[..., None]],
            [self.why, queue, self.why, self.marked_by],
            line,
        )
        most = left.argmax(axis=-1)[..., None]
        limits = np.take_along_axis(of_stream, most, axis=-1)[..., 0]
        done = left.sum(axis=-1) <= NOTHING * FLOWS
        limits = np.where(done, np.where(sent.sum(axis=-1) > 0, Limit.SOURCE, Limit.IDLE), limits)
        return np.where((self.width == 0) & ~done, Limit.LINK, limits)

    def _notify(self, marks: list[Mark], dice: Any) -> None:
        """Count marks, and slow the streams down that were marked; the others recover."""
        obeys, most = self.marks[..., None], np.zeros_like(self.speed)
        for marked, place, _ in marks:
            self.marked_by = np.where((marked > most) & obeys, place, self.marked_by).astype(np.int8)
            most = np.maximum(most, marked)
        packets = np.where(obeys, most, 0) / PACKET
        in_network = sum(marked for marked, _, by_switch in marks if by_switch)
        self.events["marks_seen"] += self._at_receivers(np.where(obeys, in_network, 0)) / PACKET
        notices = np.floor(np.minimum(packets, STEP / NOTIFICATION_GAP) + dice)
        self._obey(notices)
        slower = notices > 0
        self.alpha += ALPHA_GAIN * (slower - self.alpha)
        self.speed = np.where(
            slower, self.speed * (1 - self.alpha / 2), self.speed + STEP / self.recover[..., None]
        ).clip(SLOWEST, 1)

    def _obey(self, notices: Any) -> None:
        self.events["notices_sent"] += self._at_receivers(notices)
        self.events["notices_obeyed"] += notices.sum(axis=-1)

    def _lose(self, dropped: Any, dice: Any, other_dice: Any) -> None:
        """Lose packets; each stream that lost some pauses for a repetition, or until its timer."""
        self.again += dropped
        on_path = self.loss[..., None] + self._of_receivers(self.damage)
        for chance, roll, why in (
            (self.packets * on_path + dropped / PACKET, dice, Limit.LOSS),
            (self.packets * self.damage[..., None], other_dice, Limit.LINK),
        ):
            likely = -np.expm1(-chance)
            hit = (roll < likely) & (self.stall == 0)
            self._repeat(hit, hit & (roll < likely * self.tail[..., None]), why)
        # idle symbols are damaged as well
        self.events["bit_errors"] += self.damage * self.rate / PACKET * STEP

    def _repeat(self, hit: Any, timer: Any, why: int) -> None:
        nak = hit & ~timer
        self._begin_stalls(timer, self.timeout, why)
        self._begin_stalls(nak, self.nak_pause, why)
        self.on_timer |= timer
        self.again += np.where(nak, self.window[..., None], 0)
        self.events["sequence_naks"] += nak.sum(axis=-1)
        self.events["out_of_order"] += self._at_receivers(np.where(nak, self.window[..., None] / PACKET, 0))

    def _stray(self, dice: Any) -> None:
        """Collisions, losses and marks of single packets, as every busy fabric has them; they limit nothing."""
        sending = self.packets > 1
        some = sending.any(axis=-1)
        self.events["waited_bytes"] += np.where(some, self.rate * STEP * self.stray_wait * -np.log1p(-dice[..., 0]), 0)
        lost = sending & (dice < self.stray_losses[..., None] * STEP)
        self.events["sequence_naks"] += lost.sum(axis=-1)
        self.events["out_of_order"] += self._at_receivers(lost * 4.0)
        marked = sending & (dice > 1 - self.stray_marks[..., None] * STEP) & self.marks[..., None]
        self.events["marks_seen"] += self._at_receivers(marked * 1.0)
        self._obey(marked * 1.0)
