"""Checks the options of a Megatron run against the rules about overlap in `megatron_rules.yaml`.

Options come from `run_config.yaml` of Megatron-Bridge, or from `MODEL_ARGS` in a job file of Megatron-LM.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ibpulse.base import document
from ibpulse.base.document import Section, members_of
from ibpulse.base.errors import ConfigError
from ibpulse.base.text import count_text
from ibpulse.base.values import YAML_TRUTH, advice, whole
from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence, text_of
from ibpulse.workbench.models.megatron import BRIDGE_TARGET, MODEL_ARGS, flag_entries, other_program

OptionValue = bool | int | str | tuple[str, ...] | None
"""None is an option that is set to nothing; one that is not known is missing from `Options`."""

# a release, and what follows it: 2.6.0a0+ecf3bae.nv25.01 is before 2.6.0, 2.6.0+cu124 is not
_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?(.{0,100})")
_BEFORE_RELEASE = re.compile(r"[-._]?(?:a|alpha|b|beta|c|rc|dev)")

DATA = yaml.safe_load(files("ibpulse.workbench.models").joinpath("megatron_rules.yaml").read_text())
DATE = str(DATA["date"])
"""The date of the commits that the rules were read from."""
EFFECTS: Mapping[str, str] = DATA["effects"]
"""The consequences of a violation."""
FAILING = ("stops", "off")
"""The effects that make a check fail."""
BRIDGE, LM = "Megatron-Bridge", "Megatron-LM"
DEFAULTS: Mapping[str, OptionValue] = {
    name: value for group in DATA["options"].values() for name, value in group.items() if value != "?"
}
KINDS: Mapping[str, str] = {name: kind for kind, group in DATA["options"].items() for name in group}
"""The kind of each option: switch, count, text, list or version."""
# a key may be in several of these sections: the first with a value counts
BRIDGE_SECTIONS = ("comm_overlap", "model", "ddp", "optimizer", "checkpoint", "dist")
SECTIONS = (*BRIDGE_SECTIONS, "dataset", "ENV_VARS")
ELSEWHERE = ("yaml_cfg", "config_file")
"""Flags whose file sets other options."""
ADVICE = "give the run_config.yaml of a checkpoint of Megatron-Bridge, or a file with MODEL_ARGS of Megatron-LM"
_COUNT = whole(0, 10**9)
MAX_ITEMS = 100
MAX_FAULTS = 20
_NOTHING = ("", "~", "null", "none")


@dataclass(frozen=True, slots=True)
class GivenOption:
    """The value of an option and where it came from: `run_config.yaml:14`, or that it is a default."""

    value: OptionValue
    place: str


Options = Mapping[str, GivenOption]


@dataclass(frozen=True)
class Rule:
    """Where the condition `where` is true, `needs` must be true; `change` says how to comply."""

    id: str
    where: str
    needs: str
    change: str
    effect: str
    sources: tuple[str, ...]
    programs: frozenset[str]

    @cached_property
    def conditions(self) -> tuple[ast.expr, ast.expr]:
        """`where` and `needs`, parsed."""
        return ast.parse(self.where, mode="eval").body, ast.parse(self.needs, mode="eval").body

    @property
    def keys(self) -> tuple[str, ...]:
        """The options that the rule is about, in the order of its text."""
        names = [node for tree in self.conditions for node in _names(tree)]
        return tuple(dict.fromkeys(node.id for node in names))


@dataclass(frozen=True, slots=True)
class RuleResult:
    """`status` is `ok`, `violated` or `unknown`; `applies` is None if unknown.

    `given` are the options that decided, `missing` those that would decide.
    """

    rule: Rule
    status: str
    applies: bool | None
    given: tuple[tuple[str, GivenOption], ...]
    missing: tuple[str, ...]

    @property
    def fails(self) -> bool:
        """Whether the run stops at its start or goes without the overlap."""
        return self.status == "violated" and self.rule.effect in FAILING


def check_run(program: str, options: Options) -> tuple[RuleResult, ...]:
    """The result of every rule of the program that reads the options."""
    return tuple(check_rule(rule, options) for rule in RULES if program in rule.programs)


def check_rule(rule: Rule, options: Options) -> RuleResult:
    """A rule holds where it does not apply or what it needs is true; one that is not known to hold is unknown."""
    where, needs = rule.conditions
    applies, needed = holds(where, options), holds(needs, options)
    if applies is False or needed is True:
        status = "ok"
    else:
        status = "violated" if applies is True and needed is False else "unknown"
    given = tuple((key, options[key]) for key in rule.keys if key in options)
    missing = tuple(key for key in rule.keys if key not in options) if status == "unknown" else ()
    return RuleResult(rule, status, applies, given, missing)


def holds(condition: ast.expr, options: Options) -> bool | None:
    """Whether a condition is true; None if an option that is not known decides (Kleene's logic)."""
    match condition:
        case ast.BoolOp(op=op, values=parts):
            held = [holds(part, options) for part in parts]
            decisive = isinstance(op, ast.Or)
            return decisive if decisive in held else None if None in held else not decisive
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = holds(operand, options)
            return None if inner is None else not inner
        case ast.Name(id=name):
            return options[name].value is True if name in options else None
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if any(node.id not in options for node in _names(condition)):
                return None
            return bool(_COMPARISONS[type(op)](_value(left, options), _value(right, options)))
    raise ValueError(f"{ast.unparse(condition)} is no condition")


def _is_at_least(value: Any, least: int | str) -> bool:
    """A number or a version that is unset is not."""
    if isinstance(least, str):
        return isinstance(value, str) and version_key(value) >= version_key(least)
    return isinstance(value, int) and value >= least


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.Is: operator.eq,
    ast.NotEq: operator.ne,
    ast.IsNot: operator.ne,
    ast.In: lambda left, right: left in (right or ()),
    ast.NotIn: lambda left, right: left not in (right or ()),
    ast.GtE: _is_at_least,
    ast.Lt: lambda left, right: left is not None and not _is_at_least(left, right),
}


def _value(node: ast.expr, options: Options) -> Any:
    return options[node.id].value if isinstance(node, ast.Name) else ast.literal_eval(node)


def _names(tree: ast.expr) -> list[ast.Name]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return sorted(names, key=lambda node: node.col_offset)


def version_key(text: str) -> tuple[int, int, int, bool]:
    """A sort key of a version; one before its release, such as 2.6.0a0, is less than the release."""
    match = _VERSION.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:40]!r} is not a version; write it like 2.6.0")
    major, minor, patch, rest = match.groups()
    return int(major), int(minor or 0), int(patch or 0), not _BEFORE_RELEASE.match(rest)


def _read_rule(rule_id: str, row: Mapping[str, Any]) -> Rule:
    where, needs = row["rule"].split(" -> ")
    sources = [DATA["sources"][name] for name in row["from"]]
    return Rule(
        rule_id,
        where,
        needs,
        row["change"],
        row.get("effect", "stops"),
        tuple(source["url"] for source in sources),
        frozenset(program for source in sources for program in source["programs"]),
    )


RULES = tuple(_read_rule(rule_id, row) for rule_id, row in DATA["rules"].items())
"""Every rule, in the order of the file."""


Entries = Mapping[str, YamlEntry]
Sections = Mapping[str, Entries]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The program that reads a file, and the options by name."""

    path: Path
    program: str
    options: Options


def read_run_options(path: Path, settings: Sequence[str] = ()) -> RunOptions:
    """The options in a file, and those of `settings`, texts like `torch=2.6.0` that take precedence."""
    given = _read_settings(settings)
    file = YamlFile(path)
    root = file.compose("check the path and its permissions")
    top = _entries(file, root)
    sections = {name: _entries(file, entry.value) for name, entry in top.items() if name in SECTIONS}
    options: dict[str, GivenOption] = {}
    program = LM if MODEL_ARGS in top else BRIDGE
    if program == LM:
        _read_model_args(file, flag_entries(file, top[MODEL_ARGS].value), sections, options)
    elif any(
        BRIDGE_TARGET in text_of(each["_target_"].value)
        for each in (top, sections.get("model", {}))
        if "_target_" in each
    ):
        _read_run_config(file, top, sections, options)
    elif not file.faults:
        other = other_program(file, root) if root is not None else ""
        file.faults.append(f"{path}: is {f'of {other}' if other else 'no configuration of Megatron'}; {ADVICE}")
    if file.faults:
        raise ConfigError(file.faults[:MAX_FAULTS])
    return RunOptions(path, program, {**options, **given})


def _entries(file: YamlFile, node: yaml.Node | None) -> Entries:
    if node is None or not is_mapping(node):
        return {}
    return {entry.name: entry for entry in file.entries(node)}


def _read_run_config(file: YamlFile, top: Entries, sections: Sections, options: dict[str, GivenOption]) -> None:
    """The program writes every key, so the value of one that is missing is not known."""
    for section in BRIDGE_SECTIONS:
        for name, entry in sections.get(section, {}).items():
            _note(file, options, name, entry)
    if "data_parallel_size" in top:
        _note(file, options, "data_parallel_size", top["data_parallel_size"])
    if "overlap_param_gather" in sections.get("optimizer", {}):
        _note(file, options, "optimizer_overlap_param_gather", sections["optimizer"]["overlap_param_gather"])
    overlap = f":{top['comm_overlap'].line}" if sections.get("comm_overlap") else ""
    options["comm_overlap"] = GivenOption(bool(overlap), f"{file.path}{overlap}")
    target = sections.get("dataset", {}).get("_target_")
    # a data set that is not of energon cannot pack by it; whether one of energon does is not known
    if target and "energon" not in next(_scalars(target.value), "").lower():
        options["native_energon_packing"] = GivenOption(False, f"{file.path}:{target.line}")


def _read_model_args(file: YamlFile, flags: Entries, sections: Sections, options: dict[str, GivenOption]) -> None:
    """The arguments are complete: one that is missing has its default, unless the flag of a file may set it."""
    if not flags.keys() & {*KINDS, *DATA["spellings"]}:
        file.faults.append(f"{file.path}: MODEL_ARGS has no flag that a rule reads; write them like --bf16: true")
    for name, entry in flags.items():
        _note(file, options, name, entry)
    if "CUDA_DEVICE_MAX_CONNECTIONS" in sections.get("ENV_VARS", {}):
        _note(file, options, "CUDA_DEVICE_MAX_CONNECTIONS", sections["ENV_VARS"]["CUDA_DEVICE_MAX_CONNECTIONS"])
    unknown = {DATA["hidden_by"].get(name) for name in flags} | {_option_of(name)[0] for name in flags}
    if flags.keys().isdisjoint(ELSEWHERE):
        for name in DEFAULTS.keys() - unknown:
            options[name] = GivenOption(DEFAULTS[name], f"default of {DATE}")
    stages = options.get("virtual_pipeline_model_parallel_size")
    if stages and stages.value == 1:
        # one virtual stage is none for Megatron-LM
        options["virtual_pipeline_model_parallel_size"] = GivenOption(None, stages.place)
    overlap = options.get("overlap_p2p_comm")
    if overlap:
        # Megatron-LM batches transfers between stages where they do not overlap
        options.setdefault("batch_p2p_comm", GivenOption(not overlap.value, overlap.place))


def _option_of(name: str) -> tuple[str, bool]:
    """The option of a flag or key, and whether it reverses it."""
    option = str(DATA["spellings"].get(name, name))
    return option.removeprefix("!"), option.startswith("!")


def _note(file: YamlFile, options: dict[str, GivenOption], key: str, entry: YamlEntry) -> None:
    """Note the value of a key if a rule reads it and no earlier key gave one; a shell variable has no known value."""
    name, reversed_ = _option_of(key)
    known = options.get(name)
    if name not in KINDS or (known and known.value is not None):
        return
    try:
        value = _parse_node(KINDS[name], entry.value)
    except ValueError as error:
        if "$" not in next(_scalars(entry.value), ""):
            file.refuse(entry.line, f"{key}: {error!s}")
        return
    if isinstance(value, str) and "$" in value:
        return
    options[name] = GivenOption(not value if reversed_ and value is not None else value, f"{file.path}:{entry.line}")


def _parse_node(kind: str, node: yaml.Node) -> OptionValue:
    if is_sequence(node) and kind == "list":
        if len(node.value) > MAX_ITEMS:
            raise ValueError(f"has {len(node.value)} items, more than {MAX_ITEMS}; give fewer")
        return tuple(text.rpartition(".")[2] for item in node.value for text in _scalars(item))
    texts = list(_scalars(node))
    if len(texts) != 1:
        raise ValueError("is not a single value; give one")
    return parse_option(kind, texts[0])


def _scalars(node: yaml.Node) -> Iterator[str]:
    """The text of a scalar, or of the argument of an enumeration: `{_target_: Scope, _args_: [attn]}`."""
    if is_scalar(node):
        yield str(node.value)
    elif is_mapping(node):
        for key, value in node.value:
            if is_scalar(key) and key.value == "_args_" and is_sequence(value):
                yield from (str(item.value) for item in value.value[:2] if is_scalar(item))


def parse_option(kind: str, text: str) -> OptionValue:
    """The value that a text means; None if it says that the option is unset.

    Raises:
        ValueError: it is not a value of this kind.
    """
    if text.lower() in _NOTHING:
        return None
    if kind == "switch":
        return YAML_TRUTH.parse(text)
    if kind == "count":
        return _COUNT.parse(text)
    if kind == "list":
        return tuple(part.rpartition(".")[2] for part in text.strip("[]").replace(",", " ").split())
    if kind == "version":
        version_key(text)
    return text


def _read_settings(settings: Sequence[str]) -> dict[str, GivenOption]:
    found: dict[str, GivenOption] = {}
    faults: list[str] = []
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not text:
            faults.append(f"flag --set: {setting!r} is not KEY=VALUE; write it like torch=2.6.0")
        elif name not in KINDS:
            way_out = advice(name, KINDS, "docs/overlap-rules.md lists all")
            faults.append(f"flag --set: {name}: no rule reads such an option; {way_out}")
        else:
            try:
                found[name] = GivenOption(parse_option(KINDS[name], text), "--set")
            except ValueError as error:
                faults.append(f"flag --set: {name}: {error!s}")
    if faults:
        raise ConfigError(faults)
    return found


def render_json(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The check as one JSON object; `applies` is null where it is unknown."""
    members = {
        "file": str(run.path),
        "program": run.program,
        "snapshot_date": DATE,
        "failed": failed,
        "rules": [
            {
                "id": result.rule.id,
                **members_of(result, "status", "applies", "fails"),
                **members_of(result.rule, "effect", "where", "needs", "change", "sources"),
                "given": [
                    {"option": key, "value": option.value, "place": option.place} for key, option in result.given
                ],
                "missing": result.missing,
            }
            for result in results
        ],
    }
    return document.render_json("ibpulse_model_check_version", members)


def render_text(run: RunOptions, results: Sequence[RuleResult], failed: bool) -> str:
    """The verdict first, then violated and unknown rules."""
    violated = [each for each in results if each.status == "violated"]
    unknown = [each for each in results if each.status == "unknown"]
    idle = sum(each.applies is False for each in results)
    lines = [
        f"{'FAILED' if failed else 'passed'}: {_verdict(violated, unknown)}",
        f"{run.path}: checked by the rules of {DATE}; other versions of Megatron may have other rules",
        f"{len(results)} rules of {run.program}: {len(violated)} violated, {len(unknown)} unknown, "
        f"{len(results) - len(violated) - len(unknown)} ok ({idle} do not apply)",
    ]
    sections = [Section(lines=lines)]
    if violated:
        sections.append(Section("violated", lines=[line for each in violated for line in _violated(run, each)]))
    if unknown:
        sections.append(Section("unknown, because options are missing", lines=list(_unknown(unknown))))
    return document.render_text(sections)


def _verdict(violated: Sequence[RuleResult], unknown: Sequence[RuleResult]) -> str:
    failing = sum(each.fails for each in violated)
    if failing:
        return f"{count_text(failing, 'rule')} violated, with which the run stops or an overlap is switched off"
    if unknown:
        return f"no rule is known to be violated that matters, but {len(unknown)} unknown"
    return "no rule is violated that stops the run or switches an overlap off"


def _violated(run: RunOptions, result: RuleResult) -> Iterator[str]:
    rule = result.rule
    yield f"{rule.id}: {rule.where}"
    yield f"  needs: {rule.needs}"
    places = [(key, one, one.place.replace(f"{run.path}:", "line ", 1)) for key, one in result.given]
    yield "  found: " + "; ".join(f"{key} {_value_text(one.value)} ({place})" for key, one, place in places)
    yield f"  change: {rule.change}"
    yield f"  effect: {EFFECTS[rule.effect]}"
    yield from (f"  source: {source}" for source in rule.sources)


def _unknown(results: Sequence[RuleResult]) -> Iterator[str]:
    """One line for all rules that the same options would decide."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for each in results:
        groups.setdefault(each.missing, []).append(each.rule.id)
    yield from (f"{', '.join(missing)}: {', '.join(ids)}" for missing, ids in groups.items())
    yield "give them like --set torch=2.6.0"


def _value_text(value: OptionValue) -> str:
    """A value as people write it: `true`, `unset`, `4`, `moe, attn`."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return (", ".join(value) or "empty") if isinstance(value, tuple) else str(value)
