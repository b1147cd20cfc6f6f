"""Runs the episodes of a campaign, one after another, and judges each by the invariants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from bench.faults.evidence import Evidence, seconds_of
from bench.faults.invariants import INVARIANTS, Violation
from bench.faults.load import Load
from bench.faults.outcome import Cost, Judged, Outcome
from bench.faults.plan import START_SECONDS, Episode, Happened, Occurrence
from bench.faults.testbed import Testbed

CALM_SECONDS = 5.0
# after the daemon answered again
SETTLE_SECONDS = 1.0
WARM_UP_SECONDS = 15.0
# twice what is documented, because the machine may be slow
STOP_SECONDS = 10.0
DRAIN_SECONDS = 20.0


class Campaign:
    """A campaign on a testbed under load; `next_episode` returns the faults to inject, `say` takes lines of text."""

    def __init__(
        self,
        testbed: Testbed,
        load: Load,
        next_episode: Callable[[], Episode],
        seed: int,
        say: Callable[[str], object] = print,
    ) -> None:
        self.outcome = Outcome(seed)
        self._testbed = testbed
        self._load = load
        self._next_episode = next_episode
        self._say = say
        self._begun = time.monotonic()
        # the cost of this life of the daemon when it had warmed up
        self._first: Cost | None = None
        self._life = 0
        self._warm_at = 0.0

    def run(self, seconds: float, warm_up_seconds: float = WARM_UP_SECONDS) -> None:
        """Episodes until the time is over, or until the daemon answers no more."""
        self._wait_until_answering(self._begun)
        time.sleep(warm_up_seconds)
        self._first, self._life = self._cost(), len(self._testbed.service.all_pids)
        self.outcome.costs.append(self._first)
        while time.monotonic() - self._begun < seconds and self._run_episode(self._next_episode()):
            pass
        self.outcome.costs.append(self._cost())
        self.outcome.lives = self._load.summarize_lives()

    def stop(self) -> None:
        """End the daemon; call it after the load has ended."""
        begun = time.monotonic()
        seconds, status, left = self._testbed.service.stop(2 * STOP_SECONDS)
        self.outcome.stop_seconds = seconds
        if status != 0 or seconds > STOP_SECONDS or left:
            value = f"exit status {status} after {seconds:.1f} s, {len(left)} processes left"
            self._report(Violation("clean exit", begun, value))

    def _run_episode(self, episode: Episode) -> bool:
        """Let an episode happen and judge it; False if the daemon does not answer afterwards."""
        begin = time.monotonic()
        mine = list(self._suffer(episode, begin))
        settled = max((one.end + one.effect.settle_seconds for one in mine), default=0.0)
        answers = self._wait_until_answering(max(time.monotonic(), settled))
        time.sleep(SETTLE_SECONDS)
        happened = [*self.outcome.happened, *mine]
        evidence = Evidence(self._testbed, self._load, happened, begin, time.monotonic())
        # one fault can violate an invariant many times; the first time is enough
        found = [violation for invariant in INVARIANTS if (violation := next(invariant(evidence), None))]
        found += self._judge_cost()
        if not answers:
            found.append(Violation("running", evidence.end, "the daemon does not answer any more; the campaign ends"))
        self.outcome.episodes.append(Judged(mine, found, max(map(seconds_of, evidence.unsampled.values()))))
        names = ", ".join(str(one.occurrence) for one in mine) or "calm"
        self._say(f"{begin - self._begun:7.1f} s  {names}")
        for violation in found:
            self._say(self.sentence(violation, names))
        for one in mine:
            if one.effect.lies:
                self._load.rates.rebase(one.occurrence.device)
        return answers

    def _suffer(self, episode: Episode, begin: float) -> Iterator[Happened]:
        """Let the faults begin and end at their times."""
        steps = [(one.begin, True, one) for one in episode] + [(one.end, False, one) for one in episode]
        working: dict[str, tuple[Happened, ExitStack]] = {}
        with ExitStack() as everything:
            for at, begins, one in sorted(steps, key=lambda step: step[:2]):
                time.sleep(max(0.0, begin + at - time.monotonic()))
                if begins:
                    stack = everything.enter_context(ExitStack())
                    if found := self._begin(one, stack):
                        working[str(one)] = found, stack
                elif str(one) in working:
                    happened, stack = working[str(one)]
                    stack.close()
                    happened.end = time.monotonic()
                    yield happened
        if not episode:
            time.sleep(CALM_SECONDS)

    def _begin(self, one: Occurrence, stack: ExitStack) -> Happened | None:
        happened = Happened(one, time.monotonic())
        try:
            stack.enter_context(one.fault.suffer(self._testbed, one.device))
        except OSError as error:
            self._say(f"{one} could not begin: {error}")
            return None
        return happened

    def _wait_until_answering(self, since: float) -> bool:
        """Wait for a probe and a fresh scrape that began after `since`; False if the daemon does not answer probes.

        A scrape that stays old is what the invariants find.
        """
        load, deadline = self._load, since + START_SECONDS
        while True:
            probed = any(probe.at >= since and probe.answer == 200 for probe in load.probes[-1:])
            scraped = any(one.asked >= since and one.is_fresh for one in load.aggregated[-1:])
            if (probed and scraped) or time.monotonic() > deadline:
                return probed
            time.sleep(0.1)

    def _cost(self) -> Cost:
        testbed = self._testbed
        return Cost(testbed.memory_bytes(), testbed.service.descriptors(), len(testbed.service.all_pids))

    def _judge_cost(self) -> Iterator[Violation]:
        """Compare with the beginning of the same life, after the connections of the last fault have closed."""
        cost, now = self._cost(), time.monotonic()
        if cost.life != self._life:
            self._life, self._warm_at, self._first = cost.life, now + WARM_UP_SECONDS, None
        if self._first is None:
            if now >= self._warm_at:
                self._first = cost
                self.outcome.costs.append(cost)
            return
        while cost.exceeds(self._first) and time.monotonic() < now + DRAIN_SECONDS:
            time.sleep(0.5)
            cost = self._cost()
        if cost.exceeds(self._first) and cost.life == self._life:
            yield Violation("flat", now, f"{self._first} at first, {cost} now")
            # the next episodes are judged by themselves
            self._first = cost

    def _report(self, violation: Violation) -> None:
        self.outcome.final.append(violation)
        self._say(self.sentence(violation, "the whole campaign"))

    def sentence(self, violation: Violation, faults: str) -> str:
        """A violation with the faults, the seed, the time and the value."""
        at = violation.at - self._begun
        where = f"{violation.invariant} at {at:.1f} s, seed {self.outcome.seed}, {faults}"
        return f"  VIOLATION of {where}: {violation.value}"
