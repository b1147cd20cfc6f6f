"""The reference pages under docs/ that are generated from the tables.

`python -m tools.reference docs` writes all of them; `make check` fails when the committed ones differ.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ibpulse.agent.config.settings import CONFIG_FILE, GROUPS, ROWS, Setting
from ibpulse.commands import DESCRIPTION, EVERY_SETTING, VERBS, Verb
from ibpulse.commands.parser import build_parser, own_actions, setting_rows
from ibpulse.workbench.simulate.faults import FAULTS
from tools.grafana.alerts import ALERTS
from tools.reference.doctor_page import doctor_markdown
from tools.reference.metric_pages import counters_markdown, metrics_markdown
from tools.reference.overlap_rules_page import overlap_rules_markdown
from tools.reference.packages_picture import packages_svg

WRITTEN_BY = "<!-- Written by `python -m tools.reference docs` from the tables; do not edit. -->"
_EXIT_CODES = """\
Exit codes: 0 success; 1 failure, with the reason on standard error; 2 invalid arguments or configuration, with one
line per error; 130 ended by Ctrl-C. The settings, which most commands accept as flags, are described in
[configuration.md](configuration.md)."""
_RUNBOOKS = """\
# Runbooks

One page per alert, all of one form: the impact, whether to drain the node, and which team; what the alert means and
whether it is maintenance; queries and commands to paste; what to do, and how certain it is. [alerts.md](../alerts.md)
lists severities, labels and the time until each alert fires.

- The commands take the namespace `ibpulse` and the chart's name; replace them if yours differ. The image has no shell:
  `kubectl exec` runs the program itself.
- Commands marked *on the node* need a login there. `mlxlink`, `ibdiagnet`, `perfquery` and `py-spy` are no part of
  ibpulse."""


def configuration_markdown() -> str:
    """docs/configuration.md: every setting, from the table of settings."""
    sections = [
        f"## {group}\n\n{sentence}\n\n{_settings_table(row for row in ROWS if row.group == group)}"
        for group, sentence in GROUPS.items()
    ]
    table = _settings_table([CONFIG_FILE])
    return "\n\n".join([WRITTEN_BY, _CONFIGURATION.format(table=table), *sections]) + "\n"


def cli_markdown() -> str:
    """docs/cli.md: every verb, from the same parsers that read the command line."""
    verbs = "\n".join(
        f"| [`{verb.name}`](#ibpulse-{verb.name.replace(' ', '-')}) | {verb.summary} |" for verb in VERBS.values()
    )
    overview = f"# Commands\n\n{DESCRIPTION}\n\n| command | description |\n|---|---|\n{verbs}"
    return "\n\n".join([WRITTEN_BY, overview, _EXIT_CODES, *map(_verb_section, VERBS.values())]) + "\n"


def runbooks_markdown() -> str:
    """docs/runbooks/README.md: the list of runbooks, from the alerts."""
    runbooks = "\n".join(f"- [{alert.name}]({alert.name}.md): {alert.summary}" for alert in ALERTS)
    return "\n\n".join([WRITTEN_BY, _RUNBOOKS, runbooks]) + "\n"


def write(directory: Path) -> None:
    """Write every page into the directory."""
    for name, page in PAGES.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")


def _settings_table(rows: Iterable[Setting]) -> str:
    lines = [
        f"| `{row.name}` | `{_cell(row.kind.metavar)}` | {row.default_text} | `{row.variable}` | {row.sentence} |"
        for row in rows
    ]
    return "\n".join(["| setting | value | default | environment | description |", "|---|---|---|---|---|", *lines])


def _verb_section(verb: Verb) -> str:
    parser = build_parser(verb)
    parts = [f"## ibpulse {verb.name}", verb.summary, f"```sh\n{parser.usage}\n\n# example\n{verb.example}\n```"]
    lines = [_argument_row(action) for action in own_actions(parser) if action.help != argparse.SUPPRESS]
    if lines:
        parts.append("\n".join(["| argument | default | description |", "|---|---|---|", *lines]))
    if any("--fault" in action.option_strings for action in own_actions(parser)):
        faults = [f"| `{name}` | {fault.text} |" for name, fault in FAULTS.items()]
        parts.append("\n".join(["| fault | effect |", "|---|---|", *faults]))
    taken = " and ".join(filter(None, [f"`{CONFIG_FILE.flag}`", _settings_link(verb)]))
    parts.append(f"Also accepts {taken} as {'flags' if verb.settings else 'a flag'}.")
    return "\n\n".join(parts)


def _settings_link(verb: Verb) -> str:
    if set(verb.settings) >= set(EVERY_SETTING):
        return "all [settings](configuration.md)"
    groups = [f"[{name}](configuration.md#{name})" for name in GROUPS if name in verb.settings]
    single = [
        f"[{row.name}](configuration.md#{row.group})" for row in setting_rows(verb) if row.group not in verb.settings
    ]
    return " and ".join([f"the settings of {', '.join(groups)}"] * bool(groups) + [", ".join(single)] * bool(single))


def _argument_row(action: argparse.Action) -> str:
    name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    default = "" if action.default is False or action.default in (None, "", []) else f"`{action.default}`"
    # the default has a column of its own
    sentence = re.sub(r" \(default: [^)]*\)\.?$", ".", (action.help or "") % vars(action))
    return f"| `{_cell(name)}` | {_cell(default)} | {_cell(sentence)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_CONFIGURATION = """\
# Configuration

A setting has the same name everywhere. `sampler.interval` is the flag `--sampler.interval=10ms`, the environment
variable `IBPULSE_SAMPLER__INTERVAL=10ms`, and in the YAML file:

```yaml
sampler:
  interval: 10ms
ports:
  exclude: [mlx5_bond_0, "mlx5_4:1"]
```

Flags override environment variables, which override the file, which overrides the defaults.

- Durations are written `10ms`, `5m`, `1h30m`; rates are written `0.1GB/s`, in decimal units of bytes.
- A list is a comma-separated value (`--ports.exclude=mlx5_2,mlx5_3`), a repeated flag, or a YAML list. A list from
  one source replaces the list from another; they are not merged. If a flag with a single value is repeated, the last
  one wins.
- Unknown flags, unknown keys in the file and unknown variables that begin with `IBPULSE_` are refused. The variables
  that Kubernetes sets for a service named `ibpulse` are ignored.
- All errors in flags, environment and file are reported in one run, each with its location. `ibpulse config check` does
  only that and shows where each value comes from; `ibpulse config print` prints the configuration as a file.

{table}"""


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_markdown,
    "cli.md": cli_markdown,
    "metrics.md": metrics_markdown,
    "counters.md": counters_markdown,
    "doctor.md": doctor_markdown,
    "overlap-rules.md": lambda: overlap_rules_markdown(WRITTEN_BY),
    "runbooks/README.md": runbooks_markdown,
    "pictures/packages.svg": packages_svg,
}
"""The pages by file name; whoever writes a page from a table adds it here."""


def main(words: Sequence[str]) -> int:
    """Write the pages into the directory that the one word names."""
    write(Path(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
