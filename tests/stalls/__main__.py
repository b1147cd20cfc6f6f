"""`python -m tests.stalls`: verdicts on stalled and on healthy jobs, compared with the truth, as tables."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.stalls.broken import Plan, make, plans
from tests.stalls.followed import Told, follow_healthy, follow_stall
from tests.stalls.healthy import jobs
from tests.stalls.material import Case
from tests.stalls.score import (
    Outcome,
    conditions_table,
    healthy_table,
    kinds_table,
    markdown,
    scores_table,
)


def stalled(plan: Plan, seed: int, counted_every: float) -> Outcome:
    case = make(plan, seed)
    return Outcome(plan, case, follow_stall(case, seed, rails=None, counted_every=counted_every))


def outcomes(seed: int, count: int, counted_every: float, workers: int) -> Iterator[Outcome]:
    """Stalls that were judged, without those that ended before any rule judges."""
    every = list(plans(seed, count))
    with ProcessPoolExecutor(workers) as pool:
        for outcome in pool.map(stalled, every, range(len(every)), [counted_every] * len(every)):
            if not outcome.is_short:
                yield outcome


def followed(case: Case) -> tuple[Case, list[Told]]:
    return case, list(follow_healthy(case, seed=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stalls", type=int, default=400, help="stalled jobs (400)")
    parser.add_argument("--hours", type=float, default=0.0, help="hours of healthy jobs (0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counted-every", type=float, default=5.0, help="seconds between readings of lost packets (5)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--wrong", action="store_true", help="also list what was wrong")
    given = parser.parse_args()
    found = list(outcomes(given.seed, given.stalls, given.counted_every, given.workers))
    for table in (kinds_table, scores_table, conditions_table) if found else ():
        print(markdown(table(found)), end="\n\n")
    for each in (one for one in found if given.wrong and not one.is_right):
        print(
            each.plan,
            each.case.truth.nodes,
            f"{each.case.lead():.3f}" if each.case.truth.nodes else "",
            each.kind,
            each.named,
            each.told.verdicts[-1][1].evidence if each.told.verdicts else "",
        )
    if given.hours:
        with ProcessPoolExecutor(given.workers) as pool:
            healthy = list(pool.map(followed, jobs(given.seed, given.hours)))
        print(markdown(healthy_table(healthy)))
        for case, some in healthy if given.wrong else ():
            for told in some:
                if told.pushed:
                    print(case.name, told.begin, told.end, told.pushed[1])


if __name__ == "__main__":
    main()
