"""Reads the inputs of a prediction, one row of a table each, and tables of expert loads.

Of published jobs and clusters, the file, and flags, the last one counts. Files may come from anywhere: size and depth
are limited by `YamlFile`, numbers by their parsers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ibpulse.base.errors import ConfigError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import show
from ibpulse.base.units import SECOND_NS, parse_duration, parse_rate
from ibpulse.base.values import YAML_TRUTH, GivenText, Kind, above_zero, advice, choice, either, number, one, whole
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
from ibpulse.workbench.models.job import DISPATCHERS, NCCL_ALGORITHMS, SHARDINGS, UNKNOWN, TrainingJob
from ibpulse.workbench.models.megatron import MODEL_ARGS, other_program, read_model_args, read_run_config
from ibpulse.workbench.models.prediction import UTILISATIONS, StepInputs, Utilisation

if TYPE_CHECKING:
    import yaml

MAX_COUNT = 10_000_000
MAX_NUMBERS = 100
_NUMBER = number(0, None, "N", "120")


def _numbers(text: str) -> tuple[float, ...]:
    parts = text.replace(" ", "").split(",")
    if len(parts) > MAX_NUMBERS:
        raise ValueError(f"has {len(parts)} numbers; give at most {MAX_NUMBERS}")
    return tuple(map(_NUMBER.parse, parts))


COUNT = whole(1, MAX_COUNT, "N")
AMOUNT = number(0, 1e30, "N", "7.6e9", some=True)
SHARE = number(0, 1, "RATIO", "0.4", some=True)
ELEMENT_BYTES = number(0.5, 8, "N", "1.03")
SECONDS = one("DURATION", above_zero(lambda text: parse_duration(text) / SECOND_NS))
RATE = one("RATE", above_zero(lambda text: float(parse_rate(text))))
NUMBERS = one("N,N,...", _numbers)


def _name(*names: str) -> Kind[Any]:
    return choice(*names, metavar="NAME")


@dataclass(frozen=True, slots=True)
class InputKey:
    """An input; `flag` says whether it is an argument of the command too, or only a key of the file."""

    name: str
    kind: Kind[Any]
    sentence: str
    default: str = ""
    flag: bool = False


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


def _choice(name: str, what: str, *known: str, flag: bool = True) -> InputKey:
    """An input whose value is one of the known ones, or `unknown` by default."""
    names = (*known, UNKNOWN)
    return InputKey(name, _name(*names), f"{what}: {either(names)}", UNKNOWN, flag)


KEYS: Mapping[str, InputKey] = {
    key.name: key
    for key in (
        InputKey("model", _name(*MODELS), f"Published model: {_names(MODELS)}.", flag=True),
        InputKey("job", _name(*JOBS), f"Published job: {_names(JOBS)}.", flag=True),
        InputKey("cluster", _name(*CLUSTERS), f"Published cluster: {_names(CLUSTERS)}"),
        InputKey("node", _name(*NODES), f"Kind of node: {_names(NODES)}", DEFAULT_NODE, flag=True),
        InputKey("nodes", COUNT, "Number of nodes.", flag=True),
        InputKey("gpus-per-node", whole(1, 1024, "N"), "GPUs of a node", "of the kind of node"),
        InputKey("rails", whole(1, 1024, "N"), "Rails in use per node", "all", flag=True),
        InputKey("rail-rate", RATE, "Usable rate of a rail, one direction", "0.94 x line rate", flag=True),
        InputKey("nvlink-rate", RATE, "Usable rate of NVLink per GPU, one direction", "of the kind of node"),
        InputKey("tp", COUNT, "Tensor-parallel degree", "1", flag=True),
        InputKey("cp", COUNT, "Context-parallel degree", "1"),
        InputKey("pp", whole(1, 10_000, "N"), "Pipeline-parallel degree", "1", flag=True),
        InputKey("ep", COUNT, "Expert-parallel degree", "1", flag=True),
        InputKey("etp", COUNT, "Tensor-parallel degree of experts", "1"),
        InputKey("virtual-stages", whole(1, 10_000, "N"), "Model chunks per pipeline stage", "1"),
        InputKey("sharding", _name(*SHARDINGS), f"Sharding: {_names(SHARDINGS)}", "fsdp", flag=True),
        InputKey("shard-ranks", COUNT, "Ranks that share the parameters under hsdp"),
        InputKey("micro-batch", COUNT, "Sequences of a micro-batch", "1"),
        InputKey("global-batch", COUNT, "Sequences of a step", "one micro-batch per rank", flag=True),
        InputKey("sequence", COUNT, "Tokens of a sequence", "4096", flag=True),
        _choice("algorithm", "Algorithm", *NCCL_ALGORITHMS),
        _choice("dispatch", "Dispatch of tokens", *DISPATCHERS),
        _choice("recompute", "Recomputed activations", "none", "full"),
        _choice(
            "reduction", "Gradients are reduced after each micro-batch or once per step", "each", "once", flag=False
        ),
        InputKey(
            "dispatch-bytes",
            ELEMENT_BYTES,
            "Bytes of an element sent to experts: 2 for BF16, 1.03 for FP8 with its scales",
            "1.03 to 2",
            flag=True,
        ),
        InputKey("combine-bytes", ELEMENT_BYTES, "Bytes of an element sent back from experts", "2"),
        InputKey("gradient-bytes", whole(1, 8, "N"), "Bytes of a gradient on the wire", "2, or 2 to 4"),
        InputKey("step", SECONDS, "Measured time of a step, such as 315ms.", flag=True),
        InputKey("mfu", SHARE, "Model FLOPs utilisation of a whole step, which gives its time.", flag=True),
        InputKey("hfu", SHARE, "The same if recomputed operations are counted.", flag=True),
        InputKey("peak-share", SHARE, "Share of peak FLOP/s while computing, without communication.", flag=True),
        _choice("attention", "Attention scores that these count", "none", "causal", "full"),
        InputKey("prefetch", whole(1, 64, "N"), "Units that FSDP gathers ahead of the compute", "1 to 3"),
        InputKey("units", whole(1, 1000, "N"), "Units that FSDP gathers one by one", "the layers"),
        InputKey("network", _name(*NETWORK_FIGURES), f"Kind of network: {_names(NETWORK_FIGURES)}"),
        InputKey("oversubscription", AMOUNT, "Oversubscription of a fat tree, 7 for 1:7", "1"),
        InputKey("dimensions", NUMBERS, "Dimensions of a torus"),
        InputKey("groups", COUNT, "Groups of a dragonfly"),
        InputKey("global-links", COUNT, "Cables from a group of a dragonfly to others"),
        InputKey("parameters", AMOUNT, "Parameters of a model that is not published"),
        InputKey("layers", whole(1, 10_000, "N"), "Its layers"),
        InputKey("hidden", COUNT, "Its hidden size"),
        InputKey("kv-width", COUNT, "Its width of keys: heads of keys times their width"),
        InputKey("attention-width", COUNT, "Its width of queries: heads times their width", "hidden"),
        InputKey("vocabulary", COUNT, "Its vocabulary"),
        InputKey("tied", YAML_TRUTH, "Whether its embeddings are tied", "false"),
        InputKey("expert-parameters", AMOUNT, "Parameters of all its routed experts"),
        InputKey("moe-layers", whole(1, 10_000, "N"), "Its layers with experts"),
        InputKey("experts", whole(1, 100_000, "N"), "Its experts per layer"),
        InputKey("experts-per-token", whole(1, 1000, "N"), "Experts that a token is sent to"),
    )
}


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

    Columns with the name of a layer or of a time name a row, the others are loads.
    """
    file = ForeignFile(path, ConfigError, access="check the path and its permissions")
    text = file.read_text(MAX_TABLE_BYTES, "give fewer rows", MAX_CELLS)
    try:
        lines = [(at, line) for at, line in enumerate(csv.reader(io.StringIO(text)), 1) if any(map(str.strip, line))]
    except csv.Error as error:
        file.refuse(f"is not CSV: {error}", f"write {TABLE_EXAMPLE}")
    names: Sequence[str] = ()
    if lines and not _is_number(lines[0][1][-1]):
        names = [name.strip().lower() for name in lines.pop(0)[1]]
    if not lines:
        file.refuse("has no loads", f"write {TABLE_EXAMPLE}")
    rows: list[LoadRow] = []
    for row, (at, line) in enumerate(lines):
        if names and len(line) != len(names):
            file.refuse(f"has {len(line)} columns, but the header has {len(names)}", "correct it", at)
        rows.append(_read_row(file, at, str(row), dict(enumerate(names)), line))
        if len(rows[-1].loads) != len(rows[0].loads):
            counts = f"has {len(rows[-1].loads)} loads, but the first row has {len(rows[0].loads)}"
            file.refuse(counts, "correct it", at)
    return rows


def _read_row(file: ForeignFile, at: int, layer: str, names: Mapping[int, str], line: Sequence[str]) -> LoadRow:
    loads = []
    for place, value in enumerate(line):
        if names.get(place) == LAYER:
            layer = value.strip()
        elif names.get(place) not in WINDOWS:
            load = float(value) if _is_number(value) else math.nan
            if not 0 <= load <= MAX_LOAD:
                file.refuse(f"{show(value)} is not a load", f"give a number from 0 to {MAX_LOAD:g}", at)
            loads.append(load)
    if len(loads) < 2:
        file.refuse(f"has {len(loads)} loads", "give those of two or more experts", at)
    if not any(loads):
        file.refuse("has only loads of 0", "leave the row out", at)
    return LoadRow(layer, tuple(loads))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a file: a model, if it describes the layers of one, and the texts of inputs by name.

    `lack` are the faults because of which the model of a file is not known.
    """

    texts: Mapping[str, GivenText] = field(default_factory=dict)
    model: Architecture | None = None
    lack: tuple[str, ...] = ()


def read_job_file(path: Path) -> JobFile:
    """The inputs in a file of any of these kinds."""
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
        file.refuse(line, f"{name}: no such key; {advice(name, KEYS, 'docs/model-inputs.md lists all keys')}")
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
    given: Mapping[str, GivenText]


def read_inputs(
    flags: Mapping[str, GivenText], file: JobFile, observed: Mapping[str, GivenText] | None = None
) -> JobInputs:
    """The job, the hardware and the step; `observed` are inputs of a recording, for what nothing else says."""
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
    for name, text in given.items():
        try:
            values[name] = KEYS[name].kind.parse(text.text)
        except ValueError as error:
            faults.append(f"{text.place}: {error}")
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
            given = {name: text for name, text in given.items() if name not in STEP_INPUTS}
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
    job = TrainingJob(model, values["nodes"], values.get("gpus-per-node", node.gpus), **job_values)
    job = replace(job, micro_batches=_micro_batches(job, values))
    utilisations = (
        Utilisation(kind, values[kind], node.operations_per_second, values.get("attention", UNKNOWN))
        for kind in UTILISATIONS
        if kind in values
    )
    hardware = Hardware(
        rails=values.get("rails", node.rails),
        rail_bytes_per_second=values.get("rail-rate", node.rail_bytes_per_second),
        nvlink_bytes_per_second=values.get("nvlink-rate", node.nvlink_bytes_per_second),
    )
    return JobInputs(
        job=job,
        hardware=hardware,
        step=StepInputs(values.get("step"), next(utilisations, None), values.get("prefetch"), values.get("units", 0)),
        node=node,
        presets=presets,
        network=_network(job, hardware, values),
        given=given,
    )


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
    """The published model, the one of a configuration file, or the one whose figures are given."""
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
