"""Verdicts on silent jobs whose cause is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ibpulse.core.statistics.verdict import (
    Moment,
    NodeSilence,
    Pause,
    RailSilence,
    Verdict,
    judge,
    notable_seconds,
)
from tests.tables import for_each

STOP, NOW = 1000.0, 1012.0
NAMES = ("n1", "n2", "n10")


def around(moment: float, error: float = 0.007) -> Moment:
    return moment - error, moment + error


def node(stop: float = STOP, error: float = 0.007, rails: int = 2, **members: Any) -> NodeSilence:
    """A node of two rails that stopped at a time, in regular steps of 2 s before, each with a silence of 1 s."""
    rail = RailSilence(around(stop, error), around(stop + 0.001, error), counted_until=NOW - 1)
    ends = [stop - 2.0 * step for step in range(6, 0, -1)]
    pauses = tuple(Pause(around(end, error), end, end + 1.0) for end in ends)
    given = {"known_until": NOW, "regular": 1.0, "longest": 1.0, "pauses": pauses, **members}
    return NodeSilence({f"mlx5_{rail_of}:1": rail for rail_of in range(rails)}, **given)


def job(**changed: NodeSilence) -> dict[str, NodeSilence]:
    """Three nodes that stopped together, except for those that are given."""
    return {name: node() for name in NAMES} | changed


def with_rail(at: NodeSilence, **members: Any) -> NodeSilence:
    """The node with another second rail."""
    return replace(at, rails={**at.rails, "mlx5_1:1": replace(at.rails["mlx5_1:1"], **members)})


def certain(nodes: Mapping[str, NodeSilence]) -> Verdict:
    found = judge(nodes)
    assert found is not None
    return found


def second(**members: Any) -> dict[str, NodeSilence]:
    """The job, with other facts of the second rail of n2."""
    return job(n2=with_rail(node(), **members))


NONE, OF_SECOND = ((), ()), (("n2",), (("n2", "mlx5_1:1"),))
# by kind, nodes and rails of the verdict
KINDS: dict[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], dict[str, dict[str, NodeSilence]]] = {
    ("together", *NONE): {
        "at once": job(),
        "lost later": second(lost=around(STOP + 5), active=False),
        "lost long before": second(lost=around(STOP - 600), active=False),
        "a flap that it survived": second(lost=around(STOP - 2), active=True),
        "a rail without traffic": second(sent=None, received=None, lost=around(STOP), active=False),
        "losses that ended before": second(retried=(STOP - 3, STOP - 2)),
        "losses perhaps before": second(retried=(STOP - 3, STOP + 2)),
        "first within the clocks": job(n10=node(STOP - 0.2, error=0.15)),
        "storage that ended before": job(n1=node(storage=(STOP - 5, STOP - 4))),
    },
    ("link", *OF_SECOND): {
        "lost link": second(lost=around(STOP + 0.02, 0.02), active=False),
        "lost before": second(lost=(STOP - 0.5, STOP + 0.1), active=False),
        "a flap that stays": second(lost=around(STOP), active=True),
        # the link went in the silence between two steps
        "lost in compute": second(lost=around(STOP + 0.8), active=False),
        "a link whose loss the other rails outlived by a step": second(
            sent=around(STOP - 8), received=around(STOP - 8), lost=around(STOP - 7.9)
        ),
        "lost in compute of a long step": {name: node(regular=50.0, known_until=STOP + 160) for name in NAMES}
        | {
            "n2": with_rail(
                node(regular=50.0, known_until=STOP + 160),
                **dict.fromkeys(("sent", "received"), around(STOP - 60)),
                lost=around(STOP - 40),
                active=False,
            )
        },
        "losses elsewhere": second(lost=around(STOP), active=False)
        | {"n1": with_rail(node(), retried=(STOP + 1, STOP + 2))},
        "one node": {"n2": with_rail(node(), lost=around(STOP))},
        # a checkpoint of one node that the others wait for is its storage traffic, and so is one of all nodes after it
        "storage": job(n2=with_rail(node(storage=(NOW - 2, NOW - 1)), lost=around(STOP))),
    },
    ("loss", *OF_SECOND): {"losses": second(retried=(STOP + 1, STOP + 2))},
    ("node", ("n10",), (("n10", "mlx5_0:1"), ("n10", "mlx5_1:1"))): {"first": job(n10=node(STOP - 1.2))},
    ("node", ("n2",), ()): {
        "no answer since then": job(n2=node(STOP - 1, known_until=STOP - 0.9, problem="timed out")),
        "no answer since then, and its neighbour sends again": job(
            n1=with_rail(node(), retried=(STOP + 4, STOP + 5)),
            n2=node(STOP - 1, known_until=STOP - 0.9, problem="timed out"),
        ),
    },
    ("unknown", *NONE): {
        "first without its clock": job(n10=node(STOP - 1.2, ordered=False)),
        "without any clock": {name: node(ordered=False) for name in NAMES},
        "one silent node": {"n1": node()},
        "no answer for long": job(n2=node(STOP - 60, known_until=STOP - 50, problem="timed out")),
        "no answer for less than five seconds": {
            "n1": node(STOP - 1.2, known_until=STOP + 4),
            "n2": node(STOP, known_until=STOP + 4),
            "n10": node(STOP, known_until=STOP - 0.5, problem="timed out"),
        },
    },
}


@for_each({name: (nodes, *verdict) for verdict, cases in KINDS.items() for name, nodes in cases.items()})
def test_kind_nodes_and_rails(
    nodes: dict[str, NodeSilence], kind: str, names: tuple[str, ...], rails: tuple[tuple[str, str], ...]
) -> None:
    found = certain(nodes)
    assert (found.kind, found.nodes, found.rails) == (kind, names, rails)
    assert found.push_after == {"link": 0.0, "loss": 0.0, "node": 7.0}.get(kind, 180.0)


@for_each(
    {
        "a node that moves bytes": job(n1=node(NOW)),
        "a silence of steps": {name: node(STOP, known_until=STOP + 2.9) for name in NAMES},
        "a node whose samples end early": job(n1=node(known_until=STOP + 2.9)),
        "before there are steps": {name: node(regular=None, known_until=STOP + 59) for name in NAMES},
        "long steps": {name: node(regular=30.0) for name in NAMES},
        "no traffic yet": {name: NodeSilence({"mlx5_0:1": RailSilence(None, None)}, NOW) for name in NAMES},
        "a checkpoint": job(n1=node(storage=(NOW - 2, NOW - 1))),
        "a checkpoint that has just ended": job(n1=node(storage=(NOW - 4, NOW - 2))),
        "a checkpoint of the node that all wait for": job(n10=node(STOP - 1.2, storage=(NOW - 2, NOW - 1))),
        "nobody answers": {name: node(problem="refused") for name in NAMES},
        "nobody at all": {},
    }
)
def test_what_is_no_stall(nodes: dict[str, NodeSilence]) -> None:
    assert judge(nodes) is None


def test_the_first_stage_of_a_pipeline_is_not_a_node_that_stopped_first() -> None:
    stages = {f"n{stage}": node(STOP + 0.3 * stage) for stage in range(3)}
    found = certain(stages)
    assert found.kind == "together"
    assert found.against[-1] == "n0 sent its last byte 290 ms or more before every other node, as it often does"
    # it stops a second before its usual lead
    early = stages["n0"]
    rail = replace(early.rails["mlx5_0:1"], sent=around(STOP - 1), received=around(STOP - 1))
    stages["n0"] = replace(early, rails={"mlx5_0:1": rail})
    assert (certain(stages).kind, certain(stages).nodes) == ("node", ("n0",))


def test_a_node_that_the_job_went_on_without_did_not_stop_first() -> None:
    spare = node(STOP - 300, regular=None)
    found = certain(job(n10=spare))
    assert (found.kind, found.evidence) == ("together", ("2 of 3 nodes sent their last bytes within 14 ms",))
    assert found.unknown == ("whether the job still uses n10: silent 300 s or more before the others",)
    hangs = certain(job(n10=spare, n2=node(STOP - 1.2)))
    assert (hangs.nodes, hangs.push_after) == (("n2",), 7.0)
    assert certain({"n1": node(), "n10": spare}).kind == "unknown"
    # others may go on for a long step
    assert certain(job(n10=node(STOP - 100))).nodes == ("n10",)
    # unless they have been silent since, as while they form anew
    for end, kind in ((STOP - 40, "together"), (STOP - 20, "node")):
        anew = paused(node(), (end - 20, 20.0))
        assert certain({"n1": anew, "n2": anew, "n10": node(STOP - 62)}).kind == kind


def test_a_node_that_often_sends_nothing_for_as_long_did_not_stop_first() -> None:
    # a node that takes part every 20 s, while the others have steps of 2 s
    seldom = paused(node(STOP - 12, regular=20.0), (STOP - 54, 20.0), (STOP - 33, 20.0))
    assert certain(job(n10=seldom)).kind == "together"
    assert certain(job(n10=replace(seldom, regular=1.0))).nodes == ("n10",)
    # the first stage of a pipeline receives gradients after it sent its last activations
    first = node(STOP - 8)
    pauses = tuple(Pause(around(STOP - 18), STOP - 18 + 2 * each, STOP - 17 + 2 * each) for each in range(4))
    assert certain(job(n10=replace(first, pauses=pauses))).kind == "together"
    assert certain(job(n10=replace(first, pauses=pauses[:1]))).nodes == ("n10",)
    # but one that received something after its last byte did
    since = tuple(Pause(around(STOP - 8), STOP - 8 + 2 * each, STOP - 7 + 2 * each) for each in range(2))
    assert certain(job(n10=replace(first, pauses=pauses[:1] + since))).nodes == ("n10",)


def one_way(sent: float, received: float) -> NodeSilence:
    rail = RailSilence(around(sent), around(received), counted_until=NOW - 1)
    return replace(node(), rails={"mlx5_0:1": rail})


def test_a_node_that_does_not_begin_a_collective_stops_its_predecessor_in_the_ring_too() -> None:
    begun = STOP + 1
    ring = {
        "n0": one_way(begun, begun),
        "n1": one_way(STOP, begun),
        "n2": one_way(STOP, STOP),
        "n3": one_way(begun, STOP),
    }
    found = certain(ring)
    assert (found.kind, found.nodes) == ("node", ("n2",))
    # its predecessor did not send later
    assert found.sentence == "n2 moved its last byte 990 ms or more before every other node"
    # without the successor it may be either
    assert certain(ring | {"n3": one_way(begun, begun), "n2": one_way(STOP, begun)}).kind == "together"


def test_bytes_that_are_sent_again_and_received_by_nobody_are_no_traffic() -> None:
    again = with_rail(node(), sent=around(NOW - 0.5), lost=around(STOP), active=False)
    found = certain(job(n2=again))
    assert (found.kind, found.seconds > 10) == ("link", True)


@for_each(
    [
        # traffic lasts for a second between two silences: it ended as in each step, or was cut off
        (0.0, 0.0, 45.0, 180.0),
        (0.0, 0.0, 400.0, 800.0),
        (0.5, 0.5, 5.0, 60.0),
        (0.5, 0.5, 45.0, 90.0),
        (0.3, 0.3, 5.0, 180.0),
        (0.5, 0.0, 5.0, 180.0),
    ]
)
def test_what_looks_like_a_pause_is_worth_telling_later(first: float, second: float, longest: float, at: float) -> None:
    nodes = {name: ending(cut, longest) for name, cut in zip(NAMES, (first, second, second), strict=True)}
    assert certain(nodes).push_after == at
    assert certain(job(n10=node(STOP - 1.2, longest=longest))).push_after == 7.0


def test_a_node_that_evaluates_alone_cuts_off_only_what_it_receives() -> None:
    # of two nodes, one ends a step; the other sends its part of the next collective, and waits
    steps = [(STOP - 2 * step - 0.4, 0.3) for step in range(6)]
    evaluates, waits, begins = (
        replace(paused(one_way(*last), *steps), ordered=False)
        for last in ((STOP - 0.4, STOP), (STOP, STOP - 0.4), (STOP, STOP))
    )
    assert certain({"n1": evaluates, "n2": waits}).push_after == 180.0
    # both began the next collective
    assert certain({"n1": begins, "n2": waits}).push_after == 60.0


def ending(early: float, longest: float) -> NodeSilence:
    """A node whose last traffic ended early, by so many seconds."""
    found = node(longest=longest)
    return replace(
        found, pauses=tuple(replace(each, begin=each.begin + early, end=each.end + early) for each in found.pauses)
    )


def test_a_packet_sent_again_during_a_checkpoint_is_worth_telling_late() -> None:
    nodes = job(n1=with_rail(node(storage=(NOW - 2, NOW - 1)), retried=(STOP + 4, STOP + 5)))
    assert (certain(nodes).kind, round(certain(nodes).push_after)) == ("loss", 191)


def test_a_node_that_waits_for_others_that_write_or_for_one_that_joined_is_worth_telling_late() -> None:
    for other, at in ((node(storage=(NOW - 2, NOW - 1)), 191), (node(regular=None, pauses=()), 180)):
        found = certain(job(n1=other, n10=node(STOP - 1.2)))
        assert (found.kind, found.nodes, round(found.push_after)) == ("node", ("n10",), at)


OPEN = {"connected_until": NOW - 1}


def connected(at: NodeSilence, *closed: Moment | None) -> NodeSilence:
    """The node with queue pairs on its rails, which were destroyed at these times."""
    each = zip(at.rails.items(), closed or (None, None), strict=True)
    return replace(at, rails={name: replace(rail, closed=moment, **OPEN) for (name, rail), moment in each})


def test_a_process_that_ended_while_the_others_keep_their_connections_is_the_cause() -> None:
    others = {name: connected(with_rail(ending(0.5, 5.0), retried=(STOP + 1, STOP + 2))) for name in NAMES}
    for stop in (STOP, STOP - 8):
        died = others | {"n2": connected(node(stop), None, around(stop + 1))}
        found = certain(died)
        assert (found.kind, found.nodes, found.rails) == ("node", ("n2",), (("n2", "mlx5_1:1"),))
        assert "n2 mlx5_1:1 closed its connections" in found.sentence
        assert found.push_after == pytest.approx(30 + max(0.0, stop + 1 - STOP), abs=0.1)
    # the others ended a step, as at the end of a job
    ended = {name: connected(node()) for name in NAMES} | {"n2": connected(node(), None, around(STOP + 1))}
    assert (certain(ended).kind, certain(ended).push_after) == ("node", 180.0)
    # the others send it nothing, as after the last numbers of a job were gathered, or do not count what is lost
    for counted_until, at in ((NOW - 1, 180.0), (None, 31.0)):
        ends = {name: connected(with_rail(ending(0.5, 5.0), counted_until=counted_until)) for name in NAMES}
        found = certain(ends | {"n2": connected(node(), None, around(STOP + 1))})
        assert (found.kind, found.push_after) == ("node", pytest.approx(at, abs=0.1))
    # it went on since, the others are not known, or it left long before
    for nodes in (
        others | {"n2": connected(node(), None, around(STOP - 1))},
        job(n2=connected(node(), None, around(STOP + 1))) | {"n1": others["n1"]},
        others | {"n2": connected(node(STOP - 60), None, around(STOP - 59))},
    ):
        assert "closed" not in certain(nodes).sentence


def test_a_node_that_is_lost_in_the_computation_of_a_long_step_is_the_cause() -> None:
    others = {name: connected(node(regular=50.0, known_until=STOP + 160)) for name in NAMES}
    died = connected(node(STOP - 60, regular=50.0, known_until=STOP + 160), None, around(STOP - 40))
    assert certain(others | {"n2": died}).rails == (("n2", "mlx5_1:1"),)
    gone = node(STOP - 60, regular=50.0, known_until=STOP - 40, problem="timed out")
    assert certain(others | {"n2": gone}).sentence == "n2 does not answer any more: timed out"


def test_a_job_that_closes_its_connections_ends_or_starts_again() -> None:
    closed = {name: connected(node(), around(STOP + 3), around(STOP + 3)) for name in NAMES}
    found = certain(closed)
    assert (found.kind, found.push_after) == ("together", 600.0)
    text = "3 of 3 nodes closed their connections: the job ends or starts again"
    assert found.evidence == ("all 3 nodes sent their last bytes within 14 ms", text)
    assert found.sentence == found.evidence[0]
    first = certain(closed | {"n10": connected(node(STOP - 1.2), around(STOP), around(STOP))})
    assert (first.kind, first.nodes, first.push_after) == ("node", ("n10",), 600.0)
    most = certain(closed | {"n1": node()})
    assert (most.evidence[-1], most.push_after) == (text.replace("3 of", "2 of"), 600.0)
    # two of them have made theirs anew, and moved no byte since
    again = {name: replace(rail, sent=None, received=None) for name, rail in closed["n1"].rails.items()}
    begins = certain(closed | {name: replace(closed[name], rails=again, regular=None, pauses=()) for name in NAMES[:2]})
    assert (begins.kind, begins.evidence, begins.push_after) == ("unknown", (text,), 600.0)
    # a lost link is told nevertheless
    lost = closed | {"n2": with_rail(closed["n2"], lost=around(STOP), active=False)}
    assert (certain(lost).kind, certain(lost).push_after) == ("link", 0.0)


@for_each([(-4.0, 180.0), (2.0, 182.0), (300.0, 480.0), (500.0, 600.0)])
def test_a_silence_without_a_cause_counts_from_the_end_of_a_checkpoint(saved: float, at: float) -> None:
    end = STOP + saved
    nodes = {name: node(error=0.0, known_until=max(NOW, end + 4), storage=(end - 1, end)) for name in NAMES}
    assert (certain(nodes).kind, round(certain(nodes).push_after, 2)) == ("together", at)


def test_the_first_steps_may_take_minutes() -> None:
    late = {"known_until": STOP + 70, "regular": None}
    assert certain({name: node(**late) for name in NAMES}).push_after == 600.0
    assert certain({name: node(**late) for name in NAMES} | {"n2": node(STOP - 1, **late)}).push_after == 600.0
    lost = {name: node(**late) for name in NAMES} | {"n2": with_rail(node(**late), lost=around(STOP))}
    assert certain(lost).push_after == 0.0


def paused(at: NodeSilence, *pauses: tuple[float, float]) -> NodeSilence:
    """The node with these silences, by the last byte sent and the length."""
    return replace(at, pauses=tuple(Pause(around(begin), begin, begin + length) for begin, length in sorted(pauses)))


def test_a_node_that_stopped_first_before_and_went_on_is_worth_telling_after_longer_than_that() -> None:
    # n10 stopped for 12 s, and then for 20 s together with all
    others = paused(node(), (STOP - 100, 20.0), (STOP - 199.3, 11.3), (STOP - 2, 1.0))
    nodes = dict.fromkeys(NAMES, others)
    nodes["n10"] = paused(node(STOP - 1.2), (STOP - 100, 20.0), (STOP - 200, 12.0), (STOP - 2, 1.0))
    assert certain(nodes).push_after == 18.0
    nodes["n1"] = node(STOP)
    assert certain(nodes | {"n2": nodes["n10"], "n10": others}).push_after == 18.0


def test_a_node_that_ends_a_step_with_the_others_and_begins_none_may_evaluate_alone() -> None:
    # the others pause for a second after the step and send for 0.2 s in the next one
    nodes = {name: paused(node(), (STOP - 3.2, 1.0), (STOP - 1.2, 1.0)) for name in NAMES}
    nodes["n2"] = paused(node(STOP - 1.2), (STOP - 3.2, 1.0))
    assert (certain(nodes).kind, certain(nodes).nodes, certain(nodes).push_after) == ("node", ("n2",), 180.0)
    # that it once waited for 30 s, such as for a checkpoint, does not tell for how long it evaluates
    nodes["n2"] = paused(node(STOP - 1.2), (STOP - 60, 30.0), (STOP - 5.2, 1.0), (STOP - 3.2, 1.0))
    others = paused(node(), (STOP - 59, 29.0), (STOP - 5.2, 1.0), (STOP - 3.2, 1.0), (STOP - 1.2, 1.0))
    assert certain({"n1": others, "n10": others, "n2": nodes["n2"]}).push_after == 180.0
    # the others went on for a step more
    nodes["n2"] = paused(node(STOP - 3.2), (STOP - 5.2, 1.0))
    assert certain(nodes).push_after == 7.0
    # it stopped while the others sent
    nodes["n2"] = paused(node(STOP - 0.1), (STOP - 3.2, 1.0), (STOP - 1.2, 1.0))
    assert certain(nodes).push_after == 7.0


def test_a_verdict_depends_on_what_nodes_say_and_not_on_their_order() -> None:
    nodes = job(n10=node(STOP - 1.2))
    assert judge(nodes) == judge(dict(reversed(nodes.items())))


def test_evidence_and_doubts_are_sentences_about_what_is_known() -> None:
    last = around(STOP - 0.3)
    found = certain(job(n2=with_rail(node(), sent=last, received=last, lost=(STOP - 0.4, STOP - 0.2), active=False)))
    assert found.evidence == ("n2 mlx5_1:1 lost its link 300 ms before the last byte of the job",)
    assert found.against[0] == "no rail has counted lost packets since the last byte"
    assert found.unknown == ()
    lost = with_rail(node(ordered=False), counted_until=None)
    found = certain({"n1": lost, "n2": node(problem="timed out")})
    assert found.unknown == (
        "what n2 did: no answer",
        "the order of the nodes: no known clock on n1",
        "whether packets were lost in the silence: no count by n1 since the last byte",
    )
    lost = with_rail(node(), lost=around(STOP), active=False)
    assert certain(job(n1=lost, n2=lost)).sentence.endswith(" of the last byte of the job; also n2 mlx5_1:1")
    every = {f"mlx5_{rail}:1": lost.rails["mlx5_1:1"] for rail in range(3)}
    assert certain(job(n2=replace(lost, rails=every))).sentence.endswith("; also 2 other rails of n2")
    assert certain(job(n1=lost, n2=replace(lost, rails=every))).sentence.endswith("; also 3 rails of n2")
    vague = certain({name: node(error=0.2) for name in NAMES}).unknown
    assert [text.split(":")[0] for text in vague] == ["when n1, n10, n2 sent the last byte, to better than 400 ms"]
    for count, names in ((5, "n0, n1, n2, n3, n4"), (6, "n0, n1, n2, n3 and 2 more nodes")):
        found = certain({f"n{each}": node() for each in range(count)})
        assert found.against[-1] == f"any of {names} may have been the first to stop sending"
    gone = {"known_until": STOP + 1, "problem": "timed out"}
    found = certain({**{f"n{each}": node() for each in range(4)}, "n4": node(**gone), "n5": node(**gone)})
    assert found.sentence == "n4 does not answer any more: timed out; also n5"
    found = certain(job(n2=with_rail(node(), lost=around(STOP + 5), active=False)))
    assert "n2 mlx5_1:1 lost its link only 5 s after the last byte of the job" in found.against


@for_each([(None, 60.0), (0.0, 1.0), (0.3, 1.0), (0.5, 1.5), (40.0, 120.0)])
def test_the_shortest_silence_that_is_judged(regular: float | None, seconds: float) -> None:
    assert notable_seconds(regular) == seconds
