"""What only devices and ports together tell: what shows again what another shows. It must not read any file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ibpulse.sysfs import kinds
from ibpulse.sysfs.device import DeviceView
from ibpulse.sysfs.port import PortView
from ibpulse.sysfs.speed import ETHERNET

# a card with four RoCE planes has twelve ports: of three each the last carries data
MULTIPLANE_PORTS = 12
PORTS_PER_PLANE = 3


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


def find_twins(views: Sequence[DeviceView]) -> dict[str, str]:
    """Names of devices with the device that stands for the function which they share; planes must be left out before.

    The first with `hw_counters` stands for it, else the first.
    """
    sharing: dict[str, list[DeviceView]] = {}
    for view in views:
        if view.function:
            sharing.setdefault(view.function, []).append(view)
    twins = {}
    for group in sharing.values():
        first = next((view for view in group if any(port.has_hw_counters for port in view.ports)), group[0])
        twins.update({view.name: first.name for view in group if view is not first})
    return twins


def name_device_kind(view: DeviceView, read: str, planes: Mapping[str, str], twins: Mapping[str, str]) -> str:
    """The word for a device; `read` is that of `kinds.read_kind`."""
    if view.name in planes:
        return kinds.PLANE
    if view.name in twins:
        return kinds.TWIN
    return kinds.SWITCHDEV if view.switchdev else read


def name_port_kind(view: DeviceView, port_view: PortView, device_kind: str) -> str:
    """The word for a port of a device of this kind."""
    if device_kind in (kinds.PLANE, kinds.TWIN, kinds.SWITCHDEV):
        return device_kind
    if port_view.bond:
        return kinds.BOND
    if _is_multiplane(view):
        number = port_view.port.id.port
        return kinds.MULTIPLANE if port_view.port.active or number % PORTS_PER_PLANE == 0 else kinds.UNUSED
    refuses = port_view.has_counters and port_view.port.source is None
    return kinds.LIMITED if refuses and device_kind == kinds.PF and _is_mlx5(port_view) else device_kind


def _is_multiplane(view: DeviceView) -> bool:
    last = max((port_view.port.id.port for port_view in view.ports), default=0)
    return last == MULTIPLANE_PORTS and all(
        _is_mlx5(port_view) and port_view.port.identity.link_layer == ETHERNET for port_view in view.ports
    )


def _is_mlx5(port_view: PortView) -> bool:
    return port_view.port.identity.driver.startswith("mlx5")
