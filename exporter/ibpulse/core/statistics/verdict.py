"""Judges the silence of a job: the node or rail at which its traffic stopped, with the evidence and what is not known.

Input is what each node reports on itself: when each rail last moved bytes, when a link was lost, when lost packets were
last counted. All times are bounds in seconds on one clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Moment = tuple[float, float]
"""Bounds of a moment on the common clock, in seconds."""
Kind = Literal["link", "loss", "node", "together", "unknown"]
KINDS: Mapping[Kind, str] = {
    "link": "a rail lost its link before the traffic stopped",
    "loss": "nodes still count lost packets in the silence",
    "node": "one node stopped sending first, by more than the clocks may be wrong, closed its connections, or is gone",
    "together": "no node stopped earlier than it usually does, as far as the clocks tell",
    "unknown": "too little is known of the nodes",
}
"""The kinds of verdicts and their meanings."""

MIN_SILENCE_SECONDS, REGULAR_SILENCES = 1.0, 3.0
UNKNOWN_STEPS_SECONDS = 60.0
"""The silence that is judged before there are steps, and the silence without a cause that is pushed."""
ORDERLY_FACTOR, FIRST_FACTOR = 3.0, 10.0
"""How many times as long a silence must last to be pushed if it began after a whole step, or before there are steps.

Checkpoints and evaluations begin after a whole step; before the first step, programs compile for minutes.
"""
HICCUP_SECONDS, HICCUP_FACTOR = 7.0, 1.5
"""The silence that is pushed if one node stopped first, and its ratio to the longest of these that ended by itself."""
# a node that stops answering within this time of the last byte is part of the cause
GONE_SECONDS = 5.0
# the processes of a job that ends destroy their queue pairs within this time of each other, as after a signal to end
CLOSING_SECONDS = 30.0
# no checkpoint is longer, unless the job has already had longer pauses
SAVING_SECONDS = 600.0
# other nodes may go on for a step or two when a rail has lost its link, or a node is gone
LINK_SECONDS = 30.0
# no step goes on for longer without one of its nodes: the job has gone on without it, as after it shrank
LEFT_SECONDS = 120.0
# samples of a node that end this long before those of others say nothing about the silence
STALE_SECONDS = 10.0
# a last byte that is known less precisely says little about the order
MAX_DOUBT_SECONDS = 0.1
# earlier steps that show how long before the others a node usually stops
MAX_LEADS = 8
LEAD_SECONDS = 0.05
# the silence after a step has at least this part of the longest regular one, its traffic this part of any other step's
STEP_PART = 2 / 3
MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class RailSilence:
    """A rail of a node: when it sent and received its last bytes, None for none so far.

    `lost` is when it last lost its link, None if it is not known to have, and `active` whether the link is up.
    `retried` is when a counter of lost packets last grew, between two readings. The newest reading was at
    `counted_until`, None without such a counter. Its device last had the queue pairs of the job at `connected_until`,
    None if they are not counted; most of them were destroyed at `closed`, None if they are there.
    """

    sent: Moment | None
    received: Moment | None
    lost: Moment | None = None
    active: bool = True
    retried: Moment | None = None
    counted_until: float | None = None
    connected_until: float | None = None
    closed: Moment | None = None

    @property
    def last(self) -> Moment | None:
        """The last byte that it received, or sent if it never received any."""
        return self.received or self.sent


@dataclass(frozen=True, slots=True)
class Pause:
    """A silence of a node that ended: the last byte that it sent before it, and when it began and ended, in seconds."""

    sent: Moment
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class NodeSilence:
    """A node of a job as of its last answer, whose samples end at `known_until`.

    `regular` is the longest regular silence of its last steps in seconds, None before there are any, and `longest` the
    longest that ended by itself. `pauses` are its last regular ones and its longest ones, oldest first. `storage` is
    when its storage ports last carried more than usual. `ordered` is false if its clock is not known, so that its times
    say nothing about those of other nodes. `problem` is why it no longer answers, empty if it does.
    """

    rails: Mapping[str, RailSilence]
    known_until: float
    regular: float | None = None
    longest: float = 0.0
    pauses: Sequence[Pause] = ()
    storage: Moment | None = None
    ordered: bool = True
    problem: str = ""

    @property
    def last(self) -> Moment | None:
        """The last byte that it received, or sent if it never received any.

        Bytes that nobody receives are sent again and again, so sent bytes do not show that a job goes on.
        """
        return latest(rail.received for rail in self.rails.values()) or self.sent

    @property
    def sent(self) -> Moment | None:
        """The last byte that it sent."""
        return latest(rail.sent for rail in self.rails.values())


def latest(moments: Iterable[Moment | None]) -> Moment | None:
    """The latest of some moments, None without any."""
    known = [moment for moment in moments if moment is not None]
    return (max(low for low, _ in known), max(high for _, high in known)) if known else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a silence that began at `since`, when the last byte of the job passed, and lasts for `seconds`.

    It names `nodes`, and `rails` as pairs of node and port. The sentences are the evidence for it, those against
    others, and what was not known. It is pushed after `push_after` seconds of silence.
    """

    kind: Kind
    nodes: tuple[str, ...]
    rails: tuple[tuple[str, str], ...]
    since: Moment
    seconds: float
    push_after: float
    evidence: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The verdict in one sentence without a full stop; it does not change while the silence lasts."""
        if not self.evidence:
            return "the cause is not known"
        # each rail has its own, if there are any, otherwise each node
        others = _names_of(self.rails) or self.nodes[1:]
        more = len(self.evidence) > 1 and others
        return f"{self.evidence[0]}; also {_names(others)}" if more else self.evidence[0]

    @property
    def stalled(self) -> bool:
        """Whether the silence has lasted long enough to be pushed."""
        return self.seconds >= self.push_after


def notable_seconds(regular: float | None) -> float:
    """The silence in seconds above which a job is judged, by its longest regular silence; None if that is unknown."""
    return UNKNOWN_STEPS_SECONDS if regular is None else max(MIN_SILENCE_SECONDS, REGULAR_SILENCES * regular)


def judge(nodes: Mapping[str, NodeSilence], unexplained_seconds: float = UNKNOWN_STEPS_SECONDS) -> Verdict | None:
    """The verdict on the silence of a job by its nodes; None if there is none, or its steps or a checkpoint explain it.

    It depends only on what the nodes report, so whoever asks gets the same. A silence without a cause is pushed after
    `unexplained_seconds` if it cut off traffic, later if it began as pauses do (`ORDERLY_FACTOR`, `FIRST_FACTOR`), and
    not before twice the longest that ended by itself.
    """
    ordered = {name: nodes[name] for name in sorted(nodes)}
    newest = max((node.known_until for node in ordered.values()), default=0.0)
    here = {
        name: node
        for name, node in ordered.items()
        if not node.problem and node.last and newest - node.known_until < STALE_SECONDS
    }
    since = latest(node.last for node in here.values())
    if since is None:
        return None
    case = _Case(ordered, here, since, unexplained_seconds)
    if case.seconds <= case.notable:
        return None
    found = _judge_links(case) or _judge_gone(case) or _judge_closed(case) or _judge_losses(case) or _judge_order(case)
    return None if found.kind not in ("link", "loss") and case.is_saving(found.nodes) else found


Rails = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Case:
    """The silence of a job since its last byte: all its nodes, and those `here`, with new samples and past traffic."""

    nodes: Mapping[str, NodeSilence]
    here: Mapping[str, NodeSilence]
    since: Moment
    unexplained_seconds: float

    @property
    def now(self) -> float:
        """Until when all nodes are known to be silent."""
        return min(node.known_until for node in self.here.values())

    @property
    def seconds(self) -> float:
        """For how long it is certain that no node moved a byte."""
        return self.now - self.since[1]

    @property
    def regular(self) -> float | None:
        """The longest regular silence of its steps; None before there are any."""
        known = [node.regular for node in self.here.values() if node.regular is not None]
        return median(known) if known else None

    @property
    def notable(self) -> float:
        """The silence in seconds above which it is judged."""
        return notable_seconds(self.regular)

    @property
    def soon(self) -> float:
        """For how long the others may go on after the cause, in seconds: it shows after the computation of a step."""
        return LINK_SECONDS + (self.regular or 0.0)

    @property
    def left(self) -> Sequence[str]:
        """The nodes that the job went on without, such as spare ones and those that it lost when it shrank.

        They have moved no byte since the job last went on after a notable silence, or for longer than a step takes.
        """
        ends = [each.end for node in self.here.values() for each in node.pauses if each.seconds > self.notable]
        again = max((end for end in ends if end < self.since[0] - LINK_SECONDS), default=-math.inf)
        least = max(again, self.since[0] - max(self.notable, LEFT_SECONDS))
        return [name for name, node in self.here.items() if node.last and node.last[1] < least]

    @property
    def part(self) -> Mapping[str, NodeSilence]:
        """The nodes that took part in the job when it fell silent."""
        left = self.left
        return {name: node for name, node in self.here.items() if name not in left}

    @property
    def closed(self) -> Mapping[str, Sequence[tuple[str, Moment]]]:
        """The nodes that destroyed queue pairs when the job fell silent, and were silent since: each rail, and when.

        Those that made them anew have no past traffic.
        """
        found: dict[str, Sequence[tuple[str, Moment]]] = {}
        for name, node in self.nodes.items():
            # the others go on until the next collective
            least = max(_low(node.last), self.since[0] - self.soon)
            closed = [(rail, each.closed) for rail, each in node.rails.items() if each.closed]
            if late := [(rail, moment) for rail, moment in closed if moment[1] >= least]:
                found[name] = late
        return found

    @property
    def ends(self) -> bool:
        """Whether most nodes have destroyed their queue pairs: the job ends or starts again."""
        return 2 * len(self.closed) > len(self.nodes)

    @property
    def unexplained(self) -> float:
        """The silence in seconds that is pushed without a cause, after a checkpoint at its begin if there is one."""
        if self.regular is None or self.ends:
            factor = FIRST_FACTOR
        else:
            factor = 1.0 if all(map(_was_cut, self.here.values())) else ORDERLY_FACTOR
        least = max(factor * self.unexplained_seconds, 2 * max(node.longest for node in self.here.values()))
        saved = latest(node.storage for node in self.nodes.values())
        saving = max(0.0, saved[1] - self.since[1]) if saved else 0.0
        return max(least, min(saving + least, SAVING_SECONDS))

    def rails(self) -> Iterator[tuple[str, str, RailSilence]]:
        """Every rail of the nodes that answer, with the names of both."""
        for name, node in self.here.items():
            for rail, silence in node.rails.items():
                yield name, rail, silence

    def is_saving(self, names: Sequence[str]) -> bool:
        """Whether storage ports of these nodes, or of any node if none is named, were busy until a moment ago."""
        saved = latest(node.storage for name, node in self.nodes.items() if name in names or not names)
        lasts = saved is not None and saved[1] > self.since[0] and self.now - saved[1] <= self.notable
        return lasts and self.seconds <= max(SAVING_SECONDS, self.unexplained)

    def verdict(
        self, kind: Kind, nodes: Iterable[str], rails: Rails, evidence: Sequence[str], push_after: float | None = None
    ) -> Verdict:
        """A verdict with the evidence against the other kinds, and what is not known."""
        return Verdict(
            kind=kind,
            nodes=tuple(dict.fromkeys(nodes)),
            rails=tuple(rails),
            since=self.since,
            seconds=self.seconds,
            push_after=self.unexplained if push_after is None else push_after,
            evidence=tuple(evidence),
            against=tuple(text for other, text in _exclude(self) if other != kind),
            unknown=tuple(_find_doubts(self)),
        )


def _judge_links(case: _Case) -> Verdict | None:
    found = [(name, rail, each.lost) for name, rail, each in case.rails() if each.lost and _is_cause(each, case)]
    if not found:
        return None
    found.sort(key=lambda one: one[2])
    texts = [f"{name} {rail} lost its link {_when(lost, case.since)}" for name, rail, lost in found]
    return case.verdict("link", (name for name, _, _ in found), [(name, rail) for name, rail, _ in found], texts, 0.0)


def _is_cause(rail: RailSilence, case: _Case) -> bool:
    """Whether a lost link may have stopped the job: it had been in use, and soon the whole job was silent."""
    lost, last = rail.lost, rail.last
    if lost is None or last is None:
        return False
    used, silent = last[1] >= lost[0] - max(case.notable, LINK_SECONDS), last[0] <= lost[1]
    # the loss of a link shows at the next collective, after the silence between two
    return used and silent and case.since[0] - lost[1] <= case.soon and lost[0] - case.since[1] <= case.notable / 3


def _judge_losses(case: _Case) -> Verdict | None:
    """Rails that certainly counted lost packets in the silence."""
    grown = [(name, rail, each.retried) for name, rail, each in case.rails() if each.retried]
    found = [(name, rail, retried) for name, rail, retried in grown if retried[0] >= case.since[0]]
    texts = [f"{name} {rail} counted lost packets {_when(retried, case.since)}" for name, rail, retried in found]
    rails = [(name, rail) for name, rail, _ in found]
    # one packet that is sent twice does not make a checkpoint a stall
    push_after = None if case.is_saving(()) else 0.0
    return case.verdict("loss", (name for name, _ in rails), rails, texts, push_after) if found else None


def _judge_gone(case: _Case) -> Verdict | None:
    """Nodes that stopped answering when the job fell silent, and reported no silence before.

    What the others do afterwards follows from that: they retransmit what such a node does not receive. A node may only
    be some seconds late, so until then nothing is known.
    """
    gone = [
        name
        for name, node in case.nodes.items()
        if node.problem and node.last and -case.soon <= node.known_until - case.since[1] <= GONE_SECONDS
    ]
    silent = [name for name in gone if case.nodes[name].known_until - _low(case.nodes[name].last) > case.notable]
    if not gone or silent or 2 * len(gone) > len(case.nodes):
        return None
    if case.seconds < GONE_SECONDS:
        return case.verdict("unknown", (), (), ())
    texts = [f"{name} does not answer any more: {case.nodes[name].problem}" for name in gone]
    return case.verdict("node", gone, (), texts, HICCUP_SECONDS)


def _judge_closed(case: _Case) -> Verdict | None:
    """Nodes that have destroyed queue pairs while most others certainly still have theirs: a process ended there."""
    closed = case.closed
    connected = [
        name
        for name, node in case.here.items()
        if name not in closed and all(_high(each.connected_until) > case.since[1] for each in node.rails.values())
    ]
    if not closed or len(connected) < len(case.nodes) / 2:
        return None
    rails = [(name, rail, moment) for name, found in closed.items() for rail, moment in found]
    texts = [f"{name} {rail} closed its connections {_when(moment, case.since)}" for name, rail, moment in rails]
    # at the end of a job, processes end one after the other, and nobody sends them what they do not acknowledge
    alive = [each for name in connected for each in case.here[name].rails.values()]
    since = min(case.since[0], *(moment[0] for *_, moment in rails))
    missed = not all(_counted(each, case) and (not each.retried or each.retried[1] < since) for each in alive)
    push_after = max(case.unexplained, ORDERLY_FACTOR * case.unexplained_seconds)
    if missed and any(_was_cut(node) for name, node in case.here.items() if name not in closed):
        push_after = CLOSING_SECONDS + max(0.0, max(moment[1] for *_, moment in rails) - case.since[1])
    return case.verdict("node", closed, [(name, rail) for name, rail, _ in rails], texts, push_after)


def _was_cut(node: NodeSilence) -> bool:
    """Whether what a node sent last was clearly shorter than the traffic between any two of its earlier silences.

    A node that evaluates alone ends a step. What it receives of the next one is cut off, but not what it sent.
    """
    usual = [after.begin - before.end for before, after in pairwise(node.pauses)]
    begins = [pause.end for pause in node.pauses if pause.end < _low(node.sent)]
    return bool(usual and begins) and _low(node.sent) - begins[-1] < STEP_PART * min(usual)


def _low(moment: Moment | None) -> float:
    return moment[0] if moment else 0.0


def _high(moment: float | None) -> float:
    return -math.inf if moment is None else moment


def _judge_order(case: _Case) -> Verdict:
    """One node that certainly stopped sending first, or none."""
    (name, *others), gap, way = _find_first(case)
    ordered = all(node.ordered for node in case.nodes.values())
    part = case.part
    complete = len(case.here) == len(case.nodes) and len(part) > 1
    if ordered and complete and not others and gap > _usual_lead(case, name):
        # one node stops first and waits in the first step after a node joined, and while others write a checkpoint
        waits = any(node.regular is None for node in part.values()) or case.is_saving(()) or case.ends
        push_after = None if waits else _hiccup(case, name)
        rails = [(name, rail) for rail, each in case.here[name].rails.items() if each.sent]
        text = f"{name} {way} its last byte {_span(gap)} or more before every other node"
        return case.verdict("node", (name,), rails, [text], push_after)
    if not ordered or not complete:
        return case.verdict("unknown", (), (), _describe_end(case))
    sent = [node.sent for node in part.values() if node.sent]
    apart = max(high for _, high in sent) - min(low for low, _ in sent) if sent else 0.0
    every = f"{len(part)} of {len(case.nodes)}" if case.left else "both" if len(part) == 2 else f"all {len(part)}"
    text = f"{every} nodes sent their last bytes within {_span(apart)}"
    return case.verdict("together", (), (), [text, *_describe_end(case)])


def _describe_end(case: _Case) -> list[str]:
    """The sentence that the job seems to end, none if it does not."""
    text = f"{len(case.closed)} of {len(case.nodes)} nodes closed their connections: the job ends or starts again"
    return [text] if case.ends else []


def _find_first(case: _Case) -> tuple[tuple[str, ...], float, str]:
    """The nodes that may have stopped sending first, by how much one that certainly did is earlier than the next, and
    whether it `sent` or only `moved`, in either direction, its last byte before them.

    A node that does not begin a collective gives no credit to the node that sends to it, so these two stop first. The
    node that it sends to receives nothing then, so only the first one is one of the two in both directions. In larger
    groups, clocks may have hidden it.
    """
    sent, sent_gap = _find_earliest({name: node.sent or node.last for name, node in case.part.items()})
    if len(sent) == 1:
        return sent, sent_gap, "sent"
    received, received_gap = _find_earliest({name: node.last for name, node in case.part.items()})
    both = tuple(name for name in sent if name in received)
    pairs = (len(sent), len(received), len(both)) == (2, 2, 1)
    return (both, min(sent_gap, received_gap), "moved") if pairs else (sent, 0.0, "")


def _find_earliest(moments: Mapping[str, Moment | None]) -> tuple[tuple[str, ...], float]:
    """The nodes that may have been the first, and by how much all others were certainly later; 0 without others."""
    known = {name: moment for name, moment in moments.items() if moment is not None}
    earliest = min(high for _, high in known.values())
    first = tuple(name for name, (low, _) in known.items() if low <= earliest)
    later = [low for name, (low, _) in known.items() if name not in first]
    return first, min(later) - earliest if later else 0.0


def _middle(moment: Moment) -> float:
    return (moment[0] + moment[1]) / 2


def _leads(case: _Case, name: str) -> Iterator[tuple[float, float]]:
    """The earlier silences of a node: the length of each, and for how much of it every other node still sent.

    A node that sent nothing since the silence before may go on receiving for long, as the ends of a pipeline do:
    infinite.
    """
    mine, before = case.here[name], -math.inf
    others = [node for other, node in case.part.items() if other != name]
    # what it received after its last byte belongs to the silence that is judged
    for pause in (each for each in mine.pauses if not mine.sent or each.end <= mine.sent[1]):
        last = min(_last_before(pause.end, node.pauses) for node in others)
        yield pause.seconds, last - _middle(pause.sent) if pause.sent[1] > before else math.inf
        before = pause.end


def _last_before(moment: float, pauses: Sequence[Pause]) -> float:
    """When a node last sent before a moment at which others go on, if these are its pauses."""
    return next((_middle(each.sent) for each in pauses if each.begin < moment <= each.end + LEAD_SECONDS), moment)


def _usual_lead(case: _Case, name: str) -> float:
    """For how long a node is usually silent while all others send, as the first stage of a pipeline is."""
    usual = max(case.notable, notable_seconds(case.here[name].regular))
    leads = [lead for seconds, lead in _leads(case, name) if seconds <= usual][-MAX_LEADS:]
    return max(0.0, LEAD_SECONDS + max(leads, default=-LEAD_SECONDS))


def _hiccup(case: _Case, name: str) -> float | None:
    """The silence that is pushed because a node stopped first: longer than the longest of these that ended by itself.

    None, not known, if the node may evaluate alone: how long it waited for a checkpoint does not tell for how long.
    """
    if _waits(case, name):
        return None
    leads = [(seconds, lead) for seconds, lead in _leads(case, name) if seconds > case.notable]
    earlier = [seconds for seconds, lead in leads if LEAD_SECONDS < lead < math.inf]
    return max(HICCUP_SECONDS, HICCUP_FACTOR * max(earlier, default=0.0))


def _waits(case: _Case, name: str) -> bool:
    """Whether a node ended a step with the others, which then began the next one, as when it evaluates alone.

    The others paused for as long as they usually do. A node that stops before another collective of the step, while the
    others send, or while they go on for several steps, does not wait.
    """
    ended = case.here[name].sent
    if ended is None:
        return False
    near = []
    for pauses in (node.pauses for other, node in case.part.items() if other != name and node.pauses):
        usual = median([each.seconds for each in pauses if each.seconds <= case.notable] or [case.notable])
        low, high = pauses[-1].sent
        together = low <= ended[1] + LEAD_SECONDS and high >= ended[0] - LEAD_SECONDS
        near.append(pauses[-1].seconds >= STEP_PART * usual and together)
    return 2 * sum(near) > len(near)


def _exclude(case: _Case) -> Iterator[tuple[Kind, str]]:
    """Sentences about the kinds that it is not."""
    late = [(name, rail, each.lost) for name, rail, each in case.rails() if each.lost and not each.active]
    late = [one for one in late if one[2][0] > case.since[1]]
    for name, rail, lost in late:
        yield "link", f"{name} {rail} lost its link only {_when(lost, case.since)}"
    whose = "" if len(case.here) == len(case.nodes) else " of the nodes with samples"
    if not late and all(each.active for _, _, each in case.rails()):
        yield "link", f"all rails{whose} have their links"
    if all(_counted(each, case) for _, _, each in case.rails()):
        yield "loss", f"no rail{whose} has counted lost packets since the last byte"
    first, gap, way = _find_first(case)
    ordered = all(node.ordered for node in case.here.values())
    if len(first) > 1 and ordered:
        yield "node", f"any of {_names(first)} may have been the first to stop sending"
    elif ordered and 0 < gap <= _usual_lead(case, first[0]):
        yield "node", f"{first[0]} {way} its last byte {_span(gap)} or more before every other node, as it often does"


def _counted(rail: RailSilence, case: _Case) -> bool:
    """Whether lost packets in the silence would have been seen."""
    return rail.counted_until is not None and rail.counted_until > case.since[1]


def _find_doubts(case: _Case) -> Iterator[str]:
    """Sentences about what is not known."""
    gone = [name for name, node in case.nodes.items() if node.problem]
    if gone:
        yield f"what {_names(gone)} did: no answer"
    mute = [name for name, node in case.nodes.items() if not node.problem and name not in case.here]
    if mute:
        yield f"what {_names(mute)} did: no new samples, or no traffic before"
    if case.left:
        apart = case.since[0] - max(_low(case.here[name].last) for name in case.left)
        yield f"whether the job still uses {_names(case.left)}: silent {_span(apart)} or more before the others"
    if len(case.nodes) == 1:
        yield "what the other nodes of the job did"
    clocks = [name for name, node in case.here.items() if not node.ordered]
    if clocks and len(case.nodes) > 1:
        yield f"the order of the nodes: no known clock on {_names(clocks)}"
    uncounted = list(dict.fromkeys(name for name, _, each in case.rails() if not _counted(each, case)))
    if uncounted:
        yield f"whether packets were lost in the silence: no count by {_names(uncounted)} since the last byte"
    doubts = {name: node.sent[1] - node.sent[0] for name, node in case.here.items() if node.sent}
    if vague := [name for name, doubt in doubts.items() if doubt > MAX_DOUBT_SECONDS]:
        apart = max(doubts.values())
        why = "samples are missing, a clock is inexact, or what was sent last had no answer"
        yield f"when {_names(vague)} sent the last byte, to better than {_span(apart)}: {why}"


def _when(moment: Moment, since: Moment) -> str:
    """A moment relative to the last byte of the job: `0.2 s before the last byte of the job`."""
    apart = _middle(moment) - _middle(since)
    doubt = (moment[1] - moment[0] + since[1] - since[0]) / 2
    if abs(apart) <= doubt:
        return f"within {_span(doubt)} of the last byte of the job"
    return f"{_span(abs(apart))} {'before' if apart < 0 else 'after'} the last byte of the job"


def _span(seconds: float) -> str:
    """Two digits, so that gateways that measure the clocks slightly differently write the same."""
    number = float(f"{seconds:.2g}")
    return f"{number:g} s" if number >= 1 else f"{1000 * number:g} ms"


def _names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:MAX_NAMED])} and {more} more nodes"


def _names_of(rails: Rails) -> list[str]:
    """All rails but the first by node: `7 other rails of n1`, `n2 mlx5_0:1`, `8 rails of n3`."""
    counts, last = Counter(node for node, _ in rails[1:]), dict(rails[1:])
    other = {node: "other " for node, _ in rails[:1]}
    return [
        f"{node} {rail}" if counts[node] == 1 else f"{counts[node]} {other.get(node, '')}rails of {node}"
        for node, rail in last.items()
    ]
