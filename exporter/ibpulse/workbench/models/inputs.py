"""Reads the inputs of a prediction from published jobs, files and flags, and tables of expert loads.

Of published jobs and clusters, the file, and flags, the last one counts. Files may come from anywhere: size and depth
are limited by `YamlFile`, numbers by their parsers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import show
from ibpulse.base.values import GivenText, advice
from ibpulse.base.yaml import YamlFile, is_empty, is_mapping, texts_of
from ibpulse.workbench.models.catalogue import (
    CLUSTERS,
    DEFAULT_NODE,
    JOBS,
    MODELS,
    NODES,
    Architecture,
    NodeKind,
    Preset,
)
from ibpulse.workbench.models.collectives import NETWORK_FIGURES, Bisection, Hardware, network_bisection
from ibpulse.workbench.models.experts import LoadRow
from ibpulse.workbench.models.hub import read_hub_config
from ibpulse.workbench.models.job import UNKNOWN, TrainingJob
from ibpulse.workbench.models.keys import KEYS
from ibpulse.workbench.models.megatron import MODEL_ARGS, other_program, read_model_args, read_run_config
from ibpulse.workbench.models.step import UTILISATIONS, StepInputs, Utilisation

if TYPE_CHECKING:
    import yaml

ADVICE = (
    "give the run_config.yaml of a checkpoint of Megatron-Bridge, a file with MODEL_ARGS of Megatron-LM, or a file of "
    "ibpulse with the name of a model"
)
JOB_EXAMPLE = "{model: mixtral-8x7b, nodes: 2, step: 1444ms}"
SHAPE_FIELDS: Mapping[str, str] = {
    "parameters": "parameters", "layers": "layers", "hidden": "hidden", "kv-width": "kv_width",
    "attention-width": "attention_width", "vocabulary": "vocabulary", "tied": "tied",
    "expert-parameters": "expert_parameters", "moe-layers": "moe_layers", "experts": "experts",
    "experts-per-token": "chosen_experts",
}  # fmt: skip
"""Inputs that are fields of an `Architecture`."""
JOB_FIELDS: Mapping[str, str] = {
    "tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "etp": "etp", "virtual-stages": "chunks", "sharding": "sharding",
    "shard-ranks": "shard", "micro-batch": "micro_batch", "sequence": "sequence", "algorithm": "algorithm",
    "dispatch": "dispatch", "dispatch-bytes": "dispatch_bytes", "combine-bytes": "combine_bytes",
    "recompute": "recompute", "reduction": "reduction", "gradient-bytes": "gradient_bytes",
}  # fmt: skip
"""Inputs that are fields of a `TrainingJob` as they are."""
STEP_INPUTS = ("step", *UTILISATIONS)
"""Each of them determines the time of a step."""
MAX_TABLE_BYTES = 16_000_000
MAX_CELLS = 2_000_000
MAX_LOAD = 1e18
LAYER, WINDOWS = "layer", ("window", "step", "time", "iteration")
"""Columns that name a row instead of holding loads."""
TABLE_EXAMPLE = "a row for each layer and a column for each expert, such as 90,132,40,61"


def read_load_table(path: Path) -> list[LoadRow]:
    """The rows of a table, all with the same number of experts.

    Raises:
        ConfigError: the file cannot be read, or is not such a table; names the first fault.
    """
    rows = _csv_rows(path)
    if not rows:
        _refuse(path, f"has no loads; write {TABLE_EXAMPLE}")
    for row in rows:
        if len(row.loads) != len(rows[0].loads):
            _refuse(row.place, f"has {len(row.loads)} loads, but the first row has {len(rows[0].loads)}")
    return rows


def _refuse(place: object, problem: str) -> NoReturn:
    raise ConfigError([f"{place}: {problem}"]) from None


def _csv_rows(path: Path) -> list[LoadRow]:
    file = ForeignFile(path, ConfigError, access="check the path and its permissions")
    text = file.read_text(MAX_TABLE_BYTES, "give fewer rows", MAX_CELLS)
    try:
        lines = [(at, line) for at, line in enumerate(csv.reader(io.StringIO(text)), 1) if any(map(str.strip, line))]
    except csv.Error as error:
        _refuse(path, f"is not CSV: {error}; write {TABLE_EXAMPLE}")
    names: Sequence[str] = ()
    if lines and not _is_number(lines[0][1][-1]):
        names = [name.strip().lower() for name in lines.pop(0)[1]]
    rows = []
    for layer, (at, line) in enumerate(lines):
        if names and len(line) != len(names):
            _refuse(f"{path}:{at}", f"has {len(line)} columns, but the header has {len(names)}")
        rows.append(_row(f"{path}:{at}", str(layer), names or [""] * len(line), line))
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _row(place: str, layer: str, names: Sequence[str], values: Sequence[str]) -> LoadRow:
    """A row whose columns have names: those of a layer or a time name it, the others are loads."""
    loads = []
    for name, value in zip(names, values, strict=True):
        if name == LAYER:
            layer = value.strip()
        elif name not in WINDOWS:
            load = float(value) if _is_number(value) else math.nan
            if not 0 <= load <= MAX_LOAD:
                _refuse(place, f"{show(value)} is not a load; give a number from 0 to {MAX_LOAD:g}")
            loads.append(load)
    if len(loads) < 2:
        _refuse(place, f"has {len(loads)} loads; give those of two or more experts")
    if not any(loads):
        _refuse(place, "has only loads of 0; leave the row out")
    return LoadRow(layer, tuple(loads), place)


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a file: a model, if it describes the layers of one, and the texts of inputs by name.

    `lack` are the faults because of which the model of a file is not known.
    """

    texts: Mapping[str, GivenText] = field(default_factory=dict)
    model: Architecture | None = None
    lack: tuple[str, ...] = ()


def read_job_file(path: Path) -> JobFile:
    """The inputs in a file of any of these kinds.

    Raises:
        ConfigError: it cannot be read, is not YAML, or has keys or values that cannot be used; lists all faults.
    """
    file = YamlFile(path)
    root = file.compose("check the path and its permissions")
    if root is not None and not is_mapping(root):
        file.faults.append(f"{path}: is not a mapping; write it like {JOB_EXAMPLE}")
    if file.faults or not is_mapping(root):
        raise ConfigError(file.faults or [f"{path}: is empty; write it like {JOB_EXAMPLE}"])
    entries = {entry.name: entry for entry in file.entries(root)}
    if MODEL_ARGS in entries:
        result = JobFile(*read_model_args(file, root))
    elif "model" in entries and is_mapping(entries["model"].value):
        if other := other_program(file, root):
            raise ConfigError([f"{path}: is a configuration of {other}, which is not read; {ADVICE}"])
        result = JobFile(*read_run_config(file, root))
    elif entries.keys() & {"model_type", "num_hidden_layers", "architectures"}:
        result = JobFile({}, read_hub_config(file, root))
    else:
        given = [entry for entry in entries.values() if not is_empty(entry.value)]
        result = JobFile({entry.name: _given(file, *entry) for entry in given})
    if file.faults:
        raise ConfigError(file.faults)
    return result


def _given(file: YamlFile, name: str, line: int, node: yaml.Node) -> GivenText:
    texts = texts_of(node)
    if name not in KEYS:
        file.refuse(line, f"{name}: no such key; {advice(name, KEYS, 'docs/models.md lists all keys')}")
    elif texts is None:
        file.refuse(line, f"{name}: not a single value; write it like {name}: 8")
    text = texts if isinstance(texts, str) else ",".join(texts or ())
    return GivenText(text, f"{file.path}:{line}: {name}")


@dataclass(frozen=True, slots=True)
class JobInputs:
    """Checked inputs of a prediction; `given` are the texts of the inputs that were set."""

    job: TrainingJob
    hardware: Hardware
    step: StepInputs
    node: NodeKind
    presets: tuple[Preset, ...]
    network: Bisection | None
    expert_loads: tuple[float, ...]
    measured_bytes: float | None
    given: Mapping[str, GivenText]


def read_inputs(
    flags: Mapping[str, GivenText], file: JobFile, observed: Mapping[str, GivenText] | None = None
) -> JobInputs:
    """The job, the hardware and the step; `observed` are inputs of a recording, for what nothing else says.

    Raises:
        ConfigError: an input is missing or cannot be used; lists all faults of single inputs.
    """
    presets = _presets({**file.texts, **flags})
    layers = (observed or {}, _preset_texts(presets, file.model is not None), file.texts, flags)
    faults = []
    for layer in layers:
        twice = [name for name in STEP_INPUTS if name in layer]
        if len(twice) > 1:
            faults.append(
                f"{layer[twice[1]].place}: the time of the step already follows from {twice[0]}; give only one of "
                f"{', '.join(STEP_INPUTS)}"
            )
    given = _overridden(layers)
    values: dict[str, Any] = {}
    for name, one in given.items():
        try:
            values[name] = KEYS[name].kind.parse(one.text)
        except ValueError as error:
            faults.append(f"{one.place}: {error}")
    if "nodes" not in given:
        faults.append("nodes: is missing; give --nodes, or nodes in the file")
    if faults:
        raise ConfigError(faults)
    model = _model(values, given, file)
    try:
        return _assemble(model, values, given, tuple(presets.values()))
    except ValueError as error:
        raise ConfigError([_placed(str(error), given)]) from None


def _overridden(layers: Iterable[Mapping[str, GivenText]]) -> dict[str, GivenText]:
    """All inputs, later ones instead of earlier ones; one that determines the step replaces all others that do."""
    given: dict[str, GivenText] = {}
    for layer in layers:
        if any(name in layer for name in STEP_INPUTS):
            given = {name: one for name, one in given.items() if name not in STEP_INPUTS}
        given.update(layer)
    return given


def _placed(sentence: str, given: Mapping[str, GivenText]) -> str:
    """A fault that begins with the name of an input, with the place of that input instead."""
    name, colon, rest = sentence.partition(": ")
    name = {"chunks": "virtual-stages", "shard": "shard-ranks"}.get(name, name)
    if colon and name in given:
        return f"{given[name].place}: {rest}"
    return f"job: {sentence}"


def _presets(given: Mapping[str, GivenText]) -> dict[str, Preset]:
    """The published cluster and the published job that were named, by their place, the job last."""
    tables = (("cluster", CLUSTERS), ("job", JOBS))
    named = [(table.get(given[name].text), f"{name} {given[name].text}") for name, table in tables if name in given]
    return {place: preset for preset, place in named if preset is not None}


def _preset_texts(presets: Mapping[str, Preset], model_known: bool) -> dict[str, GivenText]:
    """The texts of presets; a file that describes a model replaces that of a published job."""
    return {
        name: GivenText(text, f"{place}: {name}")
        for place, preset in presets.items()
        for name, text in preset.texts.items()
        if name != "model" or not model_known
    }


def _assemble(
    model: Architecture, values: Mapping[str, Any], given: Mapping[str, GivenText], presets: tuple[Preset, ...]
) -> JobInputs:
    node = NODES[values.get("node", DEFAULT_NODE)]
    job_values = {field: values[name] for name, field in JOB_FIELDS.items() if name in values}
    gpus = values.get("gpus-per-node", node.gpus)
    job = TrainingJob(model, values["nodes"], gpus, **job_values)
    job = TrainingJob(model, values["nodes"], gpus, **job_values, micro_batches=_micro_batches(job, values))
    hardware = Hardware(
        rails=values.get("rails", node.rails),
        rail_bytes_per_second=values.get("rail-rate", node.rail_bytes_per_second),
        nvlink_bytes_per_second=values.get("nvlink-rate", node.nvlink_bytes_per_second),
    )
    loads: tuple[float, ...] = values.get("expert-loads", ())
    if loads and (not model.experts or len(loads) != model.experts):
        raise ValueError(f"expert-loads: has {len(loads)} numbers, but {model.name} has {model.experts} experts")
    return JobInputs(
        job=job,
        hardware=hardware,
        step=StepInputs(
            step_seconds=values.get("step"),
            utilisation=_utilisation(values, node),
            prefetch=values.get("prefetch"),
            units=values.get("units", 0),
        ),
        node=node,
        presets=presets,
        network=_network(job, hardware, values),
        expert_loads=loads,
        measured_bytes=values.get("measured"),
        given=given,
    )


def _utilisation(values: Mapping[str, Any], node: NodeKind) -> Utilisation | None:
    for kind in UTILISATIONS:
        if kind in values:
            return Utilisation(kind, values[kind], node.operations_per_second, values.get("attention", UNKNOWN))
    return None


def _micro_batches(job: TrainingJob, values: Mapping[str, Any]) -> int:
    batch = values.get("global-batch")
    if batch is None:
        return 1
    each = job.micro_batch * job.dp
    if batch % each:
        raise ValueError(f"global-batch: {batch} is not a multiple of micro-batch x dp = {job.micro_batch} x {job.dp}")
    return int(batch // each)


def _network(job: TrainingJob, hardware: Hardware, values: Mapping[str, Any]) -> Bisection | None:
    named = dict.fromkeys(name for names in NETWORK_FIGURES.values() for name in names)
    figures = {name: values[name] for name in named if name in values}
    if "network" not in values:
        for name in figures:
            raise ValueError(f"{name}: needs network, the kind of network that it describes")
        return None
    link = hardware.rail_bytes_per_second
    return network_bisection(values["network"], job.nodes, hardware.rails, link, figures)


def _model(values: Mapping[str, Any], given: Mapping[str, GivenText], file: JobFile) -> Architecture:
    """The published model, the one of a configuration file, or the one whose figures are given.

    Raises:
        ConfigError: none of them, two of them, or incomplete figures.
    """
    shape, found = [name for name in SHAPE_FIELDS if name in values], file.model
    if ("model" in values) + (found is not None) + bool(shape) > 1:
        name = "model" if "model" in values else shape[0]
        raise ConfigError([f"{given[name].place}: the model is described twice; give a name, a file or figures"])
    if found is not None:
        return found
    if "model" in values:
        return MODELS[values["model"]]
    if file.lack and not shape:
        raise ConfigError(file.lack)
    missing = [name for name in ("parameters", "layers", "hidden") if name not in values]
    routed = ("experts", "experts-per-token", "moe-layers", "expert-parameters")
    if any(name in values for name in routed):
        missing += [name for name in routed if name not in values]
    if missing:
        ways = "give --model with the name of a published one, or its config.json" if not shape else "give them too"
        raise ConfigError([f"model: {', '.join(missing)} missing; {ways}"])
    return _described(values, given)


def _described(values: Mapping[str, Any], given: Mapping[str, GivenText]) -> Architecture:
    for name, most in (
        ("expert-parameters", "parameters"), ("moe-layers", "layers"), ("experts-per-token", "experts")
    ):  # fmt: skip
        if name in values and values[name] > values[most]:
            raise ConfigError([f"{given[name].place}: {given[name].text} is more than {most}, {given[most].text}"])
    embeddings = values.get("vocabulary", 0) * values["hidden"]
    dense = values["parameters"] - values.get("expert-parameters", 0.0)
    if embeddings >= dense:
        place = given["vocabulary"].place
        raise ConfigError([f"{place}: its embeddings have {embeddings:.4g} parameters, of {dense:.4g} dense ones"])
    figures = {field: values[name] for name, field in SHAPE_FIELDS.items() if name in values}
    return Architecture(name="model", source="given", **figures)
