"""Reads the description of a job from a file: our own YAML, a Hugging Face config.json, or a file of Megatron.

Files may come from anywhere: size and depth are limited by
`YamlFile`, numbers by their parsers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ibpulse.base.errors import ConfigError
from ibpulse.base.text import escape_controls
from ibpulse.base.values import GivenText, advice
from ibpulse.base.yaml import YamlFile, is_empty, is_mapping, texts_of
from ibpulse.workbench.models.architecture import Architecture
from ibpulse.workbench.models.hub_configs import read_hub_config
from ibpulse.workbench.models.input_keys import KEYS
from ibpulse.workbench.models.megatron_configs import other_program, read_model_args, read_run_config
from ibpulse.workbench.models.megatron_flags import MODEL_ARGS

if TYPE_CHECKING:
    import yaml

ADVICE = (
    "give the run_config.yaml of a checkpoint of Megatron-Bridge, a file with MODEL_ARGS of Megatron-LM, or a file of "
    "ibpulse with the name of a model"
)
EXAMPLE = "{model: mixtral-8x7b, nodes: 2, step: 1444ms}"


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a file says: a model, if it describes the layers of one, and the texts of inputs by name.

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
        file.faults.append(f"{path}: is not a mapping; write it like {EXAMPLE}")
    if file.faults or not is_mapping(root):
        raise ConfigError(file.faults or [f"{path}: is empty; write it like {EXAMPLE}"])
    entries = {entry.name: entry for entry in file.entries(root)}
    if MODEL_ARGS in entries:
        job = read_model_args(file, root)
        result = JobFile(job.texts, job.model, job.lack)
    elif "model" in entries and is_mapping(entries["model"].value):
        if other := other_program(file, root):
            raise ConfigError([f"{path}: is a configuration of {other}, which is not read; {ADVICE}"])
        job = read_run_config(file, root)
        result = JobFile(job.texts, job.model)
    elif entries.keys() & {"model_type", "num_hidden_layers", "architectures"}:
        result = JobFile({}, read_hub_config(file, root))
    else:
        result = JobFile(
            {
                name: _given(file, name, entry.line, entry.value)
                for name, entry in entries.items()
                if not is_empty(entry.value)
            }
        )
    if file.faults:
        raise ConfigError(file.faults)
    return result


def _given(file: YamlFile, name: str, line: int, node: yaml.Node) -> GivenText:
    shown = escape_controls(name)
    texts = texts_of(node)
    if name not in KEYS:
        file.refuse(line, f"{shown}: no such key; {advice(name, KEYS, 'docs/models.md lists all keys')}")
    elif texts is None:
        file.refuse(line, f"{shown}: not a single value; write it like {shown}: 8")
    text = texts if isinstance(texts, str) else ",".join(texts or ())
    return GivenText(text, f"{file.path}:{line}: {shown}")
