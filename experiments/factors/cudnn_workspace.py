"""A small workspace for cuDNN, at every batch size: no algorithm is lost where the memory is full."""

from __future__ import annotations

import os

from ..factor import Factor, StepChange

_CUDNN = ("CUDNN_CONV_WSCAP_DBG", "16")  # MiB of one convolution; cuDNN reads it when it chooses an algorithm

FACTOR = Factor(
    name="cudnn_workspace",
    what="cuDNN gets a workspace of 16 MiB for a convolution",
    remedy="limit cuDNN's workspace in {where}",
    refuses={"cpu": "cuDNN runs on NVIDIA's GPUs"},
    step=StepChange(
        how="CUDNN_CONV_WSCAP_DBG=16 in the environment of the process",
        variables=lambda: dict([_CUDNN]),
        prepare=lambda _: os.environ.update([_CUDNN]),
    ),
    partial=True,
)
