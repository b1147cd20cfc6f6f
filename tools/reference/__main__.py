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
from ibpulse.agent.sysfs import kinds, pcie
from ibpulse.commands import DESCRIPTION, EVERY_SETTING, VERBS, Verb
from ibpulse.commands.parser import build_parser, own_actions, setting_rows
from ibpulse.core.events import event
from ibpulse.workbench.simulate.faults import FAULTS
from tools.grafana import recording_rules
from tools.grafana.alerts import ALERTS, Alert
from tools.reference.doctor_page import doctor_markdown
from tools.reference.metric_pages import counters_markdown, metrics_markdown
from tools.reference.packages_picture import packages_svg
from tools.reference.workbench_pages import model_inputs_markdown, overlap_rules_markdown, report_rows_markdown

WRITTEN_BY = "<!-- Written by `python -m tools.reference docs` from the tables; do not edit. -->"
_EXIT_CODES = """\
Exit codes: 0 success; 1 failure; 2 invalid arguments or configuration, with one line per error; 130 ended
by Ctrl-C. Defaults are in brackets. Settings are flags of the same name; every verb takes `--config.file`."""
_RUNBOOKS = """\
# Runbooks

One page per alert, each on one screen: the first two minutes, whether to drain the node, what it means and how certain
it is. [alerts.md](../alerts.md) has labels, and the time until each alert fires.

- Replace the names in capital letters by the labels of the alert: `NODE` is its `instance`.
- A node that is cordoned, drained or updated needs nothing: set `maintenance` ([alerts.md](../alerts.md#maintenance)).
- The commands take the namespace `ibpulse` and the chart's name. Those marked *on the node* need a login there;
  `mlxlink`, `ibdiagnet`, `perfquery` and `py-spy` are not part of ibpulse."""

_RECORDED = """\
# Recorded series

What `dashboards/rules/ibpulse-recording.yaml` records, by group. [scale.md](scale.md#recording-rules) has the cost of
each group."""

_KINDS = {
    "Events": event.KINDS,
    "Devices": kinds.KINDS,
    "Verdicts on PCIe links": pcie.WORDS,
}


def configuration_markdown() -> str:
    """docs/configuration.md: every setting, from the table of settings."""
    sections = [
        f"## {group}\n\n{sentence}\n\n{_settings_list(row for row in ROWS if row.group == group)}"
        for group, sentence in GROUPS.items()
    ]
    table = _settings_list([CONFIG_FILE])
    return "\n\n".join([WRITTEN_BY, _CONFIGURATION.format(table=table), *sections]) + "\n"


def cli_markdown() -> str:
    """docs/cli.md: every verb, from the same parsers that read the command line."""
    verbs = "\n".join(
        f"- [`{verb.name}`](#ibpulse-{verb.name.replace(' ', '-')}): {verb.summary}" for verb in VERBS.values()
    )
    overview = f"# Commands\n\n{DESCRIPTION}\n\n{verbs}"
    known: dict[str, str] = {}
    sections = [_verb_section(verb, known) for verb in VERBS.values()]
    return "\n\n".join([WRITTEN_BY, overview, _EXIT_CODES, *sections]) + "\n"


def runbooks_markdown() -> str:
    """docs/runbooks/README.md: the list of runbooks, from the alerts."""
    runbooks = [f"- [{alert.name}]({alert.name}.md) ({_severity(alert)}): {alert.summary}" for alert in ALERTS]
    return "\n\n".join([WRITTEN_BY, _RUNBOOKS, "\n".join(runbooks)]) + "\n"


def _severity(alert: Alert) -> str:
    return alert.severity + f", otherwise {alert.otherwise}" * bool(alert.otherwise)


def recorded_series_markdown() -> str:
    """docs/recorded-series.md: every series of the recording rules, by group."""
    tables = [
        _listed(name, ((rule.record, rule.text) for rule in group)) for name, group in recording_rules.GROUPS.items()
    ]
    return "\n\n".join([WRITTEN_BY, _RECORDED, *tables]) + "\n"


def kinds_markdown() -> str:
    """docs/kinds.md: what the words of events, devices and PCIe links mean."""
    sections = [_listed(title, table.items()) for title, table in _KINDS.items()]
    return "\n\n".join([WRITTEN_BY, "# Kinds of events and devices", *sections]) + "\n"


def _listed(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"## {title}\n", *(f"- `{word}`: {text}" for word, text in rows)])


def write(directory: Path) -> None:
    """Write every page into the directory."""
    for name, page in PAGES.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")


def _settings_list(rows: Iterable[Setting]) -> str:
    return "\n".join(f"- `{row.name}={row.kind.metavar}` ({row.default_text}): {row.sentence}" for row in rows)


def _verb_section(verb: Verb, known: dict[str, str]) -> str:
    """The arguments of a verb, except those that `known` has from an earlier one, by their lines."""
    parser = build_parser(verb)
    parts = [f"## ibpulse {verb.name}", f"```sh\n{parser.usage}\n\n# example\n{verb.example}\n```"]
    lines, others = [], dict[str, list[str]]()
    for action in own_actions(parser):
        line = _argument(action)
        if action.help == argparse.SUPPRESS:
            continue
        if line in known:
            others.setdefault(known[line], []).append(f"`{_name(action)}`")
        else:
            lines.append(line)
            known[line] = verb.name
    if lines:
        parts.append("\n".join(lines))
    parts += [f"As for [{of}](#ibpulse-{of.replace(' ', '-')}): {', '.join(names)}." for of, names in others.items()]
    if "--fault" in " ".join(lines):
        parts.append("Faults:\n\n" + "\n".join(f"- `{name}`: {fault.text}" for name, fault in FAULTS.items()))
    if taken := _settings_link(verb):
        parts.append(f"Settings: {taken}.")
    return "\n\n".join(parts)


def _settings_link(verb: Verb) -> str:
    if set(verb.settings) >= set(EVERY_SETTING):
        return "[all](configuration.md)"
    groups = [f"[{name}](configuration.md#{name})" for name in GROUPS if name in verb.settings]
    single = [
        f"[{row.name}](configuration.md#{row.group})" for row in setting_rows(verb) if row.group not in verb.settings
    ]
    return ", ".join(groups + single)


def _name(action: argparse.Action) -> str:
    return ", ".join(action.option_strings) or str(action.metavar or action.dest)


def _argument(action: argparse.Action) -> str:
    default = "" if action.default is False or action.default in (None, "", []) else f" (`{action.default}`)"
    # the default stands beside the name
    sentence = re.sub(r" \(default: [^)]*\)\.?$", ".", (action.help or "") % vars(action))
    return f"- `{_name(action)}`{default}: {sentence}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_CONFIGURATION = """\
# Configuration

A setting has the same name everywhere. `sampler.interval` is the flag `--sampler.interval=10ms`, the environment
variable `IBPULSE_SAMPLER__INTERVAL=10ms` (dots become two underscores, dashes one), and in the YAML file:

```yaml
sampler:
  interval: 10ms
ports:
  exclude: [mlx5_bond_0, "mlx5_4:1"]
```

Flags override environment variables, which override the file, which overrides the defaults.

- Below, defaults are in brackets. Durations are written `10ms`, `5m`, `1h30m`; rates are written `0.1GB/s`, in decimal
  units of bytes.
- A list is a comma-separated value (`--ports.exclude=mlx5_2,mlx5_3`), a repeated flag, or a YAML list. A list from
  one source replaces the list from another.
- Unknown flags, keys and variables that begin with `IBPULSE_` are refused, all in one run. `ibpulse config check` shows
  where each value comes from; `ibpulse config print` prints the configuration as a file.

{table}"""


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration_markdown,
    "cli.md": cli_markdown,
    "metrics.md": lambda: f"{WRITTEN_BY}\n\n{metrics_markdown()}",
    "counters.md": lambda: f"{WRITTEN_BY}\n\n{counters_markdown()}",
    "doctor.md": doctor_markdown,
    "overlap-rules.md": lambda: overlap_rules_markdown(WRITTEN_BY),
    "kinds.md": kinds_markdown,
    "recorded-series.md": recorded_series_markdown,
    "model-inputs.md": lambda: model_inputs_markdown(WRITTEN_BY),
    "report-rows.md": lambda: report_rows_markdown(WRITTEN_BY),
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
