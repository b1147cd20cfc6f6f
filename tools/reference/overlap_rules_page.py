"""docs/overlap-rules.md: every rule of `ibpulse model check`, from its data file."""

from __future__ import annotations

from ibpulse.workbench.models.check import DATA, DATE, EFFECTS, RULES, Rule

_INTRODUCTION = """\
# Rules about overlap

`ibpulse model check` ([overlap.md](overlap.md#check-a-configuration)) applies these {count} rules of {date} to the
options of a run: {options}. Where the first condition holds, the second is needed. Rules change: other versions may
have others."""


def overlap_rules_markdown(written_by: str) -> str:
    """The page, with the sentence that says who wrote it."""
    options = ", ".join(f"`{name}`" for group in DATA["options"].values() for name in group)
    urls = [source["url"] for source in DATA["sources"].values()]
    rows = [_row(rule, [urls.index(url) + 1 for url in rule.sources]) for rule in RULES]
    effects = [f"| {effect} | {text} |" for effect, text in EFFECTS.items()]
    sources = [f"{number}. <{url}>" for number, url in enumerate(urls, 1)]
    return (
        "\n\n".join(
            [
                written_by,
                _INTRODUCTION.format(count=len(RULES), date=DATE, options=options),
                "\n".join(["| rule | where | needs | effect | change | source |", "|---|---|---|---|---|---|", *rows]),
                "\n".join(["| effect | what a violation causes |", "|---|---|", *effects]),
                "Sources:\n\n" + "\n".join(sources),
            ]
        )
        + "\n"
    )


def _row(rule: Rule, sources: list[int]) -> str:
    numbers = ", ".join(map(str, sources))
    return f"| {rule.id} | `{rule.where}` | `{rule.needs}` | {rule.effect} | {rule.change} | {numbers} |"
