"""Reads the options of a run: `run_config.yaml` of Megatron-Bridge, or `MODEL_ARGS` in a job file of Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.errors import ConfigError
from ibpulse.base.text import escape_controls
from ibpulse.base.values import YAML_TRUTH, advice, whole
from ibpulse.base.yaml import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence, text_of
from ibpulse.workbench.models.megatron_configs import BRIDGE_TARGET, other_program
from ibpulse.workbench.models.megatron_flags import MODEL_ARGS, flag_entries
from ibpulse.workbench.models.megatron_rules import DATA, DATE, GivenOption, Options, OptionValue, version_key

if TYPE_CHECKING:
    import yaml

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

Entries = Mapping[str, YamlEntry]
Sections = Mapping[str, Entries]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The program that reads a file, and the options by name."""

    path: Path
    program: str
    options: Options


def read_run_options(path: Path, settings: Sequence[str] = ()) -> RunOptions:
    """The options in a file, and those of `settings`, texts like `torch=2.6.0` that take precedence.

    Raises:
        ConfigError: the file or a setting cannot be used; lists the faults.
    """
    given = _read_settings(settings)
    file = YamlFile(path)
    root = file.compose("check the path and its permissions")
    top = _entries(file, root)
    sections = {name: _entries(file, entry.value) for name, entry in top.items() if name in SECTIONS}
    options: dict[str, GivenOption] = {}
    program = LM if MODEL_ARGS in top else BRIDGE
    if program == LM:
        _read_model_args(file, flag_entries(file, top[MODEL_ARGS].value), sections, options)
    elif any(_is_bridge(entries) for entries in (top, sections.get("model", {}))):
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


def _is_bridge(entries: Entries) -> bool:
    """Whether a mapping names a class of Megatron-Bridge; those of other programs are configured by other keys."""
    return "_target_" in entries and BRIDGE_TARGET in text_of(entries["_target_"].value)


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
            file.refuse(entry.line, f"{key}: {escape_controls(str(error))}")
        return
    if isinstance(value, str) and "$" in value:
        return
    options[name] = GivenOption(not value if reversed_ and value is not None else value, f"{file.path}:{entry.line}")


def _parse_node(kind: str, node: yaml.Node) -> OptionValue:
    """The value of an entry.

    Raises:
        ValueError: it is not of this kind.
    """
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
        shown = escape_controls(name)
        if not equals or not text:
            faults.append(f"flag --set: {escape_controls(setting)!r} is not KEY=VALUE; write it like torch=2.6.0")
        elif name not in KINDS:
            way_out = advice(name, KINDS, "docs/overlap-rules.md lists all")
            faults.append(f"flag --set: {shown}: no rule reads such an option; {way_out}")
        else:
            try:
                found[name] = GivenOption(parse_option(KINDS[name], text), "--set")
            except ValueError as error:
                faults.append(f"flag --set: {shown}: {escape_controls(str(error))}")
    if faults:
        raise ConfigError(faults)
    return found
