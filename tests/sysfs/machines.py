"""Nodes with their whole PCI tree: bridges, links, NUMA nodes, GPUs beside the RDMA devices. For the tests of topology.

A place is written as the functions from the host bridge down, without the domain 0000: `15/15:01.0/16:00.0` is
`devices/pci0000:15/0000:15:01.0/0000:16:00.0`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tests.sysfs.trees import MLX5_FILES, PortFiles, Tree

NIC = ("0x15b3", "0x1021", "0x020700")
VF = ("0x15b3", "0x101e", "0x020700")
GPU = ("0x10de", "0x2330", "0x030200")
ROOT_PORT = ("0x8086", "0x352a", "0x060400")
EMULATED_PORT = ("0x1b36", "0x000c", "0x060400")
GEN5 = "32.0 GT/s PCIe"
GEN4 = "16.0 GT/s PCIe"
UNKNOWN = "Unknown"


def write_link(speed: str = GEN5, width: int = 16, max_speed: str = "", max_width: int = 0) -> dict[str, str]:
    """The four files of one end of a link, running as fast as it can unless told otherwise."""
    return {
        "current_link_speed": f"{speed}\n",
        "current_link_width": f"{width}\n",
        "max_link_speed": f"{max_speed or speed}\n",
        "max_link_width": f"{max_width or width}\n",
    }


# a virtual function has no link of its own; the kernel prints the two widths that it uses for unknown
NO_LINK = {
    "current_link_speed": f"{UNKNOWN}\n",
    "current_link_width": "0\n",
    "max_link_speed": f"{UNKNOWN}\n",
    "max_link_width": "255\n",
}


def expand(place: str) -> Path:
    """The path under the root of a place."""
    bridge, *functions = place.split("/")
    return Path("devices", f"pci{_domain(bridge, 1)}", *(_domain(function, 2) for function in functions))


def address(place: str) -> str:
    """The PCI address of the lowest function of a place."""
    return expand(place).name


class Machine(Tree):
    """A sysfs root to which PCI functions are added with all that is above them."""

    def add_function(
        self, place: str, ids: tuple[str, str, str], numa_node: int = 0, link: Mapping[str, str] | None = None
    ) -> Path:
        """Add a function, and the bridges above it that are not there yet; answer its folder."""
        functions = place.split("/")
        for depth in range(2, len(functions)):
            self._add_one("/".join(functions[:depth]), ROOT_PORT, numa_node, write_link())
        return self._add_one(place, ids, numa_node, write_link() if link is None else link)

    def add_gpu(self, place: str, numa_node: int = 0, ids: tuple[str, str, str] = GPU) -> Path:
        """Add a GPU; answer its folder."""
        return self.add_function(place, ids, numa_node)

    def add_nic(
        self,
        name: str,
        place: str,
        numa_node: int = 0,
        *,
        ids: tuple[str, str, str] = NIC,
        link: Mapping[str, str] | None = None,
        ports: Mapping[int, PortFiles] | None = None,
        below: str = "",
        files: Mapping[str, str] | None = None,
        driver: str = "mlx5_core",
    ) -> Path:
        """Add an RDMA device, of mlx5 by default, on a function or a child `below` it; answer the function's folder."""
        function = self.add_function(place, ids, numa_node, link)
        parent = function / below
        folder = parent / "infiniband" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(os.path.relpath(parent, folder))
        self._bind(parent, driver)
        self._fill(folder, ports, MLX5_FILES if files is None else files, None)
        return function

    def rewrite(self, place: str, files: Mapping[str, str]) -> None:
        """Put other texts into files of a function."""
        for name, text in files.items():
            (self.root / expand(place) / name).write_text(text)

    def _add_one(self, place: str, ids: tuple[str, str, str], numa_node: int, link: Mapping[str, str]) -> Path:
        folder = self.root / expand(place)
        if not (folder / "vendor").exists():
            cpus = f"{numa_node * 48}-{numa_node * 48 + 47}\n"
            self._write_function(folder, ids, {"numa_node": f"{numa_node}\n", "local_cpulist": cpus, **link})
        return folder


def _domain(text: str, colons: int) -> str:
    return text if text.count(":") == colons else f"0000:{text}"
