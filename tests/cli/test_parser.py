"""The arguments of a verb: settings as flags, unknown flags, help texts."""

import re

import pytest

from ibpulse.commands import VERBS, Verb, find_verb, group_overview, overview, split_verb
from ibpulse.commands.parser import build_parser, parse
from ibpulse.config.setting_table import ROWS, SettingRow, describe
from ibpulse.config.setting_types import RATIO
from ibpulse.errors import ConfigError
from tests.tables import for_each

CONFIG = VERBS["config"]


def squeezed(text: str) -> str:
    """The text as one line: where help is wrapped depends on the terminal."""
    return re.sub(r"\s+", " ", text)


def test_the_overview_names_every_verb_with_its_summary() -> None:
    for verb in VERBS.values():
        assert re.search(rf"^  {verb.name} +{re.escape(verb.summary)}$", overview(), re.MULTILINE)


@for_each({row.name: row for row in describe()})
def test_help_has_every_setting_with_sentence_default_and_variable(row: SettingRow) -> None:
    text = squeezed(build_parser(CONFIG, show_settings=True).format_help())
    assert f"{row.flag} {row.metavar} {row.sentence} (default: {row.default_text}; environment: {row.variable})" in text


def test_help_has_summary_usage_and_example() -> None:
    text = build_parser(CONFIG).format_help()
    assert text.startswith("usage: ibpulse config check|print [flag ...]\n")
    assert squeezed(CONFIG.summary) in squeezed(text)
    assert squeezed(text).endswith(f"example: {CONFIG.example} ")


def test_a_percent_sign_in_a_sentence_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ibpulse.config.setting_table.ROWS", (SettingRow("log.share", RATIO, "5%", "At most 5% of all."),)
    )
    assert "At most 5% of all. (default: 5%;" in squeezed(build_parser(CONFIG, show_settings=True).format_help())


def test_examples_begin_with_their_verb() -> None:
    for verb in VERBS.values():
        assert verb.example.startswith(f"ibpulse {verb.name} ")


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
        (["--sampler.intervl=1ms"], ("flag --sampler.intervl: no such flag; did you mean --sampler.interval?",)),
        (["--sampler.intervl", "1ms"], ("flag --sampler.intervl: no such flag; did you mean --sampler.interval?",)),
        (["-z"], ("flag -z: no such flag; see `ibpulse config --help`",)),
        (["--sampler.int=1ms"], ("flag --sampler.int: no such flag; did you mean --sampler.interval?",)),
        (["now"], ("now: not expected here; a value belongs to a flag, like --sampler.interval=10ms",)),
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
    ("words", "sentence"),
    [
        ([], "the following arguments are required: check|print; see `ibpulse config --help`"),
        (["check", "--sampler.cpu"], "argument --sampler.cpu: expected one argument; see `ibpulse config --help`"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(CONFIG, words)
    assert (sentence,) == refusal.value.faults


@for_each(VERBS)
def test_help_of_a_verb_fits_one_screen_and_names_the_way_to_its_settings(verb: Verb) -> None:
    text = build_parser(verb).format_help()
    assert len(text.splitlines()) <= 60
    assert "--help-all" in text
    assert [row.flag for row in ROWS if re.search(rf"{re.escape(row.flag)} ", text)] == []


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("srve", "did you mean serve?"),
        ("versoin", "did you mean version?"),
        ("xyzzy", f"choose {', '.join(VERBS)}"),
    ],
)
def test_an_unknown_verb_is_refused_with_the_nearest_or_with_the_known_ones(name: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        find_verb(name)
    assert refusal.value.faults == (f"{name}: no such command; {way_out}",)


@pytest.fixture
def two_words(monkeypatch: pytest.MonkeyPatch) -> Verb:
    verb = Verb("probe deep", "Looks deeper.", "ibpulse probe deep /x", settings=())
    monkeypatch.setitem(VERBS, verb.name, verb)
    return verb


def test_a_verb_may_have_two_words(two_words: Verb) -> None:
    assert split_verb(["probe", "deep", "/x", "--flag"]) == (two_words, ["/x", "--flag"])
    assert split_verb(["config", "check"]) == (CONFIG, ["check"])
    with pytest.raises(ConfigError) as refusal:
        split_verb(["probe", "/x"])
    assert refusal.value.faults == ("probe /x: no such command; did you mean probe deep?",)


def test_the_first_word_of_a_group_lists_its_verbs(two_words: Verb) -> None:
    assert "  probe deep  Looks deeper.\n" in group_overview("probe")
    assert group_overview("config") == group_overview("xyzzy") == ""
