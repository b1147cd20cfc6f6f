"""What the pages name is there: commands, flags, settings, metrics, files, headings, targets of make."""

from __future__ import annotations

import functools
import itertools
import json
import re
import tomllib
from pathlib import Path

from ibpulse.agent.config.loading import resolve
from ibpulse.agent.config.settings import CONFIG_FILE, GROUPS, ROWS
from ibpulse.agent.metrics.page import TABLE
from ibpulse.agent.metrics.ports import OTHER_COUNTERS
from ibpulse.agent.web.app import create_app
from ibpulse.commands import VERBS
from ibpulse.commands.parser import build_parser, own_actions, parse, split_verb
from ibpulse.gateway.service import ROWS as GATEWAY_ROWS
from tests.campaigns.__main__ import CAMPAIGNS
from tests.docs.pages import PAGES, ROOT, anchors, blocks, commands, links, name, spans
from tests.tables import for_each
from tests.web.rings import full_node
from tools.grafana.series_names import RECORDED

DESIGN = ROOT / "docs/design.md"
# files that an example names and that are not there when it is read
FILES = ("config.file", "web.config.file", "topology.file")
# values of the chart look like settings
CHART_PAGES = ("helm/ibpulse/README.md", "docs/kubernetes.md")
# of a file that ibpulse does not know: such a metric is called after its file
EXAMPLES = {"ibpulse_hw_sw_link_up_32_total"}
# names in files that look like metrics
FIELDS = {"ibpulse_recording", "ibpulse_recording_version", "ibpulse_report_version", "ibpulse_version"}


every_page = for_each({name(page): page for page in PAGES})


@every_page
def test_every_command_can_be_run_as_it_is_written(page: Path) -> None:
    for words in commands(page):
        if words[0].startswith("-"):
            continue
        if words[0] in ("help", "version"):
            assert all(word in (*" ".join(VERBS).split(), "COMMAND") for word in words[1:]), (
                f"{name(page)}: ibpulse {' '.join(words)}"
            )
            continue
        parsed = parse(*split_verb(words))
        assert parsed.faults == (), f"{name(page)}: ibpulse {' '.join(words)}"
        flags = {key: texts for key, texts in parsed.flags.items() if key not in FILES and "..." not in texts}
        assert resolve(flags, {})


@functools.cache
def known_flags() -> set[str]:
    """Every flag of the program."""
    known = {row.flag for row in (CONFIG_FILE, *ROWS)} | {"--help", "--help-all", "--version"}
    return known | {
        flag for verb in VERBS.values() for item in own_actions(build_parser(verb)) for flag in item.option_strings
    }


@every_page
def test_every_named_flag_exists(page: Path) -> None:
    # of other programs
    others = {"--require-hashes", "--build-arg", "--set", "--values", "--reuse-values", "--reset-then-reuse-values"}
    others |= {"--rollback", "--yaml-cfg", "--cgroup-root"}
    for span in spans(page):
        if re.match(r"--[a-z]", span):
            assert span.split("=")[0].split(" ")[0] in known_flags() | others, f"{name(page)}: {span}: no such flag"


@for_each({name(page): page for page in PAGES if name(page) not in CHART_PAGES})
def test_every_setting_that_is_named_is_there(page: Path) -> None:
    known = {row.name for row in (CONFIG_FILE, *ROWS)}
    for span in spans(page):
        found = re.fullmatch(r"([a-z]+\.[a-z][a-z.-]+)(=.*)?", span)
        # such as nodes.json
        if found and found[1].partition(".")[0] in GROUPS and not found[1].endswith((".json", ".yml")):
            assert found[1] in known, f"{name(page)}: {span}: no such setting"
    for variable in re.findall(r"\bIBPULSE_[A-Z0-9_]+", page.read_text()):
        assert variable in {row.variable for row in (CONFIG_FILE, *ROWS)}, f"{name(page)}: {variable}: no such variable"


@every_page
def test_every_metric_that_is_named_is_exported_or_recorded(page: Path) -> None:
    record = r"\b[a-z_]+:ibpulse_[a-z_0-9]+:[a-z0-9]+"
    assert set(re.findall(record, page.read_text())) <= RECORDED.keys(), f"{name(page)}: not recorded"
    plain = re.sub(record, "", page.read_text())
    for text in re.findall(r"\bibpulse_[a-z_0-9]*(?:\{[a-z_,]+\}[a-z_]*)*", plain):
        for metric in spelled_out(text):
            assert metric.endswith("_") or metric in FIELDS or is_exported(metric), (
                f"{name(page)}: {metric}: not exported"
            )


def spelled_out(text: str) -> list[str]:
    """The names that one with alternatives in braces stands for; braces without a comma are labels."""
    parts = re.split(r"\{([a-z_,]+)\}", text)
    choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    if len(parts) > 1 and "," not in parts[1]:
        return [parts[0]]
    return ["".join(choice) for choice in itertools.product(*choices)]


def is_exported(metric: str) -> bool:
    names = {row.name for row in (*TABLE, *OTHER_COUNTERS, *GATEWAY_ROWS)} | EXAMPLES
    return metric in names or re.sub(r"_(bucket|sum|count)$", "", metric) in names


def test_the_api_page_names_every_endpoint(tmp_path: Path) -> None:
    served = create_app(full_node(tmp_path).parts()).openapi()["paths"]
    paths = {path for path, methods in served.items() if "{" not in path and "get" in methods}
    text = (ROOT / "docs/api.md").read_text()
    assert [path for path in paths if f"`{path}" not in text and f"[`{path}" not in text] == []


def test_the_design_names_every_package_that_the_program_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = itertools.chain(*project["optional-dependencies"].values())
    needed = {re.split(r"[>=\[]", text)[0] for text in (*project["dependencies"], *optional)} - {"ibpulse"}
    tools = section(DESIGN, "Dependencies").lower()
    assert [package for package in needed if package.lower() not in tools] == []


def test_json_examples_are_valid() -> None:
    for page in PAGES:
        found = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)
        for block in found:
            if "..." not in block:
                assert json.loads(block), name(page)


def section(page: Path, heading: str) -> str:
    """What stands under one heading, up to the next of any level."""
    found = re.search(rf"(?ms)^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", page.read_text())
    assert found, f"{name(page)}: no heading {heading}"
    return found[1]


FOLDERS = tuple(sorted(path.name for path in ROOT.iterdir() if path.is_dir()))
# what the project's programs write appears on a machine only after they ran
OUTPUTS = tuple(f"{path}/" for path in re.findall(r"(?m)^/(.*?)/?$", (ROOT / ".gitignore").read_text()))


@every_page
def test_every_link_leads_to_a_heading(page: Path) -> None:
    for link in links(page):
        assert link.target.exists(), f"{name(page)}: {link.text}: there is no such file"
        assert not link.anchor or link.anchor in anchors(link.target), f"{name(page)}: {link.text}: no such heading"


@every_page
def test_every_path_of_the_project_that_is_named_is_there(page: Path) -> None:
    for span in spans(page):
        path = span.rstrip("/")
        if path.partition("/")[0] in FOLDERS and re.fullmatch(r"[\w.*-]+(/[\w.*<>-]+)+", path):
            there = f"{path}/".startswith(OUTPUTS) or list(ROOT.glob(path))
            assert there, f"{name(page)}: {span}: there is no such file"


@every_page
def test_every_target_of_make_that_is_named_is_there(page: Path) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    targets |= {f"campaign-{name}" for name in (*CAMPAIGNS, "NAME")}
    lines = [line for block in blocks(page) for line in block.splitlines()]
    for text in [*lines, *spans(page)]:
        for target in re.findall(r"^make ([a-zA-Z-]+)", text):
            assert target in targets, f"{name(page)}: make {target}: there is no such target"


def test_no_page_is_without_a_link_that_leads_to_it() -> None:
    linked = {link.target.resolve() for page in PAGES for link in links(page)}
    roots = {
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "helm/ibpulse/README.md",
        ROOT / "tests/campaigns/vm/README.md",
    }
    assert [name(page) for page in PAGES if page not in linked | roots] == []


def test_generated_pages_come_last_in_the_search_of_the_site() -> None:
    (names,) = re.findall(r"(?s)GENERATED =\s+/\^\((.*?)\)\$/", (ROOT / "docs/search_scores.js").read_text())
    written = {
        page.stem for page in (ROOT / "docs").glob("*.md") if "Written by" in page.read_text().partition("\n")[0]
    }
    assert set(names.split("|")) == written
