"""Reads options from a `run_config.yaml` of Megatron-Bridge, which is in every checkpoint directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from ibpulse.overlap.megatron_options import OPTIONS, OVERLAP_KEYS, FoundOptions, Option
from ibpulse.overlap.rule_conditions import GivenOption, OptionValue, value_text
from ibpulse.text import escape_controls
from ibpulse.yaml_file import YamlEntry, YamlFile, is_mapping, is_scalar, is_sequence

ADVICE = "give the run_config.yaml of a checkpoint, or a file with the flags of Megatron-LM"
SECTIONS = ("comm_overlap", "model", "ddp", "optimizer", "checkpoint", "dist", "dataset")
MOST_ITEMS = 100
LIKE = 0.9
# comparing a key with all known ones takes a millisecond; a section has 200 keys
MOST_COMPARED = 400
MOST_REMARKS = 20
_ENUM_ARGUMENTS = "_args_"

Entries = Mapping[str, Mapping[str, YamlEntry]]


def read_run_config_options(path: Path) -> FoundOptions:
    """The options of the file; those that it lacks are unknown."""
    file = YamlFile(path)
    root = file.compose("check the path and its permissions")
    found = FoundOptions(faults=file.faults)
    if file.faults:
        return found
    if root is None or not is_mapping(root):
        file.faults.append(f"{path}: is not a mapping of sections; {ADVICE}")
        return found
    top = {entry.name: entry for entry in file.entries(root, lambda name: f"{escape_controls(name)}:")}
    if "model" not in top or not is_mapping(top["model"].value):
        file.faults.append(f"{path}: has no section model; {ADVICE}")
        return found
    entries: dict[str, Mapping[str, YamlEntry]] = {"": top}
    for section in SECTIONS:
        node = top[section].value if section in top else None
        if node is not None and is_mapping(node):
            entries[section] = {entry.name: entry for entry in file.entries(node, escape_controls)}
    for option in OPTIONS.values():
        _read_option(file, entries, option, found)
    line = f":{top['comm_overlap'].line}" if "comm_overlap" in entries else ""
    found.options["comm_overlap"] = GivenOption("comm_overlap" in entries, f"{path}{line}")
    _read_packing(file, entries, found)
    found.remarks += islice(_unknown_keys(file, entries), MOST_REMARKS)
    return found


def _read_option(file: YamlFile, entries: Entries, option: Option, found: FoundOptions) -> None:
    """The value of the first key that is there and is set; an option that is there but unset everywhere is unset."""
    values: list[GivenOption] = []
    for key in option.keys:
        section, _, name = key.lstrip("!").rpartition(".")
        entry = entries.get(section, {}).get(name)
        if entry is None:
            continue
        place = f"{file.path}:{entry.line}"
        try:
            value = _value(option, entry)
        except ValueError as error:
            file.refuse(entry.line, f"{name}: {escape_controls(str(error))}; correct it")
            continue
        values.append(GivenOption(not value if key.startswith("!") and value is not None else value, place))
    known = [one for one in values if one.value is not None]
    if values:
        found.options[option.name] = (known or values)[0]
    if len({one.value for one in known}) > 1:
        texts = " and ".join(f"{value_text(one.value)} ({one.place})" for one in known)
        found.remarks.append(f"{option.name} is {escape_controls(texts)}; the first counts")


def _value(option: Option, entry: YamlEntry) -> OptionValue:
    """The value of an entry.

    Raises:
        ValueError: it is not of the kind of the option.
    """
    node = entry.value
    if is_sequence(node) and option.kind == "list":
        if len(node.value) > MOST_ITEMS:
            raise ValueError(f"has {len(node.value)} items, more than {MOST_ITEMS}")
        return tuple(text.rpartition(".")[2] for item in node.value for text in _scalars(item))
    texts = list(_scalars(node))
    if len(texts) != 1:
        raise ValueError("is not a single value")
    return option.parse(texts[0])


def _scalars(node: object) -> Iterator[str]:
    """The text of a scalar, or of the argument of an enumeration: `{_target_: Scope, _args_: [attn]}`."""
    if is_scalar(node):  # type: ignore[arg-type]
        yield str(node.value)
    elif is_mapping(node):  # type: ignore[arg-type]
        for key, value in node.value:
            if is_scalar(key) and key.value == _ENUM_ARGUMENTS and is_sequence(value):
                yield from (str(item.value) for item in value.value[:2] if is_scalar(item))


def _read_packing(file: YamlFile, entries: Entries, found: FoundOptions) -> None:
    """A data set that is not of energon cannot pack by it; whether one of energon does is not known."""
    target = entries.get("dataset", {}).get("_target_")
    if target and is_scalar(target.value) and "energon" not in str(target.value.value).lower():
        found.options["native_energon_packing"] = GivenOption(False, f"{file.path}:{target.line}")


def _unknown_keys(file: YamlFile, entries: Entries) -> Iterator[str]:
    """Remarks on keys of comm_overlap that the snapshot does not have, and on keys that look like misspelt ones."""
    known = {key.lstrip("!") for option in OPTIONS.values() for key in option.keys}
    for section in ("comm_overlap", "model", "ddp"):
        names = [key.rpartition(".")[2] for key in known if key.startswith(f"{section}.")]
        for name, entry in islice(entries.get(section, {}).items(), MOST_COMPARED):
            if name in names or name in OVERLAP_KEYS:
                continue
            nearest = get_close_matches(name[:100], names, n=1, cutoff=LIKE)
            if nearest or section == "comm_overlap":
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                yield f"{file.path}:{entry.line}: {section}.{escape_controls(name[:100])}: no rule knows this key{hint}"
