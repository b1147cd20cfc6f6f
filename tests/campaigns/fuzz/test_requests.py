"""The running daemon is asked what its API document allows, and what it forbids: it never fails, hangs or tells paths.

`FUZZ_CASES` says how often, `FUZZ_SEED` what; `make fuzz` asks 10,000 times.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fabrics import simulated
from tests.running import Running

CASES = int(os.environ.get("FUZZ_CASES", "500"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
ANSWER_SECONDS = 10.0
STREAM_BYTES = 2_048
EVENTS = "text/event-stream"
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
# a refusal that says when to come again is no failure
PATIENCE = ("/api/docs#too-many-captures", "/api/docs#too-many-viewers", "/api/docs#too-busy")
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secret-place")


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[Running]:
    flags = ("--sampler.history=10s", "--capture.before=1s", "--capture.after=0s")
    opened = ("--capture.allow-unauthenticated=true", "--capture.max-bytes=20MB")
    with (
        simulated(directory / "sys", "moe") as tree,
        Running(tree, directory / "ring", *flags, *opened) as running,
    ):
        yield running


def ask(session: requests.Session, case: schemathesis.Case, url: str) -> requests.Response:
    """The answer to a case; of a stream its beginning."""
    words = case.as_transport_kwargs(base_url=url)
    answer = session.request(**words, timeout=ANSWER_SECONDS, stream=True)
    if answer.headers.get("content-type", "").startswith(EVENTS) and answer.status_code == 200:
        next(answer.iter_content(STREAM_BYTES), b"")
        answer.close()
    else:
        assert answer.content is not None
    return answer


def strategies(schema: schemathesis.BaseSchema) -> Iterator[st.SearchStrategy[schemathesis.Case]]:
    """One for each operation and kind of case; what has no parameter cannot be asked wrongly."""
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in MODES:
            if mode is MODES[0] or operation.query or operation.path_parameters or operation.body:
                yield operation.as_strategy(generation_mode=mode)


@pytest.mark.timeout(60 + CASES // 5)
def test_whatever_is_asked_there_is_an_answer_that_fails_nowhere_and_tells_no_path(
    daemon: Running, directory: Path
) -> None:
    schema = schemathesis.openapi.from_url(f"{daemon.url}/api/openapi.json")
    secrets = [str(directory), sys.prefix, str(Path(__file__).parents[4]), "Traceback", 'File "', "site-packages"]
    session = requests.Session()
    statuses: Counter[int] = Counter()

    @seed(SEED)
    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(*strategies(schema)))
    def examine(case: schemathesis.Case) -> None:
        answer = ask(session, case, daemon.url)
        statuses[answer.status_code] += 1
        if answer.headers.get("content-type", "").startswith(EVENTS):
            return
        told = answer.text + str(answer.headers)
        assert not [secret for secret in secrets if secret in told], told
        if answer.status_code == 503:
            assert answer.json()["type"] in PATIENCE, told
        assert answer.status_code < 500 or answer.status_code == 503, told
        case.validate_response(answer, checks=CHECKS)

    examine()
    sys.stdout.write(f"{sum(statuses.values())} requests of seed {SEED}: {dict(sorted(statuses.items()))}\n")
    assert sum(statuses.values()) >= CASES
    assert daemon.ask("/-/healthy").status_code == 200
    assert "Traceback" not in daemon.log()
