"""Devices that hang, lie, refuse, vanish, or have hostile names."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.faults.plan import ALONE, Effect, Fault
from bench.faults.testbed import Testbed

BYTES = ("port_xmit_data", "port_rcv_data")
# a hang costs the other devices well under a second: it is noticed after 0.25 s, and the next sampler starts at once
HANG = Effect(lost_seconds=1.0)
# files that keep failing are retried within a minute
LEFT_ALONE = Effect(recovery_seconds=75.0)
NAMES = {
    "markup": '<img src=x onerror=alert(1)>&"\\',
    "a line break": 'mlx5\nibpulse_port_up{device="no"} 1',
    "bytes that are not UTF-8": "mlx5_\udcff\udcc3",
    "200 characters": "m" * 200,
}


@contextmanager
def ruled(testbed: Testbed, device: str, **rule: Any) -> Iterator[None]:
    """The device has a rule of the fabric; it is healthy afterwards."""
    testbed.fabric.set(device, **rule)
    try:
        yield
    finally:
        testbed.fabric.set(device)


@contextmanager
def wrapped(testbed: Testbed, device: str) -> Iterator[None]:
    """The counters fall to a small value, stand there, and count on from zero."""
    with ruled(testbed, device, value=3, files=BYTES):
        yield
        testbed.fabric.set(device, reset=True)


@contextmanager
def swapped(testbed: Testbed, device: str) -> Iterator[None]:
    """The names of two devices are swapped, as by `rdma dev set`; their counters drift apart meanwhile."""
    one, other = testbed.devices[-2:]
    testbed.fabric.set(one, name=other, factor=0.5)
    testbed.fabric.set(other, name=one)
    try:
        yield
    finally:
        for name in (one, other):
            testbed.fabric.set(name)


def _fault(title: str, effect: Effect, **rule: Any) -> Fault:
    return Fault(title, partial(ruled, **rule), effect, hits_device=True)


HANGS = (
    _fault("reads hang", HANG, hang_seconds=600.0),
    _fault("every file hangs", HANG, hang_seconds=600.0, files=("*",)),
    _fault("reads are slow", Effect(lost_seconds=1.0), delay_seconds=0.004),
)
REFUSALS = (
    _fault("reads return EINVAL", LEFT_ALONE, errno=errno.EINVAL),
    _fault("reads return EIO", LEFT_ALONE, errno=errno.EIO, files=("*",)),
    _fault("counters are garbage", LEFT_ALONE, texts=dict.fromkeys(BYTES, "N/A (no PMA)\n")),
    _fault("counters are empty", LEFT_ALONE, texts=dict.fromkeys(BYTES, "")),
    _fault("counters are endless", LEFT_ALONE, texts=dict.fromkeys(BYTES, "9" * 4000)),
    _fault(
        "the state is garbage",
        Effect(),
        texts={"state": "\x1b[31m\n", "rate": "inf Gb/sec\n", "phys_state": "9" * 4000},
    ),
)
LIES = (
    # no line carries so much, so it is told and no traffic
    _fault("counters jump", Effect(), value=2**50, files=BYTES),
    _fault("counters are at the limit of 64 bits", Effect(), value=2**64 - 1, files=BYTES),
    _fault("counters run at ten times the rate", Effect(lies=True), factor=10.0),
    _fault("counters stand still", Effect(), stuck=True),
    Fault("counters wrap", wrapped, Effect(), hits_device=True),
)
ABSENCES = (
    _fault("the link is down", Effect(), down=True),
    _fault("the device vanishes", Effect(), vanished=True),
)
HOSTILE_NAMES = (
    *(_fault(f"the name is {what}", Effect(), name=name) for what, name in NAMES.items()),
    _fault("the port is number 999", Effect(), port="999"),
    Fault("two devices swap names", swapped, Effect(hits_others=True), resource=ALONE),
)
