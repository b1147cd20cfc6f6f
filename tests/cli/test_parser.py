"""The arguments of a verb: settings as flags, unknown flags, help texts, and their completion in a real shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ibpulse.agent.config.settings import ROWS
from ibpulse.base.errors import ConfigError
from ibpulse.cli import main
from ibpulse.commands import VERBS, Verb, group_overview
from ibpulse.commands.parser import build_parser, find_verb, parse, split_verb
from tests.tables import for_each

CONFIG = VERBS["config"]


def squeezed(text: str) -> str:
    """The text as one line: where help is wrapped depends on the terminal."""
    return re.sub(r"\s+", " ", text)


def test_an_address_may_follow_flags() -> None:
    for words in (["a.parquet", "node7:10055", "--trim"], ["a.parquet", "--trim", "node7:10055"]):
        parsed = parse(VERBS["record"], words)
        assert (parsed.arguments.address, parsed.faults) == ("node7:10055", ())


def test_settings_are_handed_over_as_texts_apart_from_the_verbs_own_arguments() -> None:
    parsed = parse(CONFIG, ["print", "--sampler.interval=2ms", "--ports.include", "a", "--ports.include=b"])
    assert {name: texts for name, texts in parsed.flags.items() if texts} == {
        "sampler.interval": ["2ms"],
        "ports.include": ["a", "b"],
    }
    assert vars(parsed.arguments) == {"action": "print", "format": "yaml"}
    assert parsed.faults == ()


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        (["--sampler.int=1ms"], ("flag --sampler.int: no such flag; did you mean --sampler.interval?",)),
        (
            ["--zzz=1", "now"],
            (
                "flag --zzz: no such flag; see `ibpulse config --help`",
                "now: not expected here; a value belongs to a flag, like --sampler.interval=10ms",
            ),
        ),
    ],
)
def test_what_nobody_knows_is_listed_and_never_guessed(words: list[str], faults: tuple[str, ...]) -> None:
    assert faults == parse(CONFIG, ["check", *words]).faults


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("record x --from node7:10055", "--from: no such flag; did you mean --url=node7:10055?"),
        ("fleet collect -o x --gateway=https://gw", "--gateway: no such flag; did you mean --url=https://gw?"),
        ("trace x --recording=node7.parquet", "--recording: no such flag; did you mean --against?"),
        ("demo --port=8", "--port: no such flag; did you mean --ports?"),
        ("serve --workload=moe", "--workload: no such flag; it is a flag of `ibpulse demo`, `ibpulse simulate`"),
        ("record x --xyzzy=1", "--xyzzy: no such flag; see `ibpulse record --help`"),
    ],
)
def test_a_word_of_another_verb_gets_a_hint(words: str, hint: str) -> None:
    verb, rest = split_verb(words.split())
    assert parse(verb, rest).faults[0] == f"flag {hint}"


@for_each(VERBS)
def test_help_of_a_verb_fits_one_screen_and_names_the_way_to_its_settings(verb: Verb) -> None:
    text = build_parser(verb).format_help()
    assert len(text.splitlines()) <= 60
    assert "--help-all" in text
    assert [row.flag for row in ROWS if re.search(rf"{re.escape(row.flag)} ", text)] == []


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("compare", "did you mean report?"),
        ("collect", "did you mean fleet collect?"),
        ("xyzzy", f"choose {', '.join(VERBS)}"),
    ],
)
def test_an_unknown_verb_is_refused_with_the_nearest_or_with_the_known_ones(name: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        find_verb(name)
    assert refusal.value.faults == (f"{name}: no such command; {way_out}",)


@pytest.fixture
def two_words(monkeypatch: pytest.MonkeyPatch) -> Verb:
    verb = Verb("probe deep", "Looks deeper.", "ibpulse probe deep /x", settings=(), options="probe", runs="probe.run")
    monkeypatch.setitem(VERBS, verb.name, verb)
    return verb


def test_a_verb_may_have_two_words_and_the_first_lists_its_verbs(two_words: Verb) -> None:
    assert split_verb(["probe", "deep", "/x", "--flag"]) == (two_words, ["/x", "--flag"])
    assert split_verb(["config", "check"]) == (CONFIG, ["check"])
    with pytest.raises(ConfigError) as refusal:
        split_verb(["probe", "/x"])
    assert refusal.value.faults == ("probe /x: no such command; did you mean probe deep?",)
    assert "  probe deep  Looks deeper.\n" in group_overview("probe")
    assert group_overview("config") == group_overview("xyzzy") == ""


ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_shtab_ibpulse ibpulse "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda text="", **_: printed.append(text))
        assert main(["completion", "bash"], {}) == 0
    path = tmp_path_factory.mktemp("completion") / "ibpulse.bash"
    path.write_text("".join(printed))
    return path


def complete(script: Path, *words: str) -> list[str]:
    command = ["bash", "--norc", "-c", ASK, "bash", str(script), "ibpulse", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.real("process")
def test_commands_flags_and_choices_are_completed(script: Path) -> None:
    assert set(complete(script, "")) >= {name.split()[0] for name in VERBS}
    for words, expected in {
        "re": "record replay report render",
        "fleet ": "collect report render",
        "model experts --exch": "--exchange",
        "report --br": "--brief",
        "record --ur": "--url",
        "serve --sampler.h": "--sampler.history",
        "render --theme ": "light dark",
    }.items():
        assert complete(script, *words.split(" ")) == expected.split(), words
