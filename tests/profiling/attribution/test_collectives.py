"""Messages and algorithms of collectives."""

from curvescope.profiling.attribution.collectives import (
    algorithm,
    collective_of_kernel,
    collective_of_torch,
    message_bytes,
)

from ...tables import ask_each


@ask_each(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "tree"),
        # NCCL from 2.19 on launches this kernel for other algorithms, too.
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "ring"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "ring"),
        ("ncclKernel_AllReduce_COLLNET_DIRECT_SIMPLE_Sum_half", "CollNet"),
        ("ncclDevKernel_AllReduce_Sum_bf16_NVLS_TREE_SIMPLE", "NVLS tree"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", None),
    ],
)
def test_algorithms_that_names_of_kernels_tell(name, expected):
    assert algorithm(name) == expected


def test_collectives_by_torchs_names():
    names = {
        "_allgather_base": "AllGather",
        "allreduce_coalesced": "AllReduce",
        "all_to_allv": "AlltoAll",
    }
    names |= {
        "reduce_scatter_tensor_coalesced": "ReduceScatter",
        "send": "SendRecv",
        "barrier": None,
    }
    assert {name: collective_of_torch(name) for name in names} == names


def test_kernels_of_other_libraries_are_known_by_what_they_do():
    names = (
        "multimem_all_reduce_kernel<bf16>",
        "ncclDevKernel_SendRecv(x)",
        "ncclDevKernel_Generic_1(x)",
    )
    assert [collective_of_kernel(name) for name in names] == ["AllReduce", "SendRecv", None]


@ask_each(
    ("elements", "dtype", "expected"),
    [
        ((10, 80), "BFloat16", 160),
        ((80, None), "Float", 320),
        ((80, 10), "Float8_e4m3fn", 80),
        ((None, None), "Float", None),
        ((1, 1), "Strange", None),
        ((1 << 62, 1), "Float", None),
        ((-1, -1), "Int", None),
    ],
)
def test_a_message_is_the_larger_of_input_and_output(elements, dtype, expected):
    assert message_bytes(*elements, dtype) == expected
