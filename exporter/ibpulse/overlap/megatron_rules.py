"""The rules of Megatron about the overlap of communication, one row each, as they were at the date of the snapshot.

Megatron-Core's `TransformerConfig` is where most come from. Megatron-Bridge repeats them for its `run_config.yaml`, and
Megatron-LM's `arguments.py` adds checks of its command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ibpulse.overlap.rule_conditions import Condition

SNAPSHOT_DATE = "2026-08-22"
"""The date of the commits of both repositories that the rules were read from."""

Program = Literal["Megatron-Bridge", "Megatron-LM"]
BRIDGE_PROGRAM: Program = "Megatron-Bridge"
LM_PROGRAM: Program = "Megatron-LM"


@dataclass(frozen=True, slots=True)
class RuleSource:
    """A file at a commit, and the programs whose runs it checks."""

    repository: str
    commit: str
    path: str
    programs: tuple[Program, ...]

    @property
    def text(self) -> str:
        """The file and its commit."""
        return f"{self.repository}@{self.commit} {self.path}"


_LM, _BRIDGE = ("Megatron-LM", "d98e8a64"), ("Megatron-Bridge", "067f987d")
CORE = RuleSource(*_LM, "megatron/core/transformer/transformer_config.py", (BRIDGE_PROGRAM, LM_PROGRAM))
ARGUMENTS = RuleSource(*_LM, "megatron/training/arguments.py", (LM_PROGRAM,))
BRIDGE = RuleSource(*_BRIDGE, "src/megatron/bridge/training/comm_overlap.py", (BRIDGE_PROGRAM,))
BRIDGE_CONFIG = RuleSource(*_BRIDGE, "src/megatron/bridge/training/config.py", (BRIDGE_PROGRAM,))
BRIDGE_FLEX = RuleSource(*_BRIDGE, "src/megatron/bridge/training/flex_dispatcher_backend.py", (BRIDGE_PROGRAM,))
BRIDGE_ADVICE = RuleSource(*_BRIDGE, "docs/training/communication-overlap.md", (BRIDGE_PROGRAM, LM_PROGRAM))

Effect = Literal["stops", "off", "changed", "warning", "advice"]
STOPS: Effect = "stops"
OFF: Effect = "off"
CHANGED: Effect = "changed"
WARNING: Effect = "warning"
ADVICE: Effect = "advice"
EFFECTS = {
    STOPS: "the run stops at its start",
    OFF: "the overlap is switched off with a warning",
    CHANGED: "the program changes the option",
    WARNING: "the program warns, or switches off something that may be a default",
    ADVICE: "advice in the documentation",
}
"""What a violation of a rule causes."""
FAILING = (STOPS, OFF)
"""The effects that make a check fail."""


@dataclass(frozen=True, slots=True)
class OverlapRule:
    """Where `applies` is true, `needs` must be true; `change` says how to comply."""

    id: str
    applies: Condition
    needs: Condition
    sources: tuple[RuleSource, ...]
    effect: Effect
    change: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The options that the rule is about."""
        return tuple(dict.fromkeys((*self.applies.keys, *self.needs.keys)))
