"""Determines the kind of every device and port.

On mlx5 each physical, virtual and sub-function counts its own traffic: a physical function does not include that of its
virtual functions, so their bytes add up. Ports that would count traffic twice are dropped or are not rails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ibpulse.agent.sysfs.device import DeviceView, PortView
from ibpulse.agent.sysfs.files import read_link, read_value
from ibpulse.agent.sysfs.speed import ETHERNET
from ibpulse.core.model import Port

PF, VF, SF, VIRTUAL = "pf", "vf", "sf", "virtual"
BOND, SWITCHDEV, PLANE, TWIN = "bond", "switchdev", "plane", "twin"
MULTIPLANE, UNUSED, LIMITED = "multiplane", "unused", "limited"

KINDS = {
    PF: "a PCI function that is not known to be a virtual one",
    VF: "a virtual function (SR-IOV); its physical function's counters do not include its traffic",
    SF: "a sub-function of a PCI function, with its own counters",
    VIRTUAL: "a device without its own hardware, such as soft-RoCE over a network device",
    BOND: "one port for the links of a network bond; its counters may be those of one link only",
    SWITCHDEV: "the uplink of a device in switchdev mode; its other ports have the same counters and are ignored",
    PLANE: "an SMI device, which shows the single planes of another device; it is ignored",
    TWIN: "a further device on the PCI function of another device; never chosen as a rail automatically",
    MULTIPLANE: "a data port of a device with 12 RoCE ports, where ports 3, 6, 9 and 12 carry data",
    UNUSED: "a port of such a device that carries no data; never chosen as a rail automatically",
    LIMITED: "a function that denies access to its counters, such as a management function of an NVLink switch",
}
NEVER_RAILS = (PLANE, TWIN, UNUSED)

# mlx5's and mlx4's virtual functions, Azure's MANA, Intel's adaptive one, AMD Pensando's
VIRTUAL_IDS = frozenset(
    [("0x15b3", f"0x{number:04x}") for number in (0x1004, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3)]
    + [("0x1414", "0x00ba"), ("0x8086", "0x1889"), ("0x1dd8", "0x1003")]
)
# a card with four RoCE planes has twelve ports: the last of every three carries data
MULTIPLANE_PORTS = 12
PORTS_PER_PLANE = 3


def read_kind(real_path: str, function_folder: str) -> str:
    """The kind of a device, from its real path and the folder of the PCI function on that path."""
    below = Path(real_path).parts[len(Path(function_folder).parts) :]
    if any(".sf." in part for part in below):
        return SF
    ids = read_value(function_folder, "vendor"), read_value(function_folder, "device")
    return VF if read_link(Path(function_folder, "physfn")) or ids in VIRTUAL_IDS else PF


def is_other_namespace(views: Sequence[DeviceView]) -> bool:
    """Whether there are ports but none has a counter folder, as in a pod's own sysfs.

    A node whose drivers have no counters at all (siw) looks the same.
    """
    ports = [port for view in views for port in view.ports]
    return bool(ports) and not any(port.has_counters or port.has_hw_counters for port in ports)


def find_planes(views: Sequence[DeviceView]) -> dict[str, str]:
    """SMI devices by name, each with the name of the device whose planes it shows.

    An SMI device shares its function with an ordinary device and has several ports without `hw_counters`. The counters
    of the ordinary device already include its traffic.
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
    """Devices that share a function with another, by name, each with the name of the one that represents the function.

    The first device with `hw_counters` represents it, otherwise the first. `views` may not contain planes.
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
    """The kind of a device; `read` is the result of `read_kind`."""
    if view.name in planes:
        return PLANE
    if view.name in twins:
        return TWIN
    return SWITCHDEV if view.switchdev else read


def name_port_kind(view: DeviceView, port_view: PortView, device_kind: str) -> str:
    """The kind of a port of a device of this kind."""
    if device_kind in (PLANE, TWIN, SWITCHDEV):
        return device_kind
    if port_view.bond:
        return BOND
    if _is_multiplane(view):
        number = port_view.port.id.port
        return MULTIPLANE if port_view.port.active or number % PORTS_PER_PLANE == 0 else UNUSED
    refuses = port_view.has_counters and port_view.port.source is None
    return LIMITED if refuses and device_kind == PF and _is_mlx5(port_view) else device_kind


def _is_multiplane(view: DeviceView) -> bool:
    last = max((port_view.port.id.port for port_view in view.ports), default=0)
    return last == MULTIPLANE_PORTS and all(
        _is_mlx5(port_view) and port_view.port.identity.link_layer == ETHERNET for port_view in view.ports
    )


def _is_mlx5(port_view: PortView) -> bool:
    return port_view.port.identity.driver.startswith("mlx5")


def make_of(port: Port) -> tuple[str, str, str]:
    """The model of a port's adapter: driver, type and board."""
    return port.identity.driver, port.identity.hca_type, port.identity.board
