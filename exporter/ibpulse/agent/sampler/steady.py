"""The hot loop: samples tick after tick for as long as nothing unusual happens, in one function with local variables.

After ten milliseconds of sleep, caches are cold: each object, attribute and call that a tick does not need is saved.
Everything unusual is left to `TickClock.wait` and `Loop.sample`, which do the same for a single tick in full.
Standard library only.
"""

from __future__ import annotations

import struct

from ibpulse.agent.sampler.deadlines import TORN_NS, USUAL_GROWTH, TickClock
from ibpulse.agent.sampler.loop import MAX_READ, Loop
from ibpulse.agent.sampler.source import READ_BYTES
from ibpulse.base.units import SECOND_NS
from ibpulse.core.ring import layout as at
from ibpulse.core.ring.file import RingFile


def sample_steadily(ring: RingFile, lane: int, loop: Loop, clock: TickClock, read_ns: int) -> int:  # noqa: C901
    """Sample all ticks up to the end of the second, or until one of them needs `TickClock.wait` or `Loop.sample`.

    These are a clock that was stepped or interrupted, a late wake-up, reads that took unusually long, ports that fail
    or work again, and a new plan. `read_ns` is the time at which the most frequently sampled ports were read in the
    last tick, and so is what is returned.

    Per tick it reads the clocks four times; per fast port it reads the clock twice, two files, and stores one record.
    A port that is read by netlink takes a message in place of the files; both its counters were read while it was sent.
    """
    words, buffer, pack = ring.words, loop.buffer, loop.pack
    fast, slow, strided = loop.fast, loop.slow, loop.strided
    messages, others = loop.messages
    turns, read_signals = loop.signals.turns, loop.signals.read
    now, wall, sleep, pread = loop.clock.monotonic_ns, loop.clock.time_ns, loop.clock.sleep, loop.pread
    begin = at.lane_at(lane)
    wanted_at, heartbeat_at, device_at = begin + at.L_PLAN_WANTED, begin + at.L_HEARTBEAT_NS, begin + at.L_DEVICE
    tick_at, ticks_at, begun_at = begin + at.L_TICK, begin + at.L_TICKS, begin + at.L_BEGUN
    interval, capacity, record_bytes = ring.interval_ns, ring.capacity, at.RECORD_WORDS * at.WORD
    half, growth, longest = interval // 2, interval // USUAL_GROWTH, int(MAX_READ * interval)
    plan, ticks = words[begin + at.L_PLAN_APPLIED], words[ticks_at]
    tick, began, offset, usual = clock.tick, clock.began_ns, clock.offset_ns, clock.usual_ns
    deadline = (tick - clock.shift) * interval - offset
    slot, mark, left = tick % capacity, tick | 1 << at.STRIDE_SHIFT, -tick % (SECOND_NS // interval)
    link = loop.link
    if link is not None:
        send, receive_into, reply = link.send, link.receive, link.reply
    late_ns: list[int] = []
    duration_ns: list[int] = []
    # other lists of ports: one of them fails, or works again
    while left and words[wanted_at] == plan and loop.fast is fast and (fast or messages or slow):
        took = read_ns - began
        drift = wall() - (instant := now()) - offset
        deadline += interval - drift
        if took > usual + growth or not -TORN_NS < drift < TORN_NS or deadline <= instant:
            break
        # read the clock again, because a preemption since `instant` must not extend the sleep
        ahead = deadline - now()
        if ahead > 0:
            sleep(ahead / SECOND_NS)
        before = now()
        late = before - deadline
        if late > half:
            break
        tick, mark, ticks, left, slot = tick + 1, mark + 1, ticks + 1, left - 1, slot + 1
        if slot == capacity:
            slot = 0
        began, offset, usual = before, offset + drift, took
        words[begun_at] = tick
        words[heartbeat_at] = before
        record = slot * record_bytes
        for device, records, transmit_descriptor, receive_descriptor, port in fast:
            words[device_at] = device
            try:
                transmit = int(pread(transmit_descriptor, READ_BYTES, 0))
                between = now()
                receive = int(pread(receive_descriptor, READ_BYTES, 0))
                after = now()
                if after - before > longest:
                    transmit, receive = loop.doubt(port, (before, between, after), (transmit, receive))
                pack(buffer, records + record, before, between, after, transmit, receive, mark)
                before = after
            except (OSError, ValueError, struct.error):
                before = loop.read_ports([port], tick)
        if messages:
            entries = others if tick & 1 else messages
            for device, records, request, size, unpack, head, first, second, swapped, port in entries:
                words[device_at] = device
                try:
                    send(request)
                    between = now()
                    if receive_into(reply) != size:
                        raise ValueError
                    begins, one, transmit, two, receive = unpack(reply)
                    if begins != head or one != first or two != second:
                        raise ValueError
                    if swapped:
                        transmit, receive = receive, transmit
                    if between - before > longest:
                        transmit, receive = loop.doubt(port, (before, between, before), (transmit, receive))
                    pack(buffer, records + record, before, between, before, transmit, receive, mark)
                    before = now()
                except (OSError, ValueError, struct.error):
                    before = loop.read_ports([port], tick)
        if slow:
            before = loop.read_ports(slow, tick)
        read_ns = before
        if strided:
            before = loop.read_ports(strided, tick)
        if turns and (due := turns[tick % len(turns)]):
            before = read_signals(due, tick, began + interval)
        words[device_at] = 0
        words[tick_at] = tick
        words[ticks_at] = ticks
        late_ns.append(late if late > 0 else 0)
        duration_ns.append(before - began)
    if late_ns:
        clock.follow(tick, began, offset, usual)
        loop.count_times(late_ns, duration_ns)
    return read_ns
