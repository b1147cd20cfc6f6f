"""Checks the options of a run against the rules about overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ibpulse.overlap.expert_overlap_rules import EXPERT_RULES
from ibpulse.overlap.megatron_rules import FAILING, OverlapRule
from ibpulse.overlap.parallel_overlap_rules import PARALLEL_RULES
from ibpulse.overlap.rule_conditions import GivenOption
from ibpulse.overlap.run_options import RunOptions

RULES = (*EXPERT_RULES, *PARALLEL_RULES)
"""Every rule, in the order of the documentation."""

Status = Literal["ok", "violated", "unknown"]


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What became of a rule. `applies` is None if unknown; `checked` is whether the run's own program checks the rule.

    `given` are the options that decided, `missing` those that would decide.
    """

    rule: OverlapRule
    status: Status
    applies: bool | None
    checked: bool
    given: tuple[tuple[str, GivenOption], ...]
    missing: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the run stops at its start or goes without the overlap."""
        return self.status == "violated" and self.checked and self.rule.effect in FAILING


def check_rules(run: RunOptions) -> tuple[RuleResult, ...]:
    """The result of every rule, in the order of the documentation."""
    return tuple(check_rule(rule, run) for rule in RULES)


def check_rule(rule: OverlapRule, run: RunOptions) -> RuleResult:
    """A rule holds where it does not apply or what it needs is true; one that is not known to hold is unknown."""
    applies, needed = rule.applies.holds(run.options), rule.needs.holds(run.options)
    if applies is False or needed is True:
        status: Status = "ok"
    else:
        status = "violated" if applies is True and needed is False else "unknown"
    return RuleResult(
        rule=rule,
        status=status,
        applies=applies,
        checked=any(run.program in source.programs for source in rule.sources),
        given=tuple((key, run.options[key]) for key in rule.keys if key in run.options),
        missing=tuple(key for key in rule.keys if key not in run.options) if status == "unknown" else (),
    )
