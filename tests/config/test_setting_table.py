"""The table of settings in words, and the checked settings beside it, name the same things."""

from dataclasses import fields

from ibpulse.config.loading import load
from ibpulse.config.settings import CONFIG_FILE, GROUP_TYPES, GROUPS, ROWS, describe, row


def test_every_row_of_the_table_has_a_checked_field_and_every_field_a_row() -> None:
    found = [(group, field.name) for group, kind in GROUP_TYPES.items() for field in fields(kind)]
    assert found == [(entry.group, entry.field) for entry in ROWS]


def test_every_group_is_described() -> None:
    assert list(GROUPS) == list(dict.fromkeys(entry.group for entry in ROWS))
    assert all(GROUPS.values())


def test_fields_are_named_like_their_settings() -> None:
    for entry in ROWS:
        assert entry.field.replace("_", "-") == entry.name.partition(".")[2].replace(".", "-")


def test_what_a_setting_writes_it_reads_back() -> None:
    settings = load({}, {})
    for entry in ROWS:
        value = getattr(getattr(settings, entry.group), entry.field)
        written = entry.kind.write(value)
        text = written if isinstance(written, list) else "" if written is None else str(written)
        assert entry.kind.parse(text) == value


def test_a_setting_is_named_alike_as_flag_and_variable() -> None:
    entry = row("analysis.active-threshold")
    assert entry.flag == "--analysis.active-threshold"
    assert entry.variable == "IBPULSE_ANALYSIS__ACTIVE_THRESHOLD"


def test_the_description_begins_with_the_file_and_has_every_row() -> None:
    assert describe() == (CONFIG_FILE, *ROWS)


def test_every_setting_has_a_help_sentence_and_a_default_to_show() -> None:
    for entry in describe():
        assert entry.sentence.endswith(".")
        assert entry.default_text


def test_the_defaults_are_those_of_the_table() -> None:
    settings = load({}, {})
    assert settings.sampler.interval == 10_000_000
    assert settings.sampler.history == 300_000_000_000
    assert settings.sampler.scheduler == "other"
    assert settings.sampler.cpu is None
    assert settings.ports.include == settings.ports.exclude == ()
    assert settings.analysis.active_threshold == 100_000_000
    assert settings.slow.interval == 5 * 10**9
    assert (settings.web.listen_address.host, settings.web.listen_address.port) == ("", 10055)
    assert (settings.log.level, settings.log.format) == ("info", "text")
    assert str(settings.path.sysfs) == "/sys"
