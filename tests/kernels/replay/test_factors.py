"""Factors: their facts, and the calls to which they apply."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from curvescope.kernels.replay import factors
from curvescope.profiling.errors import CurvescopeError
from curvescope.profiling.recording.operators import Argument, TensorArgument, Value


@dataclass(frozen=True)
class _Call:
    op: str
    arguments: tuple[Argument, ...]


_LINEAR = _Call("aten::linear", (TensorArgument((4, 8), "float"), TensorArgument((16, 8), "float"), None))
_CONV = _Call("aten::conv2d", (TensorArgument((4, 3, 8, 8), "float"), TensorArgument((8, 3, 3, 3), "float"), None))
_RELU = _Call("aten::relu", (TensorArgument((4, 8), "float"),))
_FULL = _Call("aten::full", (Value((4, 8)), Value(0)))


@pytest.mark.parametrize("name", factors.NAMES)
def test_every_factor_says_what_it_changes_and_how_a_user_sets_it(name: str) -> None:
    facts = factors.factor(name).FACTS
    assert facts.name == name
    assert facts.what
    assert (facts.remedy is None) == (facts.how is None) == (name in {"cold_caches", "warm_caches"})
    assert facts.remedy is None or "{where}" in facts.remedy


def test_an_unknown_factor_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(CurvescopeError, match="choose from onednn"):
        factors.factor("magic")


@pytest.mark.parametrize(
    ("device", "call", "applicable"),
    [
        ("cpu", _LINEAR, "onednn other_layout split_batch padded_batch one_thread reused_memory warm cold"),
        ("cpu", _CONV, "no_onednn channels_last split_batch padded_batch one_thread reused_memory warm cold"),
        ("cpu", _RELU, "split_batch padded_batch one_thread reused_memory warm cold"),
        ("cpu", _FULL, "one_thread reused_memory"),
        ("cuda", _LINEAR, "cublaslt other_layout split_batch padded_batch warm cold deterministic small_workspace"),
        ("cuda", _CONV, "no_cudnn cudnn_benchmark channels_last split_batch padded_batch warm cold deterministic"),
    ],
)
def test_the_factors_that_apply_to_an_operator(device: str, call: _Call, applicable: str) -> None:
    expected = set(applicable.replace("warm", "warm_caches").replace("cold", "cold_caches").split())
    assert {name for name in factors.NAMES if factors.factor(name).reason_against(call, device) is None} == expected
