"""The results of a check of rules as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ibpulse.base import document
from ibpulse.base.document import Section
from ibpulse.base.text import count_text
from ibpulse.workbench.models.megatron_rules import DATE, EFFECTS, OptionValue, RuleResult
from ibpulse.workbench.models.run_options import RunOptions


def render_json(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The check as one JSON object; `applies` is null where it is unknown."""
    members = {
        "file": str(run.path),
        "program": run.program,
        "snapshot_date": DATE,
        "failed": failed,
        "rules": [
            {
                "id": result.rule.id,
                "status": result.status,
                "applies": result.applies,
                "fails": result.fails,
                "effect": result.rule.effect,
                "where": result.rule.where,
                "needs": result.rule.needs,
                "change": result.rule.change,
                "sources": result.rule.sources,
                "given": [
                    {"option": key, "value": option.value, "place": option.place} for key, option in result.given
                ],
                "missing": result.missing,
            }
            for result in results
        ],
    }
    return document.render_json("ibpulse_model_check_version", members)


def render_text(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The verdict first, then violated and unknown rules."""
    violated = [each for each in results if each.status == "violated"]
    unknown = [each for each in results if each.status == "unknown"]
    idle = sum(each.applies is False for each in results)
    lines = [
        f"{'FAILED' if failed else 'passed'}: {_verdict(violated, unknown)}",
        f"{run.path}: checked by the rules of {DATE}; other versions of Megatron may have other rules",
        f"{len(results)} rules of {run.program}: {len(violated)} violated, {len(unknown)} unknown, "
        f"{len(results) - len(violated) - len(unknown)} ok ({idle} do not apply)",
    ]
    sections = [Section(lines=lines)]
    if violated:
        sections.append(Section("violated", lines=[line for each in violated for line in _violated(run, each)]))
    if unknown:
        sections.append(Section("unknown, because options are missing", lines=list(_unknown(unknown))))
    return document.render_text(sections)


def _verdict(violated: Sequence[RuleResult], unknown: Sequence[RuleResult]) -> str:
    failing = sum(each.fails for each in violated)
    if failing:
        return f"{count_text(failing, 'rule')} violated, with which the run stops or an overlap is switched off"
    if unknown:
        return f"no rule is known to be violated that matters, but {len(unknown)} unknown"
    return "no rule is violated that stops the run or switches an overlap off"


def _violated(run: RunOptions, result: RuleResult) -> Iterator[str]:
    rule = result.rule
    yield f"{rule.id}: {rule.where}"
    yield f"  needs: {rule.needs}"
    places = [(key, one, one.place.replace(f"{run.path}:", "line ", 1)) for key, one in result.given]
    yield "  found: " + "; ".join(f"{key} {_value_text(one.value)} ({place})" for key, one, place in places)
    yield f"  change: {rule.change}"
    yield f"  effect: {EFFECTS[rule.effect]}"
    yield from (f"  source: {source}" for source in rule.sources)


def _unknown(results: Sequence[RuleResult]) -> Iterator[str]:
    """One line for all rules that the same options would decide."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in results:
        groups.setdefault(each.missing, []).append(each.rule.id)
    yield from (f"{', '.join(missing)}: {', '.join(ids)}" for missing, ids in groups.items())
    yield "give them like --set torch=2.6.0"


def _value_text(value: OptionValue) -> str:
    """A value as people write it: `true`, `unset`, `4`, `moe, attn`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return (", ".join(value) or "empty") if isinstance(value, tuple) else str(value)
