"""Describes this machine for readers of the results, without its host name."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path


def describe() -> list[str]:
    """Lines of Markdown: date, processor, kernel, Python, and how busy the machine was at the start."""
    load = os.getloadavg()[0]
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return [
        f"- date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC",
        f"- processor: {_processor()}, {os.cpu_count()} cores{_virtual()}; {memory_gb:.0f} GB of memory",
        f"- kernel: {platform.system()} {platform.release().split('-')[0]}, clock source {_clock_source()}",
        f"- Python: {platform.python_implementation()} {platform.python_version()}, {platform.machine()}",
        f"- load average at the start of the run: {load:.2f}",
    ]


def stolen_seconds() -> float:
    """CPU time stolen from this machine by the host since boot (proc(5), `steal` of /proc/stat)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _virtual() -> str:
    text = Path("/proc/cpuinfo").read_text()
    return " of a virtual machine" if " hypervisor" in text else ""


def _clock_source() -> str:
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return path.read_text().strip() if path.exists() else "unknown"
