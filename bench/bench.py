"""The parameters of all cases: working folder, measuring time, and size of the node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MILLISECOND_NS = 1_000_000
NS_PER_SECOND = 1_000_000_000
# The budgets are defined for a node with eight ports.
PORTS = 8


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the benchmarks. `folder` is empty and on tmpfs; `quick` trades precision for time."""

    folder: Path
    quick: bool

    def seconds(self, full: float) -> float:
        """Measuring time, given that of a full run."""
        return max(1.0, full / 5) if self.quick else full

    def rounds(self, full: int) -> int:
        """Number of repetitions, given that of a full run."""
        return max(2, full // 3) if self.quick else full

    def new_folder(self, name: str) -> Path:
        """A fresh folder for one daemon, sampler or tree."""
        taken = len(list(self.folder.iterdir()))
        folder = self.folder / f"{taken:02d}-{name}"
        folder.mkdir()
        return folder
