"""The program prints, answers and writes what the goldens say."""

from __future__ import annotations

import pytest

from tests.contract.__main__ import GROUPS, make
from tests.contract.answers import GATEWAY, NODE
from tests.contract.goldens import FOLDER, Golden, compare, to_words
from tests.contract.verbs import like_newer_python


@pytest.mark.parametrize("group", GROUPS)
def test_the_contract_is_kept(group: str) -> None:
    faults = compare(group, make(group))
    if faults:
        advice = f"If every change is intended, run `python -m tests.contract {group}` and commit what it writes."
        pytest.fail("\n\n".join([*faults, advice]), pytrace=False)
