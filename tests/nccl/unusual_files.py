"""Benchmark files as they are found in reports of users: interrupted, mixed, of few columns, of other programs.

Each is built from lines in the form of its program, with invented numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

HALF = "   6370.0  168.56  316.05      0"
SECOND = "   6371.1  168.53  316.00      0"
COLUMNS = "time   algbw   busbw #wrong"
SUMMARY = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 316.03 ", "#"]
GB = 1 << 30


def plan(gpus: int = 1, threads: int = 1) -> str:
    return (
        f"# nThread {threads} nGpus {gpus} minBytes {GB} maxBytes {4 * GB} step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0"
    )


def ranks(count: int, hosts: Sequence[str], pid: int = 1000) -> list[str]:
    return [
        f"#  Rank {rank:2d} Group  0 Pid {pid + rank:6d} on {hosts[rank * len(hosts) // count]:>10} "
        f"device {rank % 8:2d} [0x0f] NVIDIA H100 80GB HBM3"
        for rank in range(count)
    ]


def header(
    places: str = "out-of-place                       in-place", extra: str = "", root: str = "  root"
) -> list[str]:
    halves = "     ".join([COLUMNS] * (2 if "out" in places and "in-" in places else 1))
    units = "     ".join(["(us)  (GB/s)  (GB/s)"] * halves.count("time"))
    return [
        f"#{' ' * 60}{places}",
        f"#       size         count      type   redop  {root}     {halves} {extra}",
        f"#        (B)    (elements)                               {units}",
    ]


def row(size: int, *halves: str, kind: str = "float", redop: str = "sum", root: str = "-1") -> str:
    return f"{size:12d}  {size // 4:12d}  {kind:>8}  {redop:>6}  {root:>6}{''.join(halves)}"


def text(*parts: str | Sequence[str], prefix: str = "") -> str:
    lines = [line for part in parts for line in ([part] if isinstance(part, str) else part)]
    return "".join(f"{prefix}{line}\n" for line in lines)


NODES = ("node1", "node2")
BEFORE = [plan(), "#", "# Using devices", *ranks(16, NODES), *header()]
MESSAGE = "node1:1000:1044 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IBext_v8/0/GDRDMA"
ROWS = [row(size * GB, HALF, SECOND) for size in (1, 2, 4)]
ALONE = [*ranks(8, ["hw14"]), *ranks(8, ["hw15"])]
ONE_NODE = [plan(8), *ranks(8, ["node1"])]
ALGORITHMS = "   algo     proto   nchannels"

ITERATIONS = "  10.00  20.00  19.00  3.00"
EACH = (HALF, ITERATIONS, SECOND, ITERATIONS)
BY_ITERATION = [line.replace("#wrong", "#wrong i_min i_max i_p99 i_cv%") for line in header(extra="timestamp")]
# without groups, roots and parameters of newer versions; the last column is an error, and not a number of wrong values
OLD = [re.sub(" Group 0| agg iters: 1| graph: 0", "", line).replace("#wrong", "error") for line in BEFORE]

TEXTS: dict[str, str] = {
    "old": text(OLD[:-3], [line.replace("root", "") for line in OLD[-3:]], row(GB, HALF, SECOND, root=""), SUMMARY),
    "single iterations": text(
        ONE_NODE, [line.replace("timestamp", "") for line in BY_ITERATION], row(GB, *EACH),
        SUMMARY,
    ),
    "time stamps": text(ONE_NODE, header(extra="timestamp"), row(GB, HALF, SECOND, "  2026-07-09 10:00:00"), SUMMARY),
    "single iterations and time stamps": text(
        ONE_NODE, BY_ITERATION, row(GB, *EACH, "  2026-07-09 10:00:00"), SUMMARY
    ),
    "a message in a row": text(BEFORE, row(GB) + MESSAGE, HALF + SECOND, ROWS[1:], SUMMARY),
    "a message behind half of a row": text(BEFORE, row(GB, HALF) + MESSAGE, SECOND, ROWS[1:], SUMMARY),
    "a message within a number": text(BEFORE, row(GB, HALF)[:-20] + MESSAGE, ROWS[1:], SUMMARY),
    "a message within the type": text(BEFORE, row(GB)[:33] + MESSAGE, ROWS[1:], SUMMARY),
    "a negative bandwidth": text(BEFORE, row(GB, HALF, SECOND.replace("316", "-316")), ROWS[1:], SUMMARY),
    "an abort in a row": text(
        BEFORE, ROWS[1], row(4 * GB) + "node1: Test NCCL failure all_reduce.cu:44 'remote process exited / '",
        " .. node1 pid 1000: Test failure common.cu:401",
    ),
    "runs without MPI": text(
        plan(8), "# Using devices", plan(8), ALONE, header(), header(), ROWS[0], ROWS[0], ROWS[1], ROWS[1], SUMMARY,
        SUMMARY,
    ),
    "runs without MPI, of one GPU": text(
        [plan()] * 4, [line for pid in range(4) for line in ranks(1, ["node1"], pid)], header(), ROWS[:1] * 4,
        SUMMARY * 4,
    ),
    "runs without MPI, one late": text(
        plan(8), ranks(8, ["hw14"]), header(), ROWS[0], plan(8), ranks(8, ["hw15"]), header(), ROWS[1], ROWS[:2],
        SUMMARY, SUMMARY,
    ),
    "runs with MPI at the same time": text(
        plan(), plan(), ranks(16, NODES), ranks(16, ("node3", "node4")), header(), ROWS[:1] * 2, SUMMARY * 2
    ),
    "an aborted run before a whole one": text(
        plan(), ranks(16, ("old1", "old2")), "node1: Test NCCL failure", plan(), ranks(16, NODES), header(), ROWS,
        SUMMARY,
    ),
    "in-place only": text(
        plan(8), "rccl-tests: Version ae3e6357", ranks(8, ["mi300x-1"]), header("in-place"),
        row(GB, HALF), row(2 * GB, SECOND), SUMMARY,
    ),
    "out-of-place only": text(ONE_NODE, header("out-of-place"), row(GB, HALF), row(2 * GB, SECOND), SUMMARY),
    "one placement with algorithms": text(
        ONE_NODE, header("in-place", ALGORITHMS), row(GB, HALF, "    Ring    Simple          64"), SUMMARY
    ),
    "both placements with algorithms": text(
        ONE_NODE, header(extra=ALGORITHMS), row(GB, HALF, SECOND, "     N/A       N/A         N/A"), SUMMARY
    ),
    "a blank first half": text(ONE_NODE, header(), row(GB, " " * 32, SECOND), SUMMARY),
    "a blank second half": text(ONE_NODE, header(), row(GB, HALF, " " * 32), SUMMARY),
    "tags of Open MPI within a row": text(
        BEFORE, row(GB) + "[1,0]<stdout>:" + HALF + "[1,0]<stdout>:" + SECOND + "[1,0]<stdout>:", SUMMARY,
        prefix="[1,0]<stdout>:",
    ),
    "labels of srun and flux": text(BEFORE, ROWS[0], SUMMARY, prefix=" 0: "),
    "lines of journald": text(BEFORE, ROWS[0], SUMMARY, prefix="Jul 09 10:00:00 node1 bash[4242]: "),
    "lines of Windows": text(BEFORE, ROWS[0], SUMMARY).replace("\n", "\r\n"),
    "without number signs": re.sub("#(?!w)", "", text(BEFORE, ROWS[0], SUMMARY)),
    "no reduction is named": text(ONE_NODE, header(root=""), row(GB, HALF, SECOND, redop="", root=""), SUMMARY),
    "unchecked values": text(ONE_NODE, header(), row(GB, HALF[:-1] + "N/A", SECOND[:-1] + "N/A"), SUMMARY),
    "an error with an asterisk": text(ONE_NODE, header(), row(GB, HALF + "*", SECOND), SUMMARY),
    "types of ROCm": text(ONE_NODE, header(), row(GB, HALF, SECOND, kind="fp8_e4m3"), SUMMARY),
}  # fmt: skip


def rccl_row(name: str = "AllReduce", size: int = GB, place: int = 0, **more: object) -> dict[str, object]:
    values = {"type": "float", "redop": "sum", "inPlace": place, "time": 5636.4, "algBw": 190.5, "busBw": 333.375}
    return {"numCycle": 0, "name": name, **more, "size": size, **values, "wrong": "0"}


MPI = {"nodes": 2, "ranks": 16, "ranksPerNode": 8, "gpusPerRank": 1}
RCCL_ROWS = [rccl_row(size=size * GB, place=place, gpus=8) for size in (1, 2) for place in (0, 1)]
MPI_ROWS = [rccl_row("ReduceScatter", GB // 16, place, **MPI) for place in (0, 1)]
LIST = "[\n" + ",\n".join(map(json.dumps, RCCL_ROWS)) + "\n]\n"
_OLD_CSV = "collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time, algbw, busbw, #wrong\n"
_NEW_CSV = "numCycle,collective,gpus,size,type,redop,inplace,time,algbw,busbw,#wrong\n"

RCCL: dict[str, str] = {
    "one object per line": "".join(json.dumps(each) + "\n" for each in RCCL_ROWS),
    "a list": LIST,
    "a list with indentation": json.dumps(RCCL_ROWS, indent=2),
    "a list cut off": LIST[: LIST.rindex('"busBw"') + 3],
    "a line cut off": "".join(json.dumps(each) + "\n" for each in RCCL_ROWS)[:-30],
    "processes": json.dumps(MPI_ROWS),
    "CSV of processes": _OLD_CSV
    + '"ReduceScatter", 2, 16, 8, 1, 67108864, "float", "sum", 0, 5636.4, 190.5, 333.375, "0"\n'
    + '"ReduceScatter", 2, 16, 8, 1, 67108864, "float", "sum", 1, 5636.4, 190.5, 333.375, "N/A"\n',
    "CSV": _NEW_CSV + '0,"AllReduce",8,1073741824,"float","sum",0,5636.400000,190.500000,333.375000,"0"\n'
    + '0,"AllReduce",8,1073741824,"float","sum",1,5636.4,190',
}  # fmt: skip

_LINE = "-" * 87
_DEVICE = [
    " Dual-port       : OFF          Device         : mlx5_0",
    " Number of qps   : 1            Transport type : IB",
    " Mtu             : 4096[B]",
    " Link type       : IB",
]
_BEGIN = ["", "* Waiting for client to connect... *", _LINE, "                    RDMA_Write BW Test", *_DEVICE, _LINE]
_BOTH = [line.replace("Write BW", "Write Bidirectional BW") for line in _BEGIN]
_GBITS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
_RESULT = " 65536      5000             394.20             393.81             0.751131"

PERFTEST: dict[str, str] = {
    "Gb/s": text(_BEGIN, _GBITS, _RESULT, _LINE),
    "MB/s": text(_BEGIN, _GBITS.replace("Gb/", "MB/"), " 65536 5000 46993.25 46945.81 0.751131", _LINE),
    "MiB/s": text(_BEGIN, _GBITS.replace("Gb/", "MiB/"), " 65536 5000 46993.25 46945.81 0.751131", _LINE),
    "all sizes": text(_BEGIN, _GBITS, " 2          5000     0.000000       0.075            4.69", _RESULT, _LINE),
    "use of the CPU": text(_BEGIN, _GBITS + "    CPU_Util[%]", _RESULT + "\t    1.50", _LINE),
    "service levels": text(_BEGIN, _GBITS.replace("#it", "#sl      #it"), " 65536 3 5000 394.2 393.81 0.751131", _LINE),
    "ports": text(
        _BEGIN, _GBITS + "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]",
        _RESULT + "   196.9  0.37   196.9  0.37", _LINE,
    ),
    "a message in a row": text(_BEGIN, _GBITS, " 32768      5000    394.20Conflicting CPU frequency", _RESULT, _LINE),
    "no end": text(_BEGIN, _GBITS, _RESULT),
    "both sides": text(
        _BOTH, _GBITS, _RESULT, _LINE, " Local results: ", _GBITS, " 65536 5000 197.1 196.9 0.37", _LINE,
        " Remote results: ", _GBITS, " 65536 5000 197.1 196.9 0.37", _LINE,
    ),
}  # fmt: skip
UNQUOTED = """{
test_info: {
test: RDMA_Write_BW_Test,
Dual_port: OFF,
Device: "mlx5_0",
ibv_wr_API: ON,
TX_depth : 128,
Mtu: 4096,
Link_type: IB,
Data_ex_method: Ethernet,
},
results: {
MsgSize: 65536,
n_iterations: 5000,
BW_peak: 394.20,
BW_average: 393.81,
MsgRate: 0.751131,
},
}
"""
SIDES = json.dumps(
    {
        "test_info": {"test": "Send_Bidirectional_BW_Test", "Device": "mlx5_0", "Mtu": 4096, "Link_type": "IB"},
        **{
            f"results_{side}": {"MsgSize": 65536, "BW_average": 196.905, "MsgRate": 0.3755655}
            for side in ("local", "remote")
        },
    }
)
OTHERS: dict[str, tuple[str, str]] = {
    "OSU": (
        "# OSU MPI-CUDA Allreduce Latency Test v7.1\n# Size  Avg Latency(us)\n1048576  92.1\n",
        "has no row with results; the formats that are read: ",
    ),
    "latency": (
        text(_BEGIN, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]", " 2 1000 1.0 2.0 1.1"),
        "has no column of average bandwidth; give the output of a test like ib_write_bw",
    ),
    "no unit": (
        "#  bytes  N  type  op  time  algbw  busbw  res\n 33554432 8388608 float sum 3.527 9.51 17.84 1e-06\n",
        "has times without a unit; use nccl-tests 2.0 or newer",
    ),
    "other JSON": ('{"a": 1}', "is of no known benchmark; see `ibpulse nccl --help`"),
    "no whole row": (
        text(BEFORE, row(GB) + MESSAGE),
        "has a row that is not whole; keep messages of other programs out of the file",
    ),
}
