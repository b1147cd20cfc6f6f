"""Small inputs of the verbs: texts as they are here, and recordings, traces and datasets that are always the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ibpulse.core.recordings import save
from ibpulse.workbench.simulate.workloads import make_workload
from tests.contract.surroundings import run
from tests.datasets import known_traffic
from tests.nccl.benchmark_writers import nccl_json, nccl_text, perftest
from tests.overlap import played_traces
from tests.reports import recordings as simulated

SECONDS, RAILS = 6, 4
TEXTS = {
    "settings.yaml": "sampler: {interval: 5ms}\nports: {exclude: mlx5_bond_0}\n",
    "wrong.yaml": "sampler: {interval: 7ms, histroy: 10m}\nweb: [listen-address]\n",
    "web.yml": "basic_auth_users:\n  alice: $2b$04$Q7qO9mMXJiEBDhVqvFoTWOGtPrwDb0RUcDLdo0EJFNhnGxY7AWUxO\n",
    "nodes.json": json.dumps(
        [{"targets": [f"node{each}:10055"], "labels": {"node": f"node{each}", "rack": f"r{each}"}} for each in (1, 2)]
    ),
    "job.yaml": "model: mixtral-8x7b\nnodes: 2\nrails: 7\nalgorithm: ring\nrecompute: full\nstep: 1444ms\n",
    "config.json": json.dumps(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "vocab_size": 128256,
            "tie_word_embeddings": False,
        }
    ),
    "loads.csv": "90,132,40,61,75,88,102,55\n71,64,180,33,90,95,60,82\n",
    "log.csv": "when,port,tx,rx\n"
    + "".join(
        f"{1763683200 + second},mlx5_{port}:1,{second * (port + 1) * 1000000},{second * 500000}\n"
        for second in range(8)
        for port in (0, 1)
    ),
    "run_config.yaml": "_target_: megatron.bridge.training.config.ConfigContainer\n"
    "model:\n  num_moe_experts: 8\n  expert_model_parallel_size: 8\n  bf16: true\n"
    "  overlap_moe_expert_parallel_comm: true\n  moe_token_dispatcher_type: allgather\n",
    "model_args.yaml": "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --tensor-model-parallel-size: 2\n"
    "  --sequence-parallel: true\n  --overlap-grad-reduce: true\n",
    "broken.parquet": "PAR1 and nothing more",
}


def write_inputs(folder: Path) -> None:
    """Write all of them into a folder, which is the working directory."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    for name, workload, seed in (("dense", "dense", 1), ("moe", "moe", 2)):
        save(folder / f"{name}.parquet", simulated.play(make_workload(workload), SECONDS, seed, RAILS))
    rates = simulated.play(make_workload("dense"), SECONDS, 3, RAILS).bytes_per_second
    rates[:, :, ::8] = np.nan
    save(folder / "lossy.parquet", simulated.record(rates))
    (folder / "nccl.txt").write_text(nccl_text())
    (folder / "nccl.json").write_text(nccl_json())
    (folder / "perftest.json").write_text(perftest())
    trace = played_traces.PlayedTrace(steps=4, seed=3)
    played_traces.write_trace(folder / "rank0.json", trace.timeline()[0])
    save(folder / "node7.parquet", played_traces.record(trace))
    jobs = (known_traffic.job("1001", 0, 1),)
    nodes = (
        known_traffic.Node("node1", jobs=jobs),
        known_traffic.Node("node2", (known_traffic.Pipeline((0, 1), late=0.05),), jobs=jobs),
        known_traffic.Node("node3", jobs=jobs, missing=((1, 300, 340),)),
        *(known_traffic.Node(f"node{each}", jobs=jobs) for each in (4, 5)),
    )
    known_traffic.save_nodes(folder, *nodes, ticks=2000)
    words = ["fleet", "collect", *(f"node{each}.parquet" for each in range(1, 6)), "-o", "dataset", "--processes=1"]
    assert run(words).code == 0
