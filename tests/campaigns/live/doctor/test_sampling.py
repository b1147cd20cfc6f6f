"""Without a daemon, doctor samples the tree itself for some seconds."""

from __future__ import annotations

import asyncio

from ibpulse.doctor import DoctorOptions
from ibpulse.doctor.sample_facts import take_samples
from ibpulse.model import PortId
from ibpulse.sampler.supervisor import SupervisorOptions
from ibpulse.sysfs.inventory import Inventory
from tests.sysfs.conftest import tree
from tests.sysfs.trees import Tree

__all__ = ["tree"]


def test_without_a_daemon_the_tree_is_sampled(tree: Tree) -> None:
    tree.add("mlx5_0")
    options = DoctorOptions(sysfs=tree.root, interval_ns=50_000_000)
    found = asyncio.run(take_samples(Inventory(tree.root), SupervisorOptions(), options))
    assert not found.by_daemon
    assert found.ticks > 50
    assert found.ports[PortId("mlx5_0", 1)].samples > 50
    assert found.timer_slack_ns in (1, None)
    assert found.history_seconds == found.seconds
