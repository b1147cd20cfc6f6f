"""The rows of whole devices: how they are plugged in. They must not say how a value comes about."""

from __future__ import annotations

from ibpulse.metrics.row import row

DEVICE = ("device",)

DEVICE_PCIE = row(
    "ibpulse_device_pcie_bytes_per_second",
    "gauge",
    "What the narrowest PCIe link on the way from the device to the root carries now, one direction, after line "
    "coding. Absent where the kernel does not say.",
    DEVICE,
    "bytes_per_second",
)
DEVICE_PCIE_MAX = row(
    "ibpulse_device_pcie_max_bytes_per_second",
    "gauge",
    "What the narrowest of these links would carry if each ran as both its ends can. More than the value of now means "
    "a link that trained down.",
    DEVICE,
    "bytes_per_second",
)
