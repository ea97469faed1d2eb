"""cuDNN's algorithms: chosen by timing instead of a heuristic, with little workspace, or none of them."""

from __future__ import annotations

import os

from ...base.torch_runtime import import_torch
from ..factor import Factor, StepChange, TermChange
from ..replay.operator_kinds import is_batch_norm, is_convolution
from ..replay.recorded_call import CallFamily
from ..replay.runnable import setting

_REFUSES = {"cpu": "cuDNN runs on NVIDIA's GPUs"}
# MiB of one convolution; cuDNN reads it when it chooses an algorithm
_WORKSPACE = {"CUDNN_CONV_WSCAP_DBG": "16"}
_TIMING = "torch.backends.cudnn.benchmark = True"


def _reason_against_timing(family: CallFamily) -> str | None:
    if not is_convolution(family.largest):
        return "PyTorch lets cuDNN choose for convolutions only"
    return "cuDNN times its algorithms already" if import_torch().backends.cudnn.benchmark else None


def _reason_against_none(family: CallFamily) -> str | None:
    call = family.largest
    return (
        None
        if is_convolution(call) or is_batch_norm(call)
        else "PyTorch does not run this operator through cuDNN"
    )


BENCHMARK = Factor(
    name="cudnn_benchmark",
    what="cuDNN times its algorithms and takes the fastest",
    remedy="let cuDNN choose the algorithms of {where} by timing",
    refuses=_REFUSES,
    term=TermChange(
        how=_TIMING,
        reason_against=_reason_against_timing,
        around=lambda: setting(import_torch().backends.cudnn, "benchmark", True),
        own_thread=True,  # PyTorch keeps cuDNN's choice by thread, whatever `benchmark` says later
    ),
    # In the steps that are not recorded.
    step=StepChange(
        how=_TIMING,
        screen=3,
        common=14,
        prepare=lambda _: setattr(import_torch().backends.cudnn, "benchmark", True),
    ),
    is_made_in_programs=True,
)
# At every batch size, so that no algorithm is lost where the memory is full.
WORKSPACE = Factor(
    name="cudnn_workspace",
    what="cuDNN gets a workspace of 16 MiB for a convolution",
    remedy="limit cuDNN's workspace in {where}",
    refuses=_REFUSES,
    step=StepChange(
        how="CUDNN_CONV_WSCAP_DBG=16 in the environment of the process",
        variables=lambda: _WORKSPACE,
        prepare=lambda _: os.environ.update(_WORKSPACE),
    ),
    partial=True,
)
NONE = Factor(
    name="no_cudnn",
    what="operators run without cuDNN",
    remedy="run {where} without cuDNN",
    refuses=_REFUSES,
    term=TermChange(
        how="with torch.backends.cudnn.flags(enabled=False): around the layer's call",
        reason_against=_reason_against_none,
        around=lambda: setting(import_torch().backends.cudnn, "enabled", False),
    ),
    levels=True,
)
