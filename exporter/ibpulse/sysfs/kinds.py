"""What kind of function a device or port is, as one word, so that nothing is counted twice. It must not read counters.

On mlx5 each physical, virtual and sub-function counts its own traffic: that of a physical function leaves out what its
virtual functions carry, so their bytes add up. What would be counted twice is left out, or is no rail.
"""

from __future__ import annotations

import os
from pathlib import Path

from ibpulse.sysfs.files import read_link, read_text

PF, VF, SF, VIRTUAL = "pf", "vf", "sf", "virtual"
BOND, SWITCHDEV, PLANE, TWIN = "bond", "switchdev", "plane", "twin"
MULTIPLANE, UNUSED, LIMITED = "multiplane", "unused", "limited"

KINDS = {
    PF: "a PCI function that is not known to be a virtual one",
    VF: "a virtual function (SR-IOV); its traffic is not in its physical function's counters",
    SF: "a sub-function of a PCI function, with counters of its own",
    VIRTUAL: "a device without hardware of its own, such as soft-RoCE over a network device",
    BOND: "one port for the links of a network bond; its counters may be those of one link only",
    SWITCHDEV: "the uplink of a device in switchdev mode; its other ports show the same counters and are left out",
    PLANE: "an SMI device, which shows the planes of another device again; it is left out",
    TWIN: "a second device on a function that another device stands for; it is never a rail by itself",
    MULTIPLANE: "a data port of a device with 12 RoCE ports, of which 3, 6, 9 and 12 carry data",
    UNUSED: "a port of such a device that carries no data; it is never a rail by itself",
    LIMITED: "a function that refuses its counters, as the management functions of NVLink switches do",
}
NEVER_RAILS = (PLANE, TWIN, UNUSED)

# mlx5's and mlx4's virtual functions, Azure's MANA, Intel's adaptive one
VIRTUAL_IDS = frozenset(
    [("0x15b3", f"0x{number:04x}") for number in (0x1004, 0x1014, 0x1016, 0x1018, 0x101A, 0x101C, 0x101E, 0xA2D3)]
    + [("0x1414", "0x00ba"), ("0x8086", "0x1889")]
)


def read_kind(real_path: str, function_folder: str) -> str:
    """The kind of a device from where it hangs: its real path, and the folder of the PCI function on that path."""
    below = Path(real_path).parts[len(Path(function_folder).parts) :]
    if any(".sf." in part for part in below):
        return SF
    ids = tuple(read_text(os.path.join(function_folder, name)).text for name in ("vendor", "device"))
    return VF if read_link(Path(function_folder, "physfn")) or ids in VIRTUAL_IDS else PF
