"""Runs the recipe of docs/python.md with the real experiment trackers, offline, and prints what each has stored.

Arguments: a file with the numbers of a summary, one with the recipe. It runs in an environment of the trackers alone.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

STEPS = (7, 8)
BLOCK, HEADER, END = 32768, struct.Struct("<IHB"), (1, 4)


def main() -> None:
    """Log the numbers at two steps."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", MLFLOW_ALLOW_FILE_STORE="true")
    import mlflow
    import wandb
    from tensorboardX import SummaryWriter

    numbers = json.loads(Path(sys.argv[1]).read_text())
    node = SimpleNamespace(summary=lambda _: SimpleNamespace(flat=lambda _: numbers))
    mlflow.set_tracking_uri(Path("mlruns").absolute().as_uri())
    with mlflow.start_run() as tracked, wandb.init(project="test"), SummaryWriter("board") as writer:
        known = {"ibpulse": SimpleNamespace(connect=lambda _: node), "wandb": wandb, "mlflow": mlflow, "writer": writer}
        for step in STEPS:
            exec(Path(sys.argv[2]).read_text(), {**known, "step": step})
    history = mlflow.MlflowClient().get_metric_history
    in_mlflow = {name: [(each.step, each.value) for each in history(tracked.info.run_id, name)] for name in numbers}
    print(json.dumps({"mlflow": in_mlflow, "wandb": wandb_history(), "tensorboard": board_scalars()}))


def board_scalars() -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator("board").Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def wandb_history() -> dict[str, list[tuple[int, float]]]:
    """The history in the file of an offline run of Weights & Biases."""
    from wandb.proto.wandb_internal_pb2 import Record

    [file] = Path("wandb").glob("offline-run-*/*.wandb")
    found: dict[str, list[tuple[int, float]]] = {}
    for content in log_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(content)
        for item in record.history.item:
            name = item.key or ".".join(item.nested_key)
            found.setdefault(name, []).append((record.history.step.num, json.loads(item.value_json)))
    return {name: values for name, values in found.items() if not name.startswith("_")}


def log_records(content: bytes) -> Iterator[bytes]:
    """The records of a log in the format of LevelDB, behind the seven bytes of a header."""
    at, whole = HEADER.size, b""
    while at + HEADER.size <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER.size:
            at += left
            continue
        _, length, kind = HEADER.unpack_from(content, at)
        whole += content[at + HEADER.size : at + HEADER.size + length]
        at += HEADER.size + length
        if kind in END:
            yield whole
            whole = b""


if __name__ == "__main__":
    main()
