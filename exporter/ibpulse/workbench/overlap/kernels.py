"""Recognises GPU kernels that communicate, by a table of names with the source of each.

A kernel that is not in the table counts as computation, so a library that is missing makes exposed communication too
small. Kernels whose names look like communication are reported to the user; `--communication` adds patterns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

TABLE = {
    # NVIDIA/nccl src/device/generate.py (ncclKernel_* before 2.19, ncclSymk*, ncclGin* since 2.27); ROCm/rccl
    # src/device/common.h: ncclDevKernel_Generic_4, rcclGenericKernel
    "NCCL": r"(?<![A-Za-z])[nr]ccl(?!_ep)",
    # microsoft/mscclpp apps/nccl/src/{allreduce,allgather,broadcast}.hpp and src/ext/collectives; SGLang
    # sgl-kernel/csrc/allreduce/mscclpp_allreduce.cuh
    "MSCCL++": (
        r"\bmscclpp\w*(::|_)|\bexecutionKernel\b|\ballreduce_LL_[12]node"
        r"|\ballreduce(\d|AllPairs|AllToAll|Nvls|Packet|Fullmesh|RsAg)\w*|\ballgather(\d|Fullmesh|Nvls)\w*|\bbroadcast6\b"
        r"|\balltoallv(Hybrid|PeerParallel)\w*Kernel"
    ),
    # ROCm/rccl src/device/msccl_kernel_impl.h
    "MSCCL": r"\bmsccl(Kernel|_|::)",
    # deepseek-ai/DeepEP csrc/kernels/{intranode,internode,internode_ll}.cu and deep_ep/include/deep_ep/impls; forks of
    # it in uccl, NIXL and NCCL
    "DeepEP": (
        r"\b(deep_ep|uccl|nixl_ep|nccl_ep)::(\w+::)*(?!get_dispatch_layout)\w*(dispatch|combine|notify|barrier"
        r"|all_gather|all_reduce|reduce_scatter|send_recv)\w*"
    ),
    # deepseek-ai/DeepEP csrc/hybrid_ep/backend/hybrid_ep_backend.cuh
    "HybridEP": r"\bhybrid_ep::(dispatch|combine|device_sync)_kernel",
    # ROCm/mori src/ops/kernels (names with and without the namespace), include/mori/collective
    "mori": r"\bmori(::|_)(\w+::)*(?!Convert)\w|\bEp(Dispatch|Combine)[A-Z]\w*|\b\w+Sdma\w*Kernel",
    # NVIDIA/nvshmem src/host/stream; device code inlined in other kernels cannot be recognised
    "NVSHMEM": r"\bnvshmem|\b(barrier|sync|sync_all|barrier_all)_on_stream_kernel",
    # ROCm/rocSHMEM src: rocshmem_barrier_all_kernel and others
    "rocSHMEM": r"\brocshmem",
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem: CUDASymmetricMemory{,Ops}.cu, intra_node_comm.cu,
    # nvshmem_extension.cu
    "PyTorch symmetric memory": (
        r"\b(multimem_)?(one|two)_shot_all_reduce_kernel|\bmultimem_\w+_kernel|\bhybridCubeMeshAllReduceKernel"
        r"|\bexchangeSplitAndOffset|\ballToAllV(_2d)?\b|\bc10d::(\w+::)*(barrier|put_signal|wait_signal)_kernel"
    ),
    # NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu; also in
    # TensorRT-LLM
    "Transformer Engine userbuffers": r"\bk?userbuffers_",
    # vllm-project/vllm csrc/quickreduce; also in SGLang and aiter
    "quick all-reduce": r"\bquickreduce::|\ballreduce_prototype_(one|two)shot",
    # vllm-project/vllm csrc/custom_all_reduce.cuh; SGLang; ROCm/aiter csrc/include/custom_all_reduce.cuh
    "custom all-reduce": (
        r"\bcross_device_reduce_|\breduce_scatter_cross_device_store|\ballgather_(naive|vec|lastdim)\b"
        r"|\ballreduce_fusion_kernel_[12]stage"
    ),
    # NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels: customAllReduceKernels.cu, communicationKernels; FlashInfer
    # include/flashinfer/comm; SGLang
    "TensorRT-LLM": (
        r"\bmoeA2A(Prepare)?(Dispatch|Combine)Kernel|\bmoeAllToAllKernel|\bmoe_?(reduce|finalize)_?all_?reduce\w*"
        r"|\ballreduce_fusion_kernel|\blowPrecision(One|Two)Shot\w*|(?i:(one|two)_?shot\w*all_?reduce"
        r"|all_?reduce\w*(one|two)_?shot)"
    ),
    # perplexityai/pplx-kernels, pplx-garden
    "pplx": r"\ba2a_(dispatch|combine)_(send|recv)|\bpplx\w*::",
}
"""Known communication kernels by library, each with its source. The first pattern that matches names the library."""

ADDED = "added pattern"
MAX_NAMES, MAX_NAME_LENGTH = 10_000, 2000
"""Names that are remembered, and characters of a name that count; further ones are template arguments."""
_RESEMBLES = re.compile(
    r"(?i:all_?reduce|all_?gather|reduce_?scatter|all_?(to|2)_?all|send_?recv|recv_?send|cross_?device|multimem|nvls"
    r"|lamport|rdma|ibgda|shmem|symm_?mem|put_?mem|(one|two)_?shot|ring_?exchange|collective_(permute|broadcast)"
    r"|(put|wait)_?signal|barrier_?all)|(?<![A-Za-z])(a2a|p2p|send|recv|hcom|ucc|gloo|[a-z]{0,3}ccl)(?![a-z])"
    r"|A2A|(Send|Recv)(?![a-z])|[nrmhxu]ccl|(?i:(?<![a-z])(ep|moe)[\w:]*(dispatch|combine)|(dispatch|combine)\w*node)"
)
_LOCAL = re.compile(r"(?i:(warp|block)_?all_?reduce|flash|attn|fmha|attention|split_?k|layout)|Convert")
_MANGLED = re.compile(r"_ZN?[KVr]*L?(?=[0-9])")
_TEMPLATE = re.compile(r"<[^<>]*>")


def function_name(kernel: str) -> str:
    """The function of a kernel with its namespaces, without arguments. The name may be mangled (Itanium C++ ABI)."""
    mangled = _MANGLED.match(kernel)
    if mangled:
        words, at = [], mangled.end()
        while size := re.match(r"L?([0-9]{1,4})", kernel[at:]):
            at += size.end()
            words.append(kernel[at : at + int(size[1])])
            at += int(size[1])
        return "::".join(words)
    found = kernel.replace("(anonymous namespace)::", "")
    changed = 1
    while changed:
        found, changed = _TEMPLATE.subn("", found)
    return found.split("(")[0].split("<")[0].removeprefix("void ").strip()


class CommunicationNames:
    """Recognises communication kernels by the table and by patterns of the user."""

    def __init__(self, added: Sequence[str] = ()) -> None:
        self._table = [(re.compile(pattern), library) for library, pattern in TABLE.items()]
        self._added = [re.compile(pattern) for pattern in added]
        self._found = lru_cache(MAX_NAMES)(self._examine)

    def library_of(self, name: str) -> str:
        """The library of a communication kernel; empty for every other kernel."""
        return self._found(name[:MAX_NAME_LENGTH])[0]

    def resembling(self, name: str) -> str:
        """The function of a kernel that is not known to communicate, but whose name looks like it; otherwise empty."""
        return self._found(name[:MAX_NAME_LENGTH])[1]

    def _examine(self, name: str) -> tuple[str, str]:
        function = function_name(name)
        library = next((library for pattern, library in self._table if pattern.search(function)), "")
        if not library and any(pattern.search(name) for pattern in self._added):
            library = ADDED
        resembles = not library and _RESEMBLES.search(function) and not _LOCAL.search(function)
        return library, function[:80] if resembles else ""
