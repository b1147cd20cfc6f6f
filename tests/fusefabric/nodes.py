"""The nodes of the tree by path, and which device each belongs to."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from ibpulse.workbench.simulate.tree import Device, Listing, list_device, list_function


@dataclass
class Node:
    """A file (text), a link (target) or a directory (children). `device` is None for what never goes away."""

    mode: int
    device: str | None = None
    text: str = ""
    target: str = ""
    counter: str = ""
    children: list[str] = field(default_factory=list)


def plant(devices: Sequence[Device], cgroup: str = "") -> dict[str, Node]:
    """Every node of the tree of these devices; paths begin with a slash. `fs/cgroup` is a link, if that is given."""
    nodes = {"/": Node(stat.S_IFDIR | 0o755)}
    for device in devices:
        _add(nodes, list_function(device), None, "")
        _add(nodes, list_device(device), device.name, f"{device.counters_path}/")
    if cgroup:
        _put(nodes, "/fs/cgroup", Node(stat.S_IFLNK | 0o777, target=cgroup))
    return nodes


def _add(nodes: dict[str, Node], listing: Listing, device: str | None, counters: str) -> None:
    for path, text in listing.files.items():
        name = path.rpartition("/")[2] if counters and path.startswith(counters) else ""
        _put(nodes, f"/{path}", Node(stat.S_IFREG | 0o444, device, text=text, counter=name))
    for path, target in listing.links.items():
        _put(nodes, f"/{path}", Node(stat.S_IFLNK | 0o777, device, target=target))


def _put(nodes: dict[str, Node], path: str, node: Node) -> None:
    if path in nodes:
        return
    nodes[path] = node
    while path != "/":
        parent, _, name = path.rpartition("/")
        parent = parent or "/"
        known = parent in nodes
        # class directories belong to no device: the first device to bring them does not take them away
        shared = node.device is None or parent.startswith("/class") or parent.count("/") == 1
        holder = nodes.setdefault(parent, Node(stat.S_IFDIR | 0o755, None if shared else node.device))
        holder.children.append(name)
        if known:
            return
        path = parent
