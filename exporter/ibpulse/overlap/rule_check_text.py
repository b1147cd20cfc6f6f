"""The results of a check of rules as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ibpulse import __version__
from ibpulse.overlap.megatron_rules import EFFECTS, SNAPSHOT_DATE, STOPS
from ibpulse.overlap.rule_check import RuleResult
from ibpulse.overlap.rule_conditions import value_text
from ibpulse.overlap.run_options import RunOptions
from ibpulse.text import count_text, escape_controls

VERSION = 1


def render_json(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The check as one JSON object; `applies` is null where it is unknown."""
    document = {
        "ibpulse_overlap_check_version": VERSION,
        "ibpulse_version": __version__,
        "file": str(run.path),
        "program": run.program,
        "snapshot_date": SNAPSHOT_DATE,
        "failed": failed,
        "remarks": list(run.remarks),
        "rules": [
            {
                "id": result.rule.id,
                "status": result.status,
                "applies": result.applies,
                "checked_by_program": result.checked,
                "fails": result.fails,
                "effect": result.rule.effect,
                "where": result.rule.applies.text,
                "needs": result.rule.needs.text,
                "change": result.rule.change,
                "sources": [source.text for source in result.rule.sources],
                "given": [
                    {"option": key, "value": option.value, "place": option.place} for key, option in result.given
                ],
                "missing": list(result.missing),
            }
            for result in results
        ],
    }
    return escape_controls(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), keep="\n") + "\n"


def render_text(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The verdict first, then violated rules, unknown ones and remarks."""
    own = [each for each in results if each.checked]
    violated = [each for each in own if each.status == "violated"]
    elsewhere = [
        each for each in results if not each.checked and each.status == "violated" and each.rule.effect == STOPS
    ]
    unknown = [each for each in own if each.status == "unknown"]
    lines = [_verdict(violated, unknown, failed), *_about(run, results)]
    for title, group in (
        ("violated", violated),
        (f"violated, but {run.program} does not check it", elsewhere),
    ):
        if group:
            lines += ["", f"{title}:", *(line for each in group for line in _violated(run, each))]
    if unknown:
        lines += ["", "unknown, because options are missing:", *_unknown(unknown)]
    if run.remarks:
        lines += ["", "remarks:", *(f"  {_short(run, remark)}" for remark in run.remarks)]
    return escape_controls("\n".join(lines), keep="\n") + "\n"


def _verdict(violated: Sequence[RuleResult], unknown: Sequence[RuleResult], failed: bool) -> str:
    failing = [each for each in violated if each.fails]
    if failing:
        verdict = f"{count_text(len(failing), 'rule')} violated, with which the run stops or an overlap is switched off"
    elif unknown:
        verdict = f"no rule is known to be violated that matters, but {len(unknown)} unknown"
    else:
        verdict = "no rule is violated that stops the run or switches an overlap off"
    return f"{'FAILED' if failed else 'passed'}: {verdict}"


def _about(run: RunOptions, results: Sequence[RuleResult]) -> Iterator[str]:
    own = [each for each in results if each.checked]
    count = {status: sum(each.status == status for each in own) for status in ("ok", "violated", "unknown")}
    idle = sum(each.applies is False for each in own)
    yield f"{run.path}: checked by the rules of {SNAPSHOT_DATE}; other versions of Megatron may have other rules"
    yield (
        f"{len(own)} rules of {run.program}: {count['violated']} violated, {count['unknown']} unknown, "
        f"{count['ok']} ok ({idle} do not apply)"
    )


def _violated(run: RunOptions, result: RuleResult) -> Iterator[str]:
    rule = result.rule
    yield f"  {rule.id}: {rule.applies.text}"
    yield f"    needs: {rule.needs.text}"
    values = "; ".join(f"{key} {value_text(one.value)} ({_short(run, one.place)})" for key, one in result.given)
    yield f"    found: {values}"
    yield f"    change: {rule.change}"
    yield f"    effect: {EFFECTS[rule.effect]}"
    yield f"    source: {', '.join(source.text for source in rule.sources)}"


def _unknown(results: Sequence[RuleResult]) -> Iterator[str]:
    """One line for all rules that the same options would decide."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in results:
        groups.setdefault(each.missing, []).append(each.rule.id)
    for missing, ids in groups.items():
        yield f"  {', '.join(missing)}: {', '.join(ids)}"
    yield "  give them like --set torch=2.6.0"


def _short(run: RunOptions, place: str) -> str:
    """A place in the file as its line."""
    return place.replace(f"{run.path}:", "line ", 1)
