"""The program prints, answers and writes what the goldens say."""

from __future__ import annotations

import json
import re

import pytest

from tests.contract.__main__ import GROUPS, make
from tests.contract.goldens import FOLDER, Golden, compare, round_numbers, to_words
from tests.contract.verbs import like_newer_python


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


def test_the_layout_is_told_apart_from_the_words() -> None:
    before, after = "a table:\n  1   2\n\n  and text\n", "a table:\n1  2 and\ntext"
    assert to_words(before) == to_words(after) == "a table:\n1 2 and text"
    assert to_words('{"a":1,"b":[2]}') == to_words('{ "a": 1,\n  "b": [2] }') != to_words('{"a":1,"c":[2]}')


def test_a_long_document_in_a_line_is_kept_member_by_member() -> None:
    line = json.dumps({"a": ["x" * 400]})
    golden = Golden("x", {"title": f"data: {line}\nend"})
    assert golden.text("printed").startswith(f"=== title\ndata: JSON of {len(line)} bytes, SHA-256 ")
    assert golden.text("words") == f"=== title\ndata:\n{json.dumps(json.loads(line), indent=1)}\nend\n\n"


def test_only_numbers_with_more_digits_than_a_processor_agrees_on_are_rounded() -> None:
    kept = "1763683214.05 1763683200010000000 1.2.3 100.00 200.00 300.00 5.6e-05 20251121T000016.300Z"
    assert round_numbers(kept) == kept
    assert round_numbers('{"a":0.27923684646948604}') == '{"a":0.2792368465}'


def test_help_of_an_older_python_reads_like_that_of_a_newer_one() -> None:
    old = "  -o OUT, --output OUT\n  -h, --help\n(choose from 'a', 'b')"
    assert like_newer_python(old) == "  -o, --output OUT\n  -h, --help\n(choose from a, b)"
