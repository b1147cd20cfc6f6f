"""docs/overlap-rules.md: every rule of `ibpulse overlap check`, from the table of rules."""

from __future__ import annotations

from ibpulse.overlap.megatron_options import OPTIONS, NoDefault, Option
from ibpulse.overlap.megatron_rules import EFFECTS, SNAPSHOT_DATE, OverlapRule
from ibpulse.overlap.rule_check import RULES
from ibpulse.overlap.rule_conditions import value_text

_INTRODUCTION = """\
# Rules about overlap

`ibpulse overlap check` ([overlap.md](overlap.md)) applies these {count} rules of {date}. Where the first condition
holds, the second is needed. Rules change: other versions may have others."""
_OPTIONS = """\
## Options

The names for `--set`, the keys and flags that they are read from, and what a command line without the flag means."""


def overlap_rules_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    sources = dict.fromkeys(source for rule in RULES for source in rule.sources)
    numbers = {source: at for at, source in enumerate(sources, 1)}
    rules = [_rule_row(rule, [numbers[source] for source in rule.sources]) for rule in RULES]
    effects = [f"| {effect} | {text} |" for effect, text in EFFECTS.items()]
    files = [
        f"| {number} | `{source.repository}/{source.path}` | `{source.commit}` |" for source, number in numbers.items()
    ]
    return (
        "\n\n".join(
            [
                written_by,
                _INTRODUCTION.format(count=len(RULES), date=SNAPSHOT_DATE),
                "\n".join(["| rule | where | needs | effect | change | source |", "|---|---|---|---|---|---|", *rules]),
                "\n".join(["| effect | what a violation causes |", "|---|---|", *effects]),
                "\n".join(["| source | file | commit |", "|---|---|---|", *files]),
                _OPTIONS,
                "\n".join(
                    [
                        "| option | run_config.yaml | flags of Megatron-LM, after `--` | default of the flags |",
                        "|---|---|---|---|",
                        *map(_option_row, OPTIONS.values()),
                    ]
                ),
            ]
        )
        + "\n"
    )


def _rule_row(rule: OverlapRule, sources: list[int]) -> str:
    numbers = ", ".join(map(str, sources))
    return f"| {rule.id} | {rule.applies.text} | {rule.needs.text} | {rule.effect} | {rule.change} | {numbers} |"


def _option_row(option: Option) -> str:
    keys = ", ".join(
        f"`{key.removeprefix('!')}`" + (" (opposite)" if key.startswith("!") else "") for key in option.keys
    )
    flags = ", ".join(f"`{flag.removeprefix('--')}`" for flag in (*option.flags, *option.off_flags))
    default = "unknown" if option.default is NoDefault else value_text(option.default)  # type: ignore[arg-type]
    return f"| `{option.name}` | {keys} | {flags} | {default} |"
