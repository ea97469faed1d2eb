"""Factors: their facts, the calls to which they apply, and that results stay equal or are said to
differ.
"""

import os
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from curvescope.experiments.factors import FACTORS, gpu_libraries, names_of, term_change
from curvescope.experiments.replay.rebuild import rebuild
from curvescope.experiments.replay.recorded_call import CannotReplay, RecordedCall, families
from curvescope.experiments.replay.results import difference, try_call
from curvescope.experiments.replay.runnable import Runnable
from curvescope.profiling.hardware import heap
from curvescope.profiling.recording.operand_numbers import CallNumbers, Numbers
from curvescope.profiling.recording.operators import TensorArgument, TensorList, Value

from ..tables import ask_each

torch = pytest.importorskip("torch")

BATCHES = (3, 4)  # no multiples of 8, and one that is not even


def tensor(*shape, dtype="float"):
    return TensorArgument(shape, dtype)


def family(op, arguments):
    (found,) = families([RecordedCall(op, arguments(batch), batch=batch) for batch in BATCHES])
    return found


_GEOMETRY = (Value((1, 1)), Value((1, 1)), Value((1, 1)), Value(False), Value((0, 0)), Value(1))
LINEAR = family("aten::linear", lambda b: (tensor(b, 8), tensor(16, 8), tensor(16)))
MM = family("aten::mm", lambda b: (tensor(b, 16), tensor(16, 8)))
MM_OF_BATCH = family(
    "aten::mm", lambda b: (TensorArgument((16, b), "float", (1, 16)), tensor(b, 8))
)
ADDMM = family(
    "aten::addmm", lambda b: (tensor(16), tensor(b, 8), tensor(8, 16), Value(1), Value(1))
)
CONV = family(
    "aten::convolution", lambda b: (tensor(b, 3, 8, 8), tensor(4, 3, 3, 3), tensor(4), *_GEOMETRY)
)
CONV_BACKWARD = family(
    "aten::convolution_backward",
    lambda b: (
        *(tensor(b, 4, 8, 8), tensor(b, 3, 8, 8), tensor(4, 3, 3, 3), Value((4,))),
        *(*_GEOMETRY, Value((True, True, True))),
    ),
)
BATCH_NORM = family(
    "aten::native_batch_norm",
    lambda b: (
        *(tensor(b, 4, 8, 8), tensor(4), tensor(4), tensor(4), tensor(4)),
        *(Value(True), Value(0.1), Value(1e-5)),
    ),
)
POOL = family("aten::max_pool2d", lambda b: (tensor(b, 3, 8, 8), Value((2, 2)), Value((2, 2))))
RELU = family("aten::relu", lambda b: (tensor(b, 8),))
RELU_IN_PLACE = family("aten::relu_", lambda b: (tensor(b, 8),))
DROPOUT = family("aten::native_dropout", lambda b: (tensor(b, 64), Value(0.5), Value(True)))
OPTIMIZER = family(
    "aten::_foreach_add_",
    lambda _: (TensorList((tensor(4, 4),)), TensorList((tensor(4, 4),)), Value(1)),
)
FULL = family("aten::ones", lambda b: (Value((b, 8)),))
CALLS = (
    "LINEAR MM MM_OF_BATCH ADDMM CONV CONV_BACKWARD BATCH_NORM POOL RELU RELU_IN_PLACE DROPOUT "
    "OPTIMIZER FULL"
)


def changed(name, call, batch=4, batches=BATCHES):
    """A call with a factor changed."""
    return term_change(name).call(Runnable.of(call, rebuild(call.at(batch))), batches)


_ANY = "one_thread reused_memory warm_caches cold_caches filled_wave"
_BATCH = f"split_batch padded_batch {_ANY}"
_BLAS = "cublaslt cublaslt_list small_workspace"
_CUDA = "warm_caches cold_caches deterministic filled_wave"


@pytest.mark.parametrize(
    ("device", "call", "applicable"),
    [
        ("cpu", LINEAR, f"onednn other_layout {_BATCH}"),
        ("cpu", MM, f"onednn other_layout {_BATCH}"),
        ("cpu", MM_OF_BATCH, f"onednn {_BATCH}"),
        ("cpu", CONV, f"no_onednn no_nnpack channels_last {_BATCH}"),
        ("cpu", RELU, _BATCH),
        ("cpu", OPTIMIZER, _ANY),
        ("cpu", FULL, "one_thread reused_memory filled_wave"),
        ("cuda", LINEAR, f"{_BLAS} other_layout split_batch padded_batch {_CUDA}"),
        ("cuda", CONV, f"no_cudnn cudnn_benchmark channels_last split_batch padded_batch {_CUDA}"),
        ("cuda", BATCH_NORM, f"no_cudnn channels_last split_batch padded_batch {_CUDA}"),
    ],
)
def test_the_factors_that_apply_to_an_operator(device, call, applicable, monkeypatch):
    monkeypatch.setattr(heap, "can_change", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    # A torch before 2.14, or without CUDA, has no list.
    monkeypatch.setattr(gpu_libraries, "why_no_list", lambda: None)
    monkeypatch.setattr(torch.cuda, "tunable", SimpleNamespace(is_enabled=lambda: False))
    of_calls = [name for name in names_of("term") if term_change(name).piece is None]
    fitting = {name for name in of_calls if FACTORS[name].refusal(device) is None}
    assert {name for name in fitting if term_change(name).reason_against(call) is None} == set(
        applicable.split()
    )


def test_recorded_kernels_decide_whether_a_call_runs_through_onednn():
    def with_kernels(plain, *kernels):
        return replace(
            plain, calls={b: replace(call, kernels=kernels) for b, call in plain.calls.items()}
        )

    reason = term_change("no_onednn").reason_against
    assert reason(with_kernels(RELU, "eltwise.forward jit:avx2", "aten::relu")) is None
    assert reason(with_kernels(CONV, "aten::_slow_conv2d_forward", "mkl SGEMM(N,N)")) is not None
    through = with_kernels(LINEAR, "inner_product.forward_inference brgemm:avx2")
    assert term_change("onednn").reason_against(through) == "it runs through oneDNN already"


@pytest.mark.slow
@ask_each("call", CALLS.split())
def test_results_with_a_factor_are_equal_or_said_to_differ(call):
    family, differing = globals()[call], set()
    for name, batch in product(names_of("term"), BATCHES):
        change = term_change(name)
        if FACTORS[name].refusal("cpu") or change.reason_against(family) is not None:
            continue
        plain = Runnable.of(family, rebuild(family.at(batch)))
        with torch.no_grad():
            changed = plain if change.call is None else change.call(plain, BATCHES)
            expected = try_call(plain, "cpu")
            with change.around():
                found = try_call(changed, "cpu")
        if difference(expected, found, tf32=False) is not None:
            differing.add(name)
    # The statistics of a batch normalisation are those of the batch that runs.
    assert differing == ({"split_batch", "padded_batch"} if call == "BATCH_NORM" else set())


def test_a_result_that_differs_beyond_rounding_is_said():
    plain = Runnable.of(LINEAR, rebuild(LINEAR.at(4)))
    expected = try_call(plain, "cpu")
    wrong = replace(plain, run=lambda: plain.run() * 1.0001)
    assert difference(expected, try_call(plain, "cpu"), tf32=False) is None
    assert "of its root mean square" in str(
        difference(expected, try_call(wrong, "cpu"), tf32=False)
    )
    assert difference(expected, try_call(wrong, "cpu"), tf32=True) is None


def test_infinite_results_are_equal_only_to_infinite_ones():
    root = family("aten::sqrt", lambda b: (tensor(b, 8),))
    plain = Runnable.of(root, rebuild(root.at(4)))
    plain.arguments[0].view(-1)[:2] = torch.tensor([-1.0, float("inf")])
    expected = try_call(plain, "cpu")
    assert difference(expected, try_call(plain, "cpu"), tf32=False) is None
    finite = replace(plain, run=lambda: plain.run().nan_to_num(0.0, 0.0, 0.0))
    assert (
        difference(expected, try_call(finite, "cpu"), tf32=False)
        == "other results are infinite or no numbers"
    )


def test_trying_a_call_leaves_its_operands_and_the_random_numbers_as_they_were():
    plain = Runnable.of(OPTIMIZER, rebuild(OPTIMIZER.at(4)))
    before = plain.arguments[0][0].clone()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    tried = try_call(plain, "cpu")
    assert torch.equal(tried.results[0], before + plain.arguments[1][0])
    assert torch.equal(plain.arguments[0][0], before)
    assert torch.equal(torch.rand(1), expected)


@ask_each(
    ("batches", "padded"),
    [((1, 2, 4, 8), [8, 8, 8, 8]), ((8, 16, 24), [16, 16, 32]), ((16, 48), [32, 64])],
)
def test_a_batch_is_padded_to_the_smallest_multiple_that_not_all_batch_sizes_are(batches, padded):
    found = [changed("padded_batch", RELU, batch, batches).arguments[0] for batch in batches]
    assert [len(one) for one in found] == padded


def test_a_view_that_leaves_out_a_part_of_its_memory_is_padded_too():
    # every other half of each row, e.g. one of several projections that one product makes
    view = family("aten::relu", lambda batch: (TensorArgument((batch, 4), "float", (8, 1)),))
    (padded,) = changed("padded_batch", view, 2).arguments
    assert (tuple(padded.shape), padded.stride()) == ((8, 4), (8, 1))


def test_batch_sizes_that_are_multiples_of_32_are_not_padded():
    with pytest.raises(CannotReplay, match="every size is a multiple of 32"):
        changed("padded_batch", RELU, 32, (32, 64))


def test_the_weights_are_stored_in_the_other_order():
    assert changed("other_layout", LINEAR).arguments[1].stride() == (1, 16)


def test_images_and_filters_are_stored_channels_last():
    image, filters, bias = changed("channels_last", CONV).arguments[:3]
    assert image.stride() == (192, 1, 24, 3)
    assert filters.stride() == (27, 1, 9, 3)
    assert bias.stride() == (1,)


def _torch_state():
    return {
        "threads": torch.get_num_threads(),
        "onednn": torch.backends.mkldnn.enabled,
        "nnpack": torch._C._get_nnpack_enabled(),
        "cudnn": torch.backends.cudnn.enabled,
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,
        "cublas": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "blas": torch.backends.cuda.preferred_blas_library(),
    }


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("one_thread", {"threads": 1}),
        ("no_onednn", {"onednn": False}),
        ("no_nnpack", {"nnpack": False}),
        ("no_cudnn", {"cudnn": False}),
        ("cudnn_benchmark", {"benchmark": True}),
        ("deterministic", {"deterministic": True, "fill": False, "cublas": ":4096:8"}),
        ("small_workspace", {"cublas": ":16:8"}),
        ("cublaslt", {"blas": "cublaslt"}),
    ],
)
def test_settings_hold_inside_the_context_and_are_restored(name, inside, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    cleared: list[str | None] = []
    blas = ["cublas"]

    def preferred(wanted=None):
        blas[0] = wanted or blas[0]
        return blas[0]

    monkeypatch.setattr(
        torch._C,
        "_cuda_clearCublasWorkspaces",
        lambda: cleared.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG")),
        raising=False,
    )
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", preferred)
    before = _torch_state()
    found: dict[str, Any] = {}

    def fail():
        found.update(_torch_state())
        raise RuntimeError("the library fails")

    with pytest.raises(RuntimeError, match="the library fails"), term_change(name).around():
        fail()
    assert found == before | inside
    assert _torch_state() == before
    # The library takes the size of its work space when it makes one: anew inside, and anew after
    # it.
    assert cleared == ([":16:8", ":16:8"] if name == "small_workspace" else [])


def test_cublaslts_list_is_timed_inside_the_context_only(monkeypatch, tmp_path):
    """What PyTorch found would else go to a file of the working directory."""
    state = {"enable": False, "tuning_enable": False}
    tunable = SimpleNamespace(
        is_enabled=lambda: state["enable"], tuning_is_enabled=lambda: state["tuning_enable"]
    )
    for name in ("enable", "tuning_enable", "set_filename", "set_cublaslt_requested_algo_count"):
        setattr(tunable, name, partial(state.__setitem__, name))
    monkeypatch.setattr(torch.cuda, "tunable", tunable)
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", lambda *_: "cublas")
    change = term_change("cublaslt_list")
    assert change.reason_against(LINEAR) is None
    assert change.reason_against(RELU) == "it is no matrix product"
    with change.around():
        inside = dict(state)
        assert change.reason_against(LINEAR) == "PyTorch times the library's algorithms already"
    assert inside == {
        "enable": True,
        "tuning_enable": True,
        "set_filename": os.devnull,
        "set_cublaslt_requested_algo_count": 16,
    }
    assert (state["enable"], state["tuning_enable"]) == (False, False)
    monkeypatch.setattr(torch.cuda, "tunable", SimpleNamespace())
    assert change.reason_against(LINEAR).endswith("torch 2.14 does")


class _FakeFunction:
    """A C function with a type of its result."""

    restype: Any = None

    def __init__(self, run):
        self.run = run

    def __call__(self, *arguments):
        return self.run(*arguments)


class _FakeGlibc:
    """Records the calls that change the heap; it has one free block, at address 1, and maps every
    further one.
    """

    def __init__(self):
        self.calls: list[tuple[int, ...]] = []
        self.free_blocks, self.mapped, self.freed = [1], 0, list[int | None]()
        self.malloc = _FakeFunction(self._malloc)
        self.mallinfo2 = _FakeFunction(lambda: SimpleNamespace(hblks=self.mapped))

    def _malloc(self, _):
        if self.free_blocks:
            return self.free_blocks.pop()
        self.mapped += 1
        return 2

    def free(self, address):
        self.freed.append(address.value)

    def gnu_get_libc_version(self):
        return b"2.39"

    def mallopt(self, name, value):
        self.calls.append((name, value))
        return 1

    def malloc_trim(self, pad):
        self.calls.append((pad,))
        return 1


def test_freed_memory_is_kept_inside_and_given_back_after(monkeypatch):
    library = _FakeGlibc()
    monkeypatch.setattr(heap, "_library", lambda: library)
    # what real runs of other tests have taken stays theirs
    monkeypatch.setattr(heap, "_occupied", [])
    monkeypatch.setattr(heap, "_threshold_bytes", 32 << 20)
    heap.hold_thresholds([1 << 20, 5 << 20, 151 << 20])
    with term_change("reused_memory").around():
        library.calls.append(())
    mmap_threshold, trim_threshold, mmap_max = -3, -1, -4
    assert library.calls == [
        (mmap_threshold, 5 << 20),
        (trim_threshold, 10 << 20),
        *((mmap_max, 0), (trim_threshold, -1)),
        (),
        *((mmap_max, 65_536), (trim_threshold, 10 << 20), (0,)),
    ]
    # The free block is taken, so that runs after it get new mappings, until memory is kept once
    # more.
    assert library.freed == [2]
    library.free_blocks = []
    with term_change("reused_memory").around():
        assert library.freed == [2, 1]


def test_a_heap_whose_thresholds_are_set_from_outside_is_left_alone(monkeypatch):
    monkeypatch.setattr(heap, "_library", _FakeGlibc)
    for name in heap.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert heap.can_change()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    assert not heap.can_change()


def exponentials(**numbers):
    order = Numbers(8, "float", order=(-90.0,), **numbers)
    calls = [
        RecordedCall(
            "aten::exp",
            (tensor(b, 8),),
            batch=b,
            numbers=CallNumbers({0: order}, denormal_results=1.0),
        )
        for b in BATCHES
    ]
    return families(calls)[0]


def test_usual_numbers_take_the_place_of_recorded_ones():
    found = exponentials()
    plain = Runnable.of(found, rebuild(found.at(4)))
    usual = term_change("usual_values").call(plain, BATCHES)
    assert float(plain.run().max()) < 1e-38
    assert float(usual.run().min()) > 1e-6
    against = term_change("usual_values").reason_against
    assert against(found) is None
    assert against(RELU) == "the numbers of its operands are not recorded"


def test_denormal_numbers_are_flushed_on_one_thread_only(monkeypatch):
    found, change = exponentials(), term_change("flush_denormal")
    runnable = Runnable.of(found, rebuild(found.at(4)))
    with change.around():
        assert float(runnable.run().max()) == 0
    assert float(runnable.run().max()) > 0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert change.reason_against(found) is None
    assert "denormal" in change.reason_against(RELU)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert change.reason_against(found).startswith("2 threads run")


def copying(found):
    """The family with a copy among its kernels."""
    return replace(
        found,
        calls={
            b: replace(call, kernels=("gemm", "aten::copy_")) for b, call in found.calls.items()
        },
    )


SHARED = copying(
    family("aten::bmm", lambda b: (tensor(b, 4, 8), TensorArgument((b, 8, 6), "float", (0, 6, 1))))
)


def test_a_shared_matrix_is_multiplied_once_with_all_rows():
    change = term_change("stored_operands")
    assert change.reason_against(SHARED) is None
    plain = Runnable.of(SHARED, rebuild(SHARED.at(4)))
    stored = change.call(plain, BATCHES)
    assert stored.run.func.__name__ == "_product_of_rows"
    assert difference(try_call(plain, "cpu"), try_call(stored, "cpu"), tf32=False) is None


def test_operands_are_stored_where_a_copy_was_recorded():
    strided = family(
        "aten::bmm", lambda b: (TensorArgument((b, 4, 8), "float", (32, 1, 4)), tensor(b, 8, 6))
    )
    change = term_change("stored_operands")
    assert changed("stored_operands", strided).arguments[0].is_contiguous()
    assert change.reason_against(copying(strided)) is None
    assert change.reason_against(strided) == "no copy of its operands is recorded"
    assert change.reason_against(LINEAR) == "its operands are contiguous already"
