"""The parts of the daemon that sample a node, aggregate its samples and record what happened on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ibpulse.base.installation import late_names

if TYPE_CHECKING:
    from ibpulse.agent.node.node import aggregator_options, make_temporary_sampler

__all__ = ["aggregator_options", "make_temporary_sampler"]

__getattr__ = late_names(
    __name__,
    {"aggregator_options": "node", "make_temporary_sampler": "node"},
)
"""A verb that asks a daemon samples nothing itself."""
