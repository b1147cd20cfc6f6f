"""Puts the inputs together: published jobs and clusters, then the file, then flags; the last one counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ibpulse.base.errors import ConfigError
from ibpulse.base.values import GivenText
from ibpulse.workbench.models.architecture import Architecture
from ibpulse.workbench.models.bisection import Bisection
from ibpulse.workbench.models.bisection_inputs import network_bisection
from ibpulse.workbench.models.input_keys import KEYS
from ibpulse.workbench.models.job_file import JobFile
from ibpulse.workbench.models.presets import DEFAULT_NODE, MODELS, NODES, NodeKind
from ibpulse.workbench.models.published_jobs import CLUSTERS, JOBS, Preset
from ibpulse.workbench.models.step_time import UTILISATIONS, Utilisation
from ibpulse.workbench.models.step_timelines import StepInputs
from ibpulse.workbench.models.training_job import UNKNOWN, TrainingJob
from ibpulse.workbench.models.wire_timing import Hardware

SHAPE_KEYS = (
    "parameters", "layers", "hidden", "kv-width", "attention-width", "vocabulary", "tied", "expert-parameters",
    "moe-layers", "experts", "experts-per-token",
)  # fmt: skip
NETWORK_FIGURES = ("oversubscription", "dimensions", "groups", "global-links")
JOB_FIELDS: Mapping[str, str] = {
    "tp": "tp", "cp": "cp", "pp": "pp", "ep": "ep", "etp": "etp", "virtual-stages": "chunks", "sharding": "sharding",
    "shard-ranks": "shard", "micro-batch": "micro_batch", "sequence": "sequence", "algorithm": "algorithm",
    "dispatch": "dispatch", "dispatch-bytes": "dispatch_bytes", "combine-bytes": "combine_bytes",
    "recompute": "recompute", "reduction": "reduction", "gradient-bytes": "gradient_bytes",
}  # fmt: skip
"""Inputs that are fields of a `TrainingJob` as they are."""
STEP_INPUTS = ("step", *UTILISATIONS)
"""Each of them determines the time of a step."""


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
    faults = [fault for layer in layers for fault in _step_faults(layer)]
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


def _step_faults(layer: Mapping[str, GivenText]) -> Iterator[str]:
    """A fault of inputs that come from one place and determine the step twice."""
    found = [name for name in STEP_INPUTS if name in layer]
    if len(found) > 1:
        yield (
            f"{layer[found[1]].place}: the time of the step already follows from {found[0]}; give only one of "
            f"{', '.join(STEP_INPUTS)}"
        )


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
    figures = {name: values[name] for name in NETWORK_FIGURES if name in values}
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
    shape, found = [name for name in SHAPE_KEYS if name in values], file.model
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
    return Architecture(
        name="model",
        parameters=values["parameters"],
        layers=values["layers"],
        hidden=values["hidden"],
        source="given",
        kv_width=values.get("kv-width", 0),
        attention_width=values.get("attention-width", 0),
        vocabulary=values.get("vocabulary", 0),
        tied=values.get("tied", False),
        expert_parameters=values.get("expert-parameters", 0.0),
        moe_layers=values.get("moe-layers", 0),
        experts=values.get("experts", 0),
        chosen_experts=values.get("experts-per-token", 0),
    )
