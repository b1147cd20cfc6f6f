"""Reads the JSON files of perftest (`ib_write_bw --out_json`).

Source: linux-rdma/perftest, src/perftest_parameters.c at 00b55b66. The file does not have the unit of its bandwidth:
MiB/s (2^20 bytes), or Gb/s with `--report_gbits`. Without a given unit, it follows from `MsgSize` times `MsgRate`
(10^6 messages per second), which is the same bandwidth; the two units differ by a factor of 119.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ibpulse.nccl.bounded_files import count_of, number_of, parse_object, refuse
from ibpulse.nccl.measurement import BenchmarkRun, Measurement
from ibpulse.text import escape_controls

UNITS = {"MiB/s": 2.0**20, "Gb/s": 1e9 / 8}
"""Bytes per second of the units that perftest writes."""
AGREEMENT = 0.05
_LINKS = {"IB": "InfiniBand", "Ethernet": "Ethernet"}


def read_perftest(path: Path, text: str, unit: str = "") -> BenchmarkRun:
    """The bandwidth in the text of a file; `unit` is a key of `UNITS`, or empty to infer it.

    Raises:
        BenchmarkError: it is no such file, it has no bandwidth, or its unit is unknown.
    """
    document, remarks = parse_object(path, text)
    info, results = document.get("test_info"), document.get("results")
    if not isinstance(info, dict) or not isinstance(results, dict):
        refuse(path, "has no test_info with results", "give a file that perftest wrote with --out_json")
    value = number_of(path, "BW_average", results.get("BW_average", results.get("bw_avg")))
    if value is None:
        refuse(path, "has no bandwidth (BW_average)", "give the file of a bandwidth test, such as ib_write_bw")
    size, rate = results.get("MsgSize"), number_of(path, "MsgRate", results.get("MsgRate"))
    bytes_per_second = _bandwidth(path, value, _product(path, size, rate), unit, remarks)
    name = escape_controls(str(info.get("test", "")))[:80]
    both_ways = "bidirectional" in name.lower()
    if both_ways:
        remarks.append("a bidirectional test adds both directions")
    mtu = info.get("Mtu")
    measurement = Measurement(
        collective=name or "perftest",
        size_bytes=0 if size is None else count_of(path, "MsgSize", size),
        seconds=None,
        algorithm_bytes_per_second=bytes_per_second,
        bus_bytes_per_second=bytes_per_second,
        operations=None
        if results.get("n_iterations") is None
        else count_of(path, "n_iterations", results["n_iterations"]),
    )
    return BenchmarkRun(
        path,
        "perftest JSON",
        (measurement,),
        device=escape_controls(str(info.get("Device", "")))[:80],
        directions=(2 if both_ways else 1) * (2 if info.get("Dual_port") == "ON" else 1),
        link_layer=_LINKS.get(str(info.get("Link_type")), ""),
        mtu_bytes=None if mtu is None else count_of(path, "Mtu", mtu, least=1),
        remarks=tuple(remarks),
    )


def _product(path: Path, size: Any, rate: float | None) -> float | None:
    """Bytes per second by size and rate of the messages, None without them."""
    if size is None or rate is None:
        return None
    return count_of(path, "MsgSize", size) * rate * 1e6 or None


def _bandwidth(path: Path, value: float, product: float | None, unit: str, remarks: list[str]) -> float:
    """The bandwidth in bytes per second; says how its unit became known."""
    fitting = [name for name, size in UNITS.items() if product and abs(value * size / product - 1) <= AGREEMENT]
    if unit:
        if product and unit not in fitting:
            remarks.append(f"read in {unit} as given, but size and rate of the messages do not fit that unit")
        return value * UNITS[unit]
    if len(fitting) != 1:
        refuse(path, "does not say the unit of its bandwidth", "give --unit=MiB/s, or --unit=Gb/s for --report_gbits")
    remarks.append(f"bandwidth is in {fitting[0]}, inferred from size and rate of the messages")
    return value * UNITS[fitting[0]]
