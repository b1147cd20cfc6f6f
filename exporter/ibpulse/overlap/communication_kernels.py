"""Which GPU kernels communicate: a table of names, with the source of each.

A kernel that is not in the table counts as computation, so a library that is missing makes exposed communication too
small. `--communication` adds patterns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class KernelNames:
    """Kernels of one library: a regular expression that is searched in the name, and where the names were read."""

    library: str
    pattern: str
    source: str


TABLE = (
    KernelNames(
        "NCCL",
        r"^nccl(Dev)?Kernel",
        "NVIDIA/nccl src/device/generate.py (ncclKernel_* before 2.19); ROCm/rccl: ncclDevKernel_Generic",
    ),
    KernelNames("NCCL", r"^nccl(Symk?|Gin)DevKernel", "NVIDIA/nccl src/device/symmetric/generate.py: symmetric memory"),
    KernelNames("MSCCL", r"^mscclKernel_", "ROCm/rccl src/device/msccl_kernel_impl.h"),
    KernelNames(
        "DeepEP",
        r"\bdeep_ep::(\w+::)*(?!get_dispatch_layout)\w*(dispatch|combine|notify|barrier|all_gather|all_reduce|reduce_scatter"
        r"|send_recv)\w*",
        "deepseek-ai/DeepEP csrc/kernels/{intranode,internode,internode_ll}.cu and deep_ep/include/deep_ep/impls",
    ),
    KernelNames(
        "HybridEP",
        r"\bhybrid_ep::(dispatch|combine|device_sync)_kernel",
        "deepseek-ai/DeepEP csrc/hybrid_ep/backend/hybrid_ep_backend.cuh",
    ),
    KernelNames(
        "NVSHMEM",
        r"\bnvshmem|\b(barrier|sync|sync_all|barrier_all)_on_stream_kernel",
        "NVIDIA/nvshmem src/host/stream; device code inlined in other kernels cannot be recognised",
    ),
    KernelNames(
        "PyTorch symmetric memory",
        r"\b(multimem_)?(one|two)_shot_all_reduce_kernel|\bmultimem_(all_reduce|all_gather)_kernel",
        "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu",
    ),
    KernelNames(
        "Transformer Engine userbuffers",
        r"\bk?userbuffers_",
        "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu",
    ),
    KernelNames(
        "custom all-reduce",
        r"\bcross_device_reduce_[12]stage",
        "vllm-project/vllm csrc/custom_all_reduce.cuh; also in SGLang and aiter",
    ),
)
"""Known communication kernels. The first pattern that matches names the library."""

ADDED = "added pattern"
MOST_NAMES = 100_000


@dataclass(slots=True)
class CommunicationNames:
    """Tells communication kernels from others by the table and by patterns of the user."""

    added: Sequence[str] = ()
    _patterns: list[tuple[re.Pattern[str], str]] = field(init=False)
    _known: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._patterns = [(re.compile(row.pattern), row.library) for row in TABLE]
        self._patterns += [(re.compile(pattern), ADDED) for pattern in self.added]

    def library_of(self, name: str) -> str:
        """The library of a communication kernel; empty for every other kernel."""
        library = self._known.get(name)
        if library is None:
            library = next((found for pattern, found in self._patterns if pattern.search(name)), "")
            if len(self._known) < MOST_NAMES:
                self._known[name] = library
        return library
