"""How far a PCI function is from another, in the words of `nvidia-smi topo -m`. It must not read any file.

| word | the way between the two |
|---|---|
| PIX | at most one PCIe bridge: two ports of one switch, or functions of one card |
| PXB | several PCIe bridges, but no host bridge |
| PHB | through a PCIe host bridge |
| NODE | between host bridges of one NUMA node |
| SYS | between NUMA nodes |

The rule: with a common bridge above both, it is PIX when neither has more than a port between itself and that
bridge, else PXB; below one host bridge without a common bridge it is PHB; below different host bridges the NUMA nodes
decide, and nothing is said where one of them is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PIX, PXB, PHB, NODE, SYS = WORDS = ("PIX", "PXB", "PHB", "NODE", "SYS")
UNKNOWN = ""

# the port that a card is plugged into, and the card
ONE_BRIDGE = 2


def measure(chain: tuple[str, ...], numa_node: int | None, other: tuple[str, ...], other_node: int | None) -> str:
    """The word for the way between two functions, each with its chain from `pcie.find_chain` and its NUMA node."""
    if not chain or not other:
        return UNKNOWN
    if chain[0] != other[0]:
        return _across(numa_node, other_node)
    common = 1
    while common < min(len(chain), len(other)) and chain[common] == other[common]:
        common += 1
    if common == 1:
        return PHB
    return PIX if max(len(chain), len(other)) - common <= ONE_BRIDGE else PXB


def find_nearest(distances: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The addresses that are nearest, in their order, and how near they are; nothing when no distance is known."""
    known = {address: word for address, word in distances.items() if word in WORDS}
    if not known:
        return (), UNKNOWN
    nearest = min(known.values(), key=WORDS.index)
    return tuple(sort_addresses(address for address, word in known.items() if word == nearest)), nearest


def sort_addresses(addresses: Iterable[str]) -> list[str]:
    """PCI addresses in the order of their numbers; domains of more than four digits come last."""
    return sorted(addresses, key=lambda address: (len(address), address))


def _across(numa_node: int | None, other_node: int | None) -> str:
    if numa_node is None or other_node is None:
        return UNKNOWN
    return NODE if numa_node == other_node else SYS
