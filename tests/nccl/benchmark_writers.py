"""Benchmark files as their programs write them: rebuilt from the formats of the sources, with invented numbers."""

from __future__ import annotations

import json
from typing import Any

SECRETS = ("AWS_SECRET_ACCESS_KEY=hunter2-env", "HF_TOKEN=hunter2-token", "NCCL_ALGO=hunter2-nccl")
HOSTS = ("hunter2-host-a", "hunter2-host-b")
SIZES = (1 << 28, 1 << 29, 1 << 30, 1 << 31)


def number(value: float, width: int) -> str:
    """getFloatStr of nccl-tests."""
    power = 0
    while value >= 10**power:
        power += 1
    if power < width - 2:
        return f"{value:{width}.2f}"
    if power < width - 1:
        return f"{value:{width}.1f}"
    return f"{value:{width}.0f}" if power < width + 1 else f"{value:{width}.1e}"


def nccl_text(
    *,
    program: str = "all_reduce_perf",
    rate: float = 360e9,
    ranks: int = 16,
    nodes: int = 2,
    sizes: tuple[int, ...] = SIZES,
) -> str:
    """What nccl-tests prints."""
    factor = 2 * (ranks - 1) / ranks
    lines = [
        "# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007",
        f"# Collective test starting: {program}",
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 1 iters: 20"
        " agg iters: 1 validation: 1 graph: 0 unalign: 0",
        "#",
        "# Using devices",
    ]
    for rank in range(ranks):
        host, bus = HOSTS[rank * nodes // ranks % 2] + str(rank * nodes // ranks), f"[0000:{rank:02x}:00]"
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device {rank % 8:2d} {bus} NVIDIA H100"
        )
    half = ["time", "algbw", "busbw", "#wrong"]
    lines += ["#", "#                out-of-place                       in-place"]
    lines += ["#  " + "  ".join(["size", "count", "type", "redop", "root", *half, *half])]
    lines += ["#  (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)"]
    for size in sizes:
        seconds = size * factor / rate
        values = [number(seconds * 1e6, 7), number(size / seconds / 1e9, 6), number(rate / 1e9, 6), "0"]
        lines.append("  ".join([f"{size:12d}", f"{size // 4:12d}", "   float", "   sum", "    -1", *values, *values]))
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {rate / 1e9:g} ", "#"]
    return "".join(f"{line}\n" for line in [*lines, f"# Collective test concluded: {program}"])


def nccl_document(
    *,
    version: int = 3,
    program: str = "/opt/all_reduce_perf",
    rate: float = 360e9,
    sizes: tuple[int, ...] = SIZES,
    nodes: int = 2,
    processes: int = 2,
    gpus: int = 8,
    groups: int = 1,
    **changes: Any,
) -> dict[str, Any]:
    """The document of `-J`, with secrets where the program writes its environment, arguments and host names."""
    ranks = processes * gpus // groups
    factor = 2 * (ranks - 1) / ranks
    devices = [
        {"rank": at * gpus, "group": at % groups, "pid": 77 + at, "hostname": f"{HOSTS[0]}{at * nodes // processes}",
         "device": 0, "device_hex": "0000:0f:00", "device_info": "NVIDIA H100"}
        for at in range(processes)
    ]  # fmt: skip
    results = []
    for size in sizes:
        seconds = size * factor / rate
        values = {"time": seconds * 1e6, "alg_bw": size / seconds / 1e9, "bus_bw": rate / 1e9, "nwrong": 0.0}
        row: dict[str, Any] = {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1"}
        row |= {"out_of_place": values, "in_place": dict(values, nwrong=None)}
        if version >= 2:
            row["in_place_per_iter"] = {"skipped_iterations": 1, "times_us": [seconds * 1e6] * 20}
        results.append(row | {"actual_iterations": 20, "experiment_name": "AllReduce"})
    config = {
        "nthreads": 1, "ngpus": gpus, "minimum_bytes": sizes[0], "maximum_bytes": sizes[-1], "step_factor": 2,
        "warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 0,
        "blocking_collectives": "false", "per_iter_timing": "false", "parallel_init": "false", "devices": devices,
    }  # fmt: skip
    document = {
        "version": version, "start_time": "2026-07-09 10:00:00", "args": [program, "--token", "hunter2-argument"],
        "env": list(SECRETS), "nccl_version": 23007, "config": config, "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": rate / 1e9, "okay": "unchecked"}, "errors": [],
        "end_time": "2026-07-09 10:01:00",
    }  # fmt: skip
    return document | changes


def nccl_json(**options: Any) -> str:
    """One line without spaces, as the program writes it."""
    return json.dumps(nccl_document(**options), separators=(",", ":")).replace("/", "\\/")


def perftest(*, gigabits: bool = True, name: str = "RDMA_Write_BW_Test", size: int = 65536, **results: Any) -> str:
    """perftest's file for 385 Gb/s, with its spaces and line ends."""
    bytes_per_second = 385e9 / 8
    value = bytes_per_second * 8 / 1e9 if gigabits else bytes_per_second / 2**20
    found: dict[str, Any] = {
        "MsgSize": size,
        "n_iterations": 5000,
        "BW_peak": f"{value:.2f}",
        "BW_average": f"{value:.2f}",
    }
    found["MsgRate"] = f"{bytes_per_second / size / 1e6:.6f}"
    found |= results
    body = ",\n".join(f'"{key}": {one}' for key, one in found.items() if one is not None)
    info = f'"test": "{name}",\n"Dual_port": "OFF",\n"Device": "mlx5_0",\n"Mtu": 4096,\n"Link_type": "IB",\n'
    info += '"TX_depth": 128'
    return f'{{\n"test_info": {{\n{info}\n}},\n"results": {{\n{body}\n}}\n}}\n'


def inspector_line(
    coll: str, size: int, microseconds: int, *, ranks: int = 8, nodes: int = 1, version: str = "v4.0", **more: Any
) -> str:
    """One operation of NCCL Inspector; v4.2 has algorithm and protocol."""
    words = {"coll_algo": "Ring", "coll_proto": "Simple"} if version == "v4.2" else {}
    record = {
        "header": {"id": "0x7f", "comm_name": "unknown", "rank": 0, "n_ranks": ranks, "nnodes": nodes},
        "metadata": {
            "inspector_output_format_version": version, "git_rev": "x", "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": 1_749_490_229_087_081, "hostname": HOSTS[0], "pid": 4242,
        },
        "coll_perf": {
            "coll": coll, **words, "coll_sn": 1, "coll_msg_size_bytes": size, "coll_exec_time_us": microseconds,
            "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 0.0, "coll_busbw_gbs": 0.0, **more,
        },
    }  # fmt: skip
    return json.dumps(record) + "\n"
