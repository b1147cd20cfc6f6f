"""Results of a benchmark in SI units, bytes that a node sends per operation, and bounded reading of foreign files.

None is a value that the file does not have. Truncated and damaged JSON is repaired; errors contain no secrets.

Bytes on the wire are those of `models.collectives`. The bus bandwidth of nccl-tests is that of a ring (PERFORMANCE.md
in NVIDIA/nccl-tests), so a ring sends at the bus bandwidth. Protocols: LL sends 16 bytes per 8 of data, LL128 128 per
120 (NVIDIA/nccl, src/device).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import orjson

from ibpulse.base.errors import BenchmarkError
from ibpulse.base.files import ForeignFile
from ibpulse.base.text import count_text, show, size_text
from ibpulse.workbench.models.collectives import HIERARCHICAL, RING, RankGroup, node_wire_bytes

TREE, COLLNET, DIRECT = "tree", "collnet", "direct"
PROTOCOLS = {"simple": 1.0, "ll128": 128 / 120, "ll": 2.0}
"""Bytes on the wire per byte of data."""

ALGORITHMS: dict[str, tuple[str, ...]] = {
    "all_reduce": (RING, TREE, COLLNET),
    "all_gather": (RING, HIERARCHICAL),
    "reduce_scatter": (RING, HIERARCHICAL),
    "alltoall": (DIRECT,),
    "sendrecv": (DIRECT,),
    "broadcast": (RING,),
    "reduce": (RING,),
    "gather": (),
    "scatter": (),
}
"""The algorithms of each collective whose bytes are known, the one of the bus bandwidth first."""
COLLECTIVES = tuple(ALGORITHMS)
# NCCL's words for algorithms that send the same bytes
_SAME = {"nvlstree": TREE, "collnetdirect": COLLNET, "collnetchain": COLLNET, "pat": HIERARCHICAL}

TOLERANCE = 0.005
"""Of a ratio of bytes: acknowledgements, and samples at the ends of a train."""
# InfiniBand: LRH 8 + BTH 12 + ICRC 4, which port_xmit_data counts; RoCEv2 with Ethernet's preamble, gap and FCS: 82
INFINIBAND_HEADER_BYTES, ROCE_HEADER_BYTES = 24, 82
MTUS = (1024, 2048, 4096)
"""MTUs to expect in bytes if it is unknown."""


def collective_of_program(program: str) -> str:
    """The collective of a program of nccl-tests, such as `/opt/all_reduce_perf_mpi`; empty if it is unknown."""
    found = re.search(r"(?:^|/)([a-z_]+?)_perf(?:_mpi)?$", program)
    return found[1] if found and found[1] in ALGORITHMS else ""


def collective_of_name(name: str) -> str:
    """The collective of a name like `AllReduce`, `all_reduce` or `AlltoAll_perf`; empty if it is unknown."""
    plain = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf")
    return next((known for known in ALGORITHMS if known.replace("_", "") == plain), "")


def bus_factor(collective: str, ranks: int) -> float | None:
    """Bus bandwidth divided by algorithm bandwidth; None for an unknown collective."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0 if collective in ("broadcast", "reduce", "sendrecv", "send", "recv") else None


def plain_algorithm(word: str) -> str:
    """The algorithm that sends the same bytes as one of NCCL's, by its name in any case."""
    word = word.lower()
    return _SAME.get(word, word)


def node_bytes(collective: str, algorithm: str, size_bytes: float, ranks: int, nodes: int) -> float | None:
    """Payload bytes that a node sends per operation, None if that is not known. No node sends alone: 0 for one node.

    `size_bytes` is as `Measurement.size_bytes`. Trees send what hierarchical algorithms do.
    """
    if algorithm not in ALGORITHMS.get(collective, ()) or ranks % nodes:
        return None
    if nodes == 1:
        return 0.0
    if collective in ("sendrecv", "broadcast", "reduce") or algorithm == COLLNET:
        return size_bytes
    operation = "all-to-all" if collective == "alltoall" else collective.replace("_", "-")
    group = RankGroup(collective, ranks, 1, ranks // nodes)
    return node_wire_bytes(operation, RING if algorithm == RING else HIERARCHICAL, size_bytes, group)


def first_bytes(collective: str, size_bytes: float, ranks: int, nodes: int) -> float | None:
    """As `node_bytes`, with the first algorithm of the collective."""
    names = ALGORITHMS.get(collective, ())
    return node_bytes(collective, names[0], size_bytes, ranks, nodes) if names else None


def header_factors(link_layer: str = "", mtu_bytes: int | None = None) -> tuple[float, float]:
    """The least and the most bytes that a counter adds up per byte of payload in full packets.

    InfiniBand counters include 24 bytes per packet. Whether those of RoCE include Ethernet's framing depends on the
    device: 24 to 82. An unknown link layer or MTU widens the range.
    """
    most = INFINIBAND_HEADER_BYTES if link_layer == "InfiniBand" else ROCE_HEADER_BYTES
    mtus = (mtu_bytes,) if mtu_bytes else MTUS
    return 1 + INFINIBAND_HEADER_BYTES / max(mtus), 1 + most / min(mtus)


def explanations(collective: str, ranks: int, nodes: int) -> dict[str, float]:
    """Bytes on the wire, without headers, per byte that the collective's first algorithm sends as payload.

    One for each algorithm and protocol, such as `tree, simple`; none if the bytes are not known, or 0.
    """
    first = first_bytes(collective, 1.0, ranks, nodes)
    if not first:
        return {}
    return {
        f"{name}, {protocol}": (node_bytes(collective, name, 1.0, ranks, nodes) or 0.0) / first * size
        for name in ALGORITHMS[collective]
        for protocol, size in PROTOCOLS.items()
    }


def explain(ratio: float, factors: dict[str, float], headers: tuple[float, float]) -> list[str]:
    """The explanations that fit a ratio of bytes on the wire to expected payload, within `TOLERANCE`."""
    low, high = headers
    return [
        name for name, size in factors.items() if size * low * (1 - TOLERANCE) <= ratio <= size * high * (1 + TOLERANCE)
    ]


OUT_OF_PLACE, IN_PLACE = "out-of-place", "in-place"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: `size_bytes` of the full array as nccl-tests counts it, `seconds` per operation, rates in bytes/s.

    `size_bytes` of AllGather and ReduceScatter is the sum over the ranks, of all-to-all and SendRecv that of one rank.
    `collective` is a key of `ALGORITHMS`, the name of a point-to-point test, or empty if unknown.
    `wrong` counts elements with a wrong value, None if they were not checked. `operations` is the number of operations
    behind the row. `algorithm` and `protocol` are NCCL's words in lower case, empty if unknown.
    """

    collective: str
    size_bytes: int
    seconds: float | None
    algorithm_bytes_per_second: float | None
    bus_bytes_per_second: float | None
    placement: str = ""
    wrong: float | None = None
    operations: int | None = None
    ranks: int | None = None
    nodes: int | None = None
    algorithm: str = ""
    protocol: str = ""


GRAPHS = "the run used CUDA graphs: how many operations its trains have is not known"
SIZES_DIFFER = "groups of different size ran in parallel; give --ranks and --nodes of one of them"


def left_out(count: int, what: str) -> list[str]:
    """The remark about rows that a reader left out, none if there are none."""
    return [f"{count_text(count, what)} left out: not whole, or with an invalid value"] if count else []


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run of nccl-tests: operations per size and placement, and the sizes of its warm-up.

    `warmups` operations for each of the sizes `first_bytes`, doubled up to `last_bytes`; then for each size and
    placement one operation to synchronise, `iterations` times `aggregated` timed ones and `checks` verified ones.
    """

    first_bytes: int
    last_bytes: int
    warmups: int
    iterations: int
    aggregated: int
    checks: int


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """The results of one run. `form` names its format, `version` that of its writer.

    `ranks` and `nodes` are those of one group; `groups` of them ran in parallel. `complete` is false if the file ends
    early. `remarks` are sentences about what was inferred, repaired or left out.
    """

    path: Path
    form: str
    measurements: tuple[Measurement, ...]
    version: str = ""
    ranks: int | None = None
    nodes: int | None = None
    groups: int = 1
    plan: RunPlan | None = None
    device: str = ""
    directions: int = 1
    complete: bool = True
    remarks: tuple[str, ...] = ()


def group_sizes(places: Iterable[tuple[int, int]]) -> tuple[set[int], set[int], int]:
    """The numbers of members and of hosts that groups have, and how many groups there are.

    `places` has the group of each member, and a number for its host.
    """
    hosts: dict[int, list[int]] = {}
    for group, host in places:
        hosts.setdefault(group, []).append(host)
    return {len(each) for each in hosts.values()}, {len({*each}) for each in hosts.values()}, len(hosts)


def without_rows(runs: tuple[BenchmarkRun, ...], others: int, what: str) -> tuple[BenchmarkRun, ...]:
    """The runs of a file; the first one has a remark about others that have no row."""
    if not runs or not others:
        return runs
    remark = f"{count_text(others, f'further {what}')} of this file left out: without a whole row"
    return (replace(runs[0], remarks=(*runs[0].remarks, remark)), *runs[1:])


MAX_DOCUMENT_BYTES = 64 << 20
MAX_LOG_BYTES = 4 << 30
MAX_LINE_BYTES = 1 << 20
EMPTY_ADVICE = "give the file that the benchmark writes"
MAX_COUNT = 2**62
# a bound for rates and times that keeps every product finite
MAX_NUMBER = 1e18
# possessive, so that hostile text costs linear time; a string may be cut off by the end of the file
_STRING = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\],]", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}
MAX_DEPTH = 100
_MISSING_COMMA = re.compile(r'(?<=["0-9}\]])[^\S\n]*\n\s*(?=")')
# bare words that printf writes for infinity, other texts without quotes, a comma before a bracket
_WORD = r"[A-Za-z_][\w./*+-]*+"
_FAULT = re.compile(
    rf"(?P<string>{_STRING})|-?\b(?P<word>inf|nan)\b|(?P<bare>{_WORD}(?:[ \t]++{_WORD})*+)|(?P<comma>,)(?=\s*+[}}\]])",
    re.DOTALL,
)
_CONSTANTS = ("true", "false", "null")


def refuse(path: Path, problem: str, way_out: str, line: int | None = None) -> NoReturn:
    """Refuse a file."""
    _file(path).refuse(problem, way_out, line)


def _file(path: Path) -> ForeignFile:
    return ForeignFile(path, BenchmarkError, "benchmark file")


def read_beginning(path: Path) -> str:
    """The first characters of a file without leading space, empty for an empty file."""
    with _file(path).opened() as file:
        return file.read(4096).decode("utf-8", "replace").lstrip()


def read_document(path: Path) -> str:
    """The text of a file of at most `MAX_DOCUMENT_BYTES`; bytes that are not UTF-8 are replaced."""
    content = _file(path).read(MAX_DOCUMENT_BYTES, "benchmark only the sizes you need")
    if not content.strip():
        refuse(path, "is empty", EMPTY_ADVICE)
    return content.decode("utf-8", "replace")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers from 1, without reading it whole."""
    total = 0
    with _file(path).opened() as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 1):
            total += len(line)
            if len(line) > MAX_LINE_BYTES:
                refuse(path, f"has a line of more than {size_text(MAX_LINE_BYTES)}", "it is no log", number)
            if total > MAX_LOG_BYTES:
                refuse(path, f"is larger than {size_text(MAX_LOG_BYTES)}", "split it", number)
            yield number, line.decode("utf-8", "replace")


def parse_document(path: Path, text: str) -> tuple[Any, list[str]]:
    """The JSON object or list in a text, and remarks about what had to be repaired to read it."""
    remarks: list[str] = []
    found = _parsed(text)
    if found is None:
        text = _MISSING_COMMA.sub(",\n", _FAULT.sub(_repair, text))
        found = _parsed(text)
        remarks.append("the file is not valid JSON; known faults of its writer were repaired")
    if found is None:
        found = _parsed(_closed(text))
        remarks = ["the file ends early; everything up to its last complete value was read"]
    if not isinstance(found, dict | list):
        refuse(path, "is not JSON", "see `ibpulse nccl --help` for the formats that are read")
    return found, remarks


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _repair(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "word":
            return "null"
        case "comma":
            return ""
        case "bare" if found[0] not in _CONSTANTS:
            return f'"{found[0]}"'
    return found[0]


def _closed(text: str) -> str:
    """A truncated document without its last incomplete value, and with its open brackets closed."""
    opened: list[str] = []
    end, needed = 0, ""
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in _CLOSING:
            opened.append(_CLOSING[sign])
            end, needed = token.end(), "".join(reversed(opened))
        elif sign in ("}", "]"):
            if not opened or opened.pop() != sign:
                return ""
            end, needed = token.end(), "".join(reversed(opened))
        elif sign == ",":
            end, needed = token.start(), "".join(reversed(opened))
        if len(opened) > MAX_DEPTH:
            return ""
    return text[:end] + needed


def number_of(path: Path, where: str, value: object, line: int | None = None, unit: float = 1.0) -> float | None:
    """A finite number that is not negative, times its unit; None for null, `nan`, `N/A` and infinity.

    Raises:
        BenchmarkError: it is something else.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in ("nan", "-nan", "inf", "-inf", "n/a", "")):
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        number = -1.0
    if math.isnan(number) or math.isinf(number):
        return None
    if not 0 <= number <= MAX_NUMBER:
        refuse(path, f"has {where} {show(value)}", "it must be a number from 0 on", line)
    return number * unit


def count_of(
    path: Path, where: str, value: object, line: int | None = None, least: int = 0, most: int = MAX_COUNT
) -> int:
    """A whole number from `least` to `most`.

    Raises:
        BenchmarkError: it is something else.
    """
    text = value.strip() if isinstance(value, str) else str(value) if type(value) is int else ""
    if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) <= most:
        refuse(path, f"has {where} {show(value)}", f"it must be a whole number from {least} to {most}", line)
    return int(text)
