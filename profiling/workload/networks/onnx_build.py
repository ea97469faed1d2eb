"""Networks of torch for ONNX Runtime: exported by torch.onnx, and inferred on the CPU.

ONNX Runtime trains nothing, so the only step is a forward one. It needs the batch size when it
chooses its kernels, so each has a session of its own.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from ....base.errors import CurvescopeError
from . import get_network
from .channels_last import SEED
from .description import Description

_PROVIDERS = ["CPUExecutionProvider"]


def make_step(
    description: Description, batch: int, mode: str, precision: str = "fp32"
) -> Callable[[], object]:
    """A function that runs one step.

    Raises:
        CurvescopeError: the mode is another than forward, or the precision another than fp32.
    """
    if mode != "forward":
        raise CurvescopeError(
            "ONNX Runtime only infers: use --mode forward, and another framework to train."
        )
    if precision != "fp32":
        raise CurvescopeError(f"--precision {precision}: networks in ONNX Runtime run in fp32.")
    import torch

    network = get_network(description.name)
    if network.reads_text:
        network = network.with_sequence_length(*description.input_shape)
    torch.manual_seed(SEED)
    (samples,), _ = network.sample(batch, "cpu", torch.Generator().manual_seed(SEED + batch))
    session = session_of(network.build().eval(), samples)
    feed = {session.get_inputs()[0].name: samples.numpy()}
    return lambda: session.run(None, feed)


def session_of(model: Any, samples: Any) -> Any:
    """A session of ONNX Runtime that computes as a model of torch does from such samples."""
    import onnxruntime
    import torch

    # torch reports each of its passes on the standard output, and every operator that it lacks.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what torch calls of its own
        program: Any = torch.onnx.export(model, (samples,), dynamo=True, verbose=False)
    file = program.model_proto.SerializeToString()
    return onnxruntime.InferenceSession(file, providers=_PROVIDERS)
