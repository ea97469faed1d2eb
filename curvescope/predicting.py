"""Predicts the cost curve of a network on a GPU that is not here, for `diagnose --card`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import options
from .base.errors import CurvescopeError
from .parsers import PROGRAM, refuse_given
from .profiling.measure.axes import DEFAULT_BATCHES
from .profiling.measure.protocol import parse_batches, parse_bytes

if TYPE_CHECKING:
    from .profiling.recording.store import Recording

_LIBRARY = "library"  # the only word beside facts, which are numbers
_MEASURING = (
    *(PROGRAM, "--step", "--of", "--axis", "--cuda-graph", "--device", "--lock-clocks"),
    *("--protocol", "--until", "--time-limit", "--probe", "--experiments"),
)


def predict(args: argparse.Namespace) -> Recording:
    """Record the times that the cost model predicts; nothing runs, and every view says so.

    Raises:
        CurvescopeError: an option is about measuring, or the model does not know the GPU or the
            network in this mode.
    """
    from .analysis.cost_model.networks import load_operations
    from .analysis.cost_model.recording import record_model
    from .profiling.measure.configuration import Configuration
    from .profiling.recording.store import new_recording_path, open_recording
    from .profiling.workload.networks.operations import operations

    refuse_given(args, "--card predicts times, and measures none", *_MEASURING)
    if args.network is None:
        raise CurvescopeError("Name the network to predict, e.g. alexnet.")
    card, library, facts = _parse_card(args.card)
    sample = options.sample_of(args, args.network)
    network = Configuration(args.network, *sample).find_network()
    stored = sample == (None, None)  # its operations are, so that torch is not needed
    path = args.output or new_recording_path(args.network)
    work = load_operations(network.name) if stored else operations(network)
    batches = parse_batches(args.batch or DEFAULT_BATCHES)
    record_model(
        path,
        network.name,
        work,
        batches,
        card,
        library,
        args.mode,
        args.framework or "torch",
        facts,
        args.precision,
    )
    return open_recording(path)


def _parse_card(text: str) -> tuple[str, str | None, dict[str, float]]:
    """The name of a GPU, of its library, and its changed facts by name."""
    card, *changes = text.split(",")
    pairs = [change.partition("=") for change in changes]
    if not all(name and value for name, _, value in pairs):
        raise CurvescopeError(
            f"--card {text}: write facts and values after its name, e.g. "
            "gtx1080,memory_bytes=12GiB,sm_count=40."
        )
    words = {name.strip(): value for name, _, value in pairs}
    library = words.pop(_LIBRARY, None)
    facts: dict[str, float] = {}
    for name, value in words.items():
        facts[name] = parse_bytes(value, f"--card {name}")
    return card, library, facts
