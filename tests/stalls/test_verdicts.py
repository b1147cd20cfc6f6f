from tests.stalls import broken, healthy
from tests.stalls.broken import VARIANTS, Plan
from tests.stalls.followed import follow_healthy, follow_stall
from tests.stalls.score import Outcome
from tests.stalls.training import Shape
from tests.tables import for_each

KINDS = [(kind, variant) for kind, variants in VARIANTS.items() for variant in variants]
PLANS = {
    f"{kind}: {variant}, {topology}, {clocks}": Plan(
        kind, variant, Shape(8, topology, rails=2, ahead=ahead), clocks, lost_share=lost, quiet=20.0, decoys=True
    )
    for kind, variant in KINDS
    for topology, clocks, ahead, lost in (("ring", "ntp", 1, 0.01), ("all-to-all", "ptp", 2, 0.2))
}


@for_each({name: (plan, seed) for seed, (name, plan) in enumerate(PLANS.items())})
def test_a_stall_has_its_kind_and_names_only_nodes_that_are_concerned(plan, seed):
    case = broken.make(plan, seed)
    outcome = Outcome(plan, case, follow_stall(case, seed))
    assert outcome.kind in outcome.expected
    assert outcome.names_right
    assert not outcome.alarms_wrongly
    assert outcome.seconds < 10
    assert bool(outcome.named) == (plan.kind != "together")


def test_no_pause_of_a_healthy_job_is_pushed():
    every = {"checkpoint-remote": 900.0, "evaluation-all": 1700.0, "restart": 2000.0}
    case = healthy.make("healthy", Shape(4, rails=1, step=2.0), healthy.Habits(2.0, every), seed=4)
    told = list(follow_healthy(case, seed=4))
    assert told, "pauses are judged"
    assert [(each.begin, each.pushed) for each in told if each.pushed] == []
