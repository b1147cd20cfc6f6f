"""The answers about captures, and the trigger that a request asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ibpulse.agent.flightrecorder.recorder import Pending
from ibpulse.agent.flightrecorder.rules import API, Trigger
from ibpulse.agent.flightrecorder.store import Stored
from ibpulse.base.units import MILLISECOND_NS, format_duration
from ibpulse.base.values import SOME_TIME
from ibpulse.core.answers.captures import CaptureJobAnswer, CapturesAnswer, PendingAnswer, StoredAnswer
from ibpulse.core.http.capture_requests import CaptureRequest
from ibpulse.core.http.parameters import read_parameter
from ibpulse.core.http.problems import bad_parameter
from ibpulse.core.jobs import JobRecord

PATH = "/api/v1/captures"


def list_captures(
    stored: Sequence[Stored],
    pending: Sequence[Pending],
    problem: str,
    jobs: Mapping[str, Sequence[JobRecord]] = MappingProxyType({}),
    ports: Mapping[str, str] = MappingProxyType({}),
) -> CapturesAnswer:
    """The answer with all captures; `stored` is oldest first. `jobs` and `ports` are those of each capture, as far as
    known.

    A file that is complete remains pending until its event is in the event log, so whoever finds it listed finds the
    event as well.
    """
    unfinished = {each.name for each in pending}
    finished = [each for each in stored if each.name not in unfinished]
    return CapturesAnswer.model_construct(
        captures=[
            StoredAnswer.model_construct(
                name=str(each.name),
                trigger_ms=each.name.trigger_ms,
                reason=each.name.reason,
                ports=ports.get(str(each.name), ""),
                jobs=_jobs(jobs.get(str(each.name))),
                size_bytes=each.size_bytes,
                url=f"{PATH}/{each.name}",
            )
            for each in reversed(finished)
        ],
        pending=[describe_pending(each) for each in pending],
        stored_bytes=sum(each.size_bytes for each in finished),
        problem=problem,
    )


def _jobs(records: Sequence[JobRecord] | None) -> list[CaptureJobAnswer] | None:
    return None if records is None else [_job(record) for record in records]


def _job(record: JobRecord) -> CaptureJobAnswer:
    claim = record.job.claim
    return CaptureJobAnswer.model_construct(
        job_id=claim.id,
        scheduler=claim.scheduler,
        name=claim.name,
        namespace=claim.namespace,
        ports=[str(port) for port in record.job.ports],
        began_ms=None if record.began_ns is None else record.began_ns // MILLISECOND_NS,
        began_uncertainty_ms=-(-record.began_uncertainty_ns // MILLISECOND_NS),
        ended_ms=None if record.ended_ns is None else record.ended_ns // MILLISECOND_NS,
        ended_uncertainty_ms=-(-record.ended_uncertainty_ns // MILLISECOND_NS),
    )


def describe_pending(pending: Pending) -> PendingAnswer:
    """The answer about a capture that is not finished."""
    return PendingAnswer.model_construct(
        name=str(pending.name),
        trigger_ms=pending.name.trigger_ms,
        reason=pending.name.reason,
        ready_ms=pending.ready_ns // MILLISECOND_NS,
        url=f"{PATH}/{pending.name}",
    )


def make_request_trigger(
    body: CaptureRequest, now_ns: int, default_span_ns: tuple[int, int], history_ns: int
) -> Trigger:
    """The trigger of a request; `default_span_ns` is the default time before and after.

    Raises:
        ProblemError: a duration is invalid, or both together exceed the history.
    """
    before_ns = None if body.before is None else read_parameter("before", body.before, SOME_TIME)
    after_ns = None if body.after is None else read_parameter("after", body.after, SOME_TIME)
    whole_ns = (before_ns or default_span_ns[0]) + (after_ns or default_span_ns[1])
    if whole_ns > history_ns:
        raise bad_parameter(
            "before",
            f"{format_duration(whole_ns)} together with after exceeds the history, "
            f"{format_duration(history_ns)}; shorten one of them",
        )
    return Trigger(API, body.reason, now_ns, body.labels, before_ns, after_ns)
