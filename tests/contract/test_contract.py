"""The program prints, answers and writes what the goldens say."""

from __future__ import annotations

import json
import re

import pytest

from tests.contract.__main__ import GROUPS, make
from tests.contract.goldens import FOLDER, compare


@pytest.mark.parametrize("group", GROUPS)
def test_the_contract_is_kept(group: str) -> None:
    faults = compare(group, make(group))
    if faults:
        advice = f"If every change is intended, run `python -m tests.contract {group}` and commit what it writes."
        pytest.fail("\n\n".join([*faults, advice]), pytrace=False)


@pytest.mark.parametrize("name", ["node", "gateway"])
def test_every_documented_endpoint_is_asked(name: str) -> None:
    document = json.loads((FOLDER / "words" / "answers" / f"openapi-{name}.txt").read_text().partition("\n")[2])
    golden = (FOLDER / "printed" / "answers" / f"{name}.txt").read_text()
    streams = (FOLDER / "printed" / "answers" / "streams.txt").read_text()
    titles = re.findall(r"(?m)^=== (?:\S+: )?([A-Z]+) ([^? \n]+)", golden + streams)
    for path, methods in document["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        for method in methods:
            assert any(method.upper() == by and re.fullmatch(pattern, at) for by, at in titles), f"{method} {path}"
