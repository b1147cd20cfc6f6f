"""What only all devices of a node together tell. It must not read any file."""

from __future__ import annotations

from collections.abc import Sequence

from ibpulse.sysfs.device import DeviceView


def is_other_namespace(views: Sequence[DeviceView]) -> bool:
    """Whether there are ports and none of them has a counter folder, as in a pod's own sysfs.

    A node whose drivers have no counters at all (siw) looks the same.
    """
    ports = [port for view in views for port in view.ports]
    return bool(ports) and not any(port.has_counters or port.has_hw_counters for port in ports)


def find_planes(views: Sequence[DeviceView]) -> dict[str, str]:
    """Names of SMI devices with the device whose planes they show.

    An SMI device shares its function with an ordinary device, has several ports and none has `hw_counters`; its
    traffic is in the counters of the ordinary one already.
    """
    ordinary = {view.function: view.name for view in views if any(port.has_hw_counters for port in view.ports)}
    return {
        view.name: ordinary[view.function]
        for view in views
        if view.function in ordinary
        and view.function
        and len(view.ports) > 1
        and not any(port.has_hw_counters for port in view.ports)
    }
