"""Compares verdicts with the truth, in the terms of published work: recall and precision of kind and of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tests.stalls.broken import CLOCKS, Plan
from tests.stalls.followed import Told
from tests.stalls.material import NEVER, Case

KINDS = ("link", "loss", "node", "together", "unknown")
NAMING = KINDS[:3]
SAMPLES_SECONDS = 0.025
"""By how much nodes that stop at the same instant may seem to differ: two samples, and one that is read late."""
ROUGH_SECONDS = 62.0
"""Silences that are shorter are not judged before there are steps."""


@dataclass(frozen=True)
class Outcome:
    """A stall with its truth and what was told of it."""

    plan: Plan
    case: Case
    told: Told

    @property
    def kind(self) -> str:
        """The last verdict; `missed` without any."""
        return self.told.verdicts[-1][1].kind if self.told.verdicts else "missed"

    @property
    def named(self) -> tuple[str, ...]:
        """The nodes that the last verdict names."""
        return self.told.verdicts[-1][1].nodes if self.told.verdicts else ()

    @property
    def seconds(self) -> float:
        """From the last byte to the first verdict."""
        return self.told.verdicts[0][0] - self.told.begin if self.told.verdicts else NEVER

    @property
    def pushed_seconds(self) -> float:
        """From the last byte to the first alert that is pushed."""
        return self.told.pushed[0] - self.told.begin if self.told.pushed else NEVER

    @property
    def distinguishable(self) -> bool:
        """Whether the named node stopped before all others by more than the clocks and the samples may be wrong."""
        if self.plan.clocks == "unknown":
            return False
        bound = CLOCKS["ntp" if self.plan.clocks == "wrong" else self.plan.clocks][1]
        return self.case.lead() > 2 * bound + SAMPLES_SECONDS

    @property
    def expected(self) -> tuple[str, ...]:
        """The kinds that are right: none is named where the wire does not show it."""
        truth, hidden = self.case.truth, ("together", "unknown")
        if truth.kind == "loss":
            return ("loss",) if self.plan.counted else hidden
        if truth.kind == "node":
            shown = {"hang": False, "gone": True, "died": self.plan.connected}[truth.variant]
            lost = ("loss",) if truth.variant == "died" else ()
            return ("node",) if shown or (self.distinguishable and not lost) else (*hidden, "node", *lost)
        return hidden if truth.kind == "together" else (truth.kind,)

    @property
    def is_right(self) -> bool:
        """Whether the last verdict has a kind that is right, and names none that is not concerned."""
        return self.kind in self.expected and self.names_right

    @property
    def names_right(self) -> bool:
        """Whether all nodes that it names are concerned."""
        return set(self.named) <= {*self.case.truth.nodes, *self.case.truth.affected}

    @property
    def is_short(self) -> bool:
        """Whether the silence is shorter than any that is to be judged: three regular ones, or those before steps."""
        regular = longest_silence(self.case, self.told.begin)
        least = 3 * 1.2 * regular + 3.0 if self.plan.steps > 3 else ROUGH_SECONDS
        return self.told.end - self.told.begin < least

    @property
    def alarms_wrongly(self) -> bool:
        """Whether a push named a node that is not concerned."""
        if self.told.pushed is None:
            return False
        truth = self.case.truth
        return not set(self.told.pushed[1].nodes) <= {*truth.nodes, *truth.affected}


def longest_silence(case: Case, before: float) -> float:
    """The longest true silence of any node before an instant, in seconds."""
    flows = [node.job[port, "sent"] for node in case.nodes for port in node.rails if (port, "sent") in node.job]
    gaps = [(flow.begins[1:] - flow.ends[:-1])[flow.ends[1:] < before] for flow in flows]
    return max((float(gap.max()) for gap in gaps if len(gap)), default=0.0)


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def kinds_table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Verdicts by the truth: a row per kind and variant."""
    rows = [["truth", "cases", *KINDS, "missed", "right", "median", "pushed in 10 s"]]
    for name, some in grouped(outcomes, lambda each: f"{each.plan.kind}: {each.plan.variant}"):
        counts = [str(sum(each.kind == kind for each in some)) for kind in (*KINDS, "missed")]
        times = [each.seconds for each in some if each.told.verdicts]
        right = share(sum(each.is_right for each in some), len(some))
        first = f"{median(times):.1f} s" if times else "-"
        soon = sum(each.pushed_seconds <= 10.0 for each in some)
        rows.append([name, str(len(some)), *counts, right, first, share(soon, len(some))])
    return rows


def scores_table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Recall and precision of the kinds, and of the names."""
    rows = [["verdict", "cases", "recall", "precision", "names right"]]
    for kind in NAMING:
        due = [each for each in outcomes if each.expected == (kind,)]
        given = [each for each in outcomes if each.kind == kind]
        found = sum(each.kind == kind for each in due)
        proper = sum(kind in each.expected for each in given)
        names = share(sum(each.names_right for each in given), len(given))
        rows.append([kind, str(len(due)), share(found, len(due)), share(proper, len(given)), names])
    named = [each for each in outcomes if each.named]
    due = [each for each in outcomes if each.expected[0] in NAMING and len(each.expected) == 1]
    hits = sum(bool(each.named) and each.names_right for each in due)
    right = sum(each.names_right for each in named)
    rows.append(["any name", str(len(due)), share(hits, len(due)), share(right, len(named)), ""])
    return rows


def conditions_table(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The share of right verdicts by one condition at a time."""
    conditions: dict[str, Callable[[Outcome], object]] = {
        "clocks": lambda each: each.plan.clocks,
        "topology": lambda each: each.plan.shape.topology,
        "nodes": lambda each: each.plan.shape.nodes,
        "overlap": lambda each: "overlap" if each.plan.shape.ahead > 1 else "none",
        "lost samples": lambda each: f"{100 * each.plan.lost_share:g} %" + (" and an outage" * each.plan.outage),
        "storage": lambda each: each.plan.storage,
        "steps before": lambda each: "3" if each.plan.steps == 3 else "more",
    }
    rows = [["condition", "", "cases", "right", "missed", "wrong name pushed"]]
    for name, value in conditions.items():
        for group, some in grouped(outcomes, lambda each, value=value: str(value(each))):
            right, missed = sum(each.is_right for each in some), sum(each.kind == "missed" for each in some)
            wrong = sum(each.alarms_wrongly for each in some)
            rows.append([name, group, str(len(some)), share(right, len(some)), str(missed), str(wrong)])
    return rows


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> list[tuple[str, list[Outcome]]]:
    """Outcomes by a key, in order."""
    found: dict[str, list[Outcome]] = {}
    for each in outcomes:
        found.setdefault(key(each), []).append(each)
    return sorted(found.items())


def healthy_table(jobs: Sequence[tuple[Case, Sequence[Told]]]) -> list[list[str]]:
    """Pauses of healthy jobs by reason: how many were judged, as what, and how many alerts were pushed."""
    hours = sum(case.end for case, _ in jobs) / 3600
    rows = [["pause", "number", "judged", *KINDS, "pushed", "per 1,000 job-hours"]]
    pauses: dict[str, int] = {}
    for case, _ in jobs:
        for pause in case.truth.pauses:
            pauses[pause.reason] = pauses.get(pause.reason, 0) + 1
    told = [(reason_of(case, each), each) for case, some in jobs for each in some]
    for reason in sorted({*pauses, *(reason for reason, _ in told)}):
        some = [each for name, each in told if name == reason]
        counts = [str(sum(each.verdicts[-1][1].kind == kind for each in some)) for kind in KINDS]
        pushed = sum(each.pushed is not None for each in some)
        number = str(pauses.get(reason, "-"))
        rows.append([reason, number, str(len(some)), *counts, str(pushed), f"{1000 * pushed / hours:.1f}"])
    pushed = sum(each.pushed is not None for _, each in told)
    total = [str(sum(pauses.values())), str(len(told)), *[""] * len(KINDS)]
    rows.append([f"all, {hours:.0f} job-hours", *total, str(pushed), f"{1000 * pushed / hours:.1f}"])
    return rows


def reason_of(case: Case, told: Told) -> str:
    """The pause that a silence belongs to; `step` if to none."""
    overlaps = {
        pause.reason: min(pause.end, told.end) - max(pause.begin, told.begin) for pause in case.truth.pauses
    }  # of pauses of one reason the last one, so that the loop below looks at each
    for pause in case.truth.pauses:
        overlap = min(pause.end, told.end) - max(pause.begin, told.begin)
        overlaps[pause.reason] = max(overlaps[pause.reason], overlap)
    reason, seconds = max(overlaps.items(), key=lambda one: one[1], default=("step", 0.0))
    return reason if seconds > 0 else "step"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is its head."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
