"""Communication kernels by name, and sets of intervals against sets of instants."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ibpulse.workbench.overlap.intervals import EMPTY, IntervalSet, union
from ibpulse.workbench.overlap.kernels import ADDED, TABLE, CommunicationNames
from tests.tables import for_each

NAMES = {
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "NCCL",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "NCCL",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "NCCL",
    "ncclDevKernelDebug_Generic(ncclDevComm*, channelMasks, ncclWork*)": "NCCL",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)": "NCCL",
    "ncclDevKernelGinResetSignals": "NCCL",
    "void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": "NCCL",
    "_Z23ncclDevKernel_Generic_424ncclDevKernelArgsStorageILm4096EE.kd": "NCCL",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "MSCCL",
    "void mscclpp::collective::allreduceNvls<__half>(void*)": "MSCCL++",
    "void executionKernel<__half, mscclpp::LL16Packet>(int, __half*)": "MSCCL++",
    "void allreduce7<__half>(__half*, __half*, __half*)": "MSCCL++",
    "void allgather6<false>(void*, int)": "MSCCL++",
    "alltoallvPeerParallelKernel": "MSCCL++",
    "void allreduce_LL_2node<float>(float*)": "MSCCL++",
    "void deep_ep::internode::dispatch<false, 4, false, 7, 4>(int4*, float*)": "DeepEP",
    "void deep_ep::internode_ll::combine<7168>(void*)": "DeepEP",
    "void deep_ep::ep::hybrid_dispatch_impl<true>(void*)": "DeepEP",
    "_ZN7deep_ep9internode8dispatchILb0ELi4EEEvP4int4": "DeepEP",
    "void uccl::internode::dispatch<true>(void*)": "DeepEP",
    "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*, int*)": "",
    "void hybrid_ep::combine_kernel<int>(hybrid_ep::combine_kernel_param_t)": "HybridEP",
    "void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>(mori::moe::EpDispatchCombineArgs)": "mori",
    "_ZN4mori3moe25EpDispatchIntraNodeKernelI14__hip_bfloat16EEvNS0_21EpDispatchCombineArgsIT_EE": "mori",
    "EpCombineIntraNodeKernel_bf16_nop2p_fp8_blockwise": "mori",
    "mori_shmem_barrier_all_block": "mori",
    "void mori::collective::OneShotAll2allSdmaKernel<float>(int)": "mori",
    "mori_ConvertDispatchOutputKernel": "",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": "NVSHMEM",
    "nvshmemi_alltoall_on_stream_kernel": "NVSHMEM",
    "rocshmem_barrier_all_kernel()": "rocSHMEM",
    "void rocshmem::rocshmem_quiet_kernel()": "rocSHMEM",
    "void c10d::one_shot_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16**)": "PyTorch symmetric memory",
    "void c10d::multimem_one_shot_all_reduce_kernel<float, 16>(float*)": "PyTorch symmetric memory",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>(int)": "PyTorch symmetric memory",
    "void c10d::symmetric_memory::allToAllV_2d<true>(void*)": "PyTorch symmetric memory",
    "c10d::symmetric_memory::exchangeSplitAndOffset(long*, int)": "PyTorch symmetric memory",
    "kuserbuffers_pushrecv(int, int, int*, int*, int)": "Transformer Engine userbuffers",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int)": "Transformer Engine userbuffers",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "custom all-reduce",
    "void aiter::cross_device_reduce_2stage_naive<__half, 8>(aiter::RankData*)": "custom all-reduce",
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsEjiii": "custom all-reduce",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>(int)": (
        "quick all-reduce"
    ),
    "void (anonymous namespace)::all_reduce_one_shot_push_kernel<float, 8u, true>(Data, Push)": "TensorRT-LLM",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)": "TensorRT-LLM",
    "void tensorrt_llm::kernels::ar_fusion::moe::moereduce_allreduce_fusion_kernel_oneshot_lamport<float>(int)": (
        "TensorRT-LLM"
    ),
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 8, true, true>(int)": "TensorRT-LLM",
    "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<int>(int)": "TensorRT-LLM",
    "void a2a_dispatch_send_kernel<int>(int)": "pplx",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt": "",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(float)": "",
    # the argument alone makes no communication kernel
    "void cutlass::Kernel<cutlass::gemm::collective::CollectiveMma<ncclDevKernel>>(int)": "",
}
RESEMBLING = (
    "void my_all_to_all_kernel(int)",
    "void libfoo::RingExchange<float>(int)",
    "hcom_allReduce__123",
    "oneccl_allgather",
    "void moe::dispatch_tokens<float>(float*)",
    "_ZN3foo13reduceScatterIfEEvPf",
)
NOT_RESEMBLING = (
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits>(int)",
    "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(int)",
    "void cub::DeviceReduceKernel<cub::DispatchReduce<int>>(int)",
    "void blockAllReduceSum<float>(float*)",
    "triton_poi_fused_broadcast_add_3",
    "moe_align_block_size_kernel",
    "void softmax_warp_forward<float>(float*)",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32",
    "<" * 100_000,
)


@for_each(list(NAMES.items()))
def test_kernels_that_communicate_are_known_by_name(name: str, library: str) -> None:
    assert CommunicationNames().library_of(name) == library


@for_each([(name, True) for name in RESEMBLING] + [(name, False) for name in (*NOT_RESEMBLING, *NAMES)])
def test_kernels_resembling_communication_are_reported(name: str, told: bool) -> None:
    assert bool(CommunicationNames().resembling(name)) == told


def test_every_library_has_an_example_and_added_patterns_match_the_whole_name() -> None:
    names = CommunicationNames(("collective::CollectiveMma",))
    assert names.library_of("void cutlass::Kernel<collective::CollectiveMma<int>>(int)") == ADDED
    assert set(TABLE) == {library for library in NAMES.values() if library}


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=12)
Spans = list[tuple[int, int]]


def as_set(given_spans: Spans) -> IntervalSet:
    starts = np.array([start for start, _ in given_spans], dtype=np.int64)
    return union(starts, starts + np.array([length for _, length in given_spans], dtype=np.int64))


def instants(given_spans: Spans) -> set[int]:
    return {instant for start, length in given_spans for instant in range(start, start + length)}


def members(found: IntervalSet) -> set[int]:
    assert (found.ends > found.starts).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    return {instant for start, end in zip(found.starts, found.ends, strict=True) for instant in range(start, end)}


@settings(max_examples=50)
@given(spans, spans)
def test_sets_of_intervals_are_sets_of_instants(one: Spans, other: Spans) -> None:
    a, b, first, second = as_set(one), as_set(other), instants(one), instants(other)
    assert members(a) == first
    assert a.total_ns == len(first)
    assert members(a & b) == first & second
    assert members(a - b) == first - second
    assert members(a | b) == first | second
    assert members(a.shift(7)) == {instant + 7 for instant in first}


@settings(max_examples=50)
@given(spans, st.integers(-5, 80), st.integers(0, 40))
def test_length_within_a_window_counts_its_instants(one: Spans, begin: int, lasts: int) -> None:
    window = range(begin, begin + lasts)
    assert as_set(one).lengths_ns(np.array([begin]), np.array([begin + lasts]))[0] == len(instants(one) & set(window))


def test_empty_sets_and_large_times_are_exact() -> None:
    assert (
        (EMPTY & EMPTY).total_ns == (EMPTY - EMPTY).total_ns == EMPTY.lengths_ns(np.array([0]), np.array([10]))[0] == 0
    )
    now = 1_763_683_200 * 10**9 + 1
    late = union(np.array([now, now + 10]), np.array([now + 3, now + 11]))
    assert late.lengths_ns(np.array([now + 2]), np.array([now + 11]))[0] == 2
    assert (late - EMPTY).total_ns == (late | EMPTY).total_ns == 4
