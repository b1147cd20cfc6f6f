"""Lets ibpulse read `hw_counters` on a kernel whose soft-RoCE has `counters/` too, as kernels before 7.2 make it do."""

from ibpulse.agent.sysfs import byte_counters

byte_counters.SOURCES = tuple(row for row in byte_counters.SOURCES if row.folder == byte_counters.HW_COUNTERS)
