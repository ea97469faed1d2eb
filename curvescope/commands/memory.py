"""Find which layers and tensors make the peak memory of a step, how it grows, and the largest batch
size that fits.

Every batch size runs a few steps, and nothing is timed. `curvescope explain RUN --of memory` prints
the result again.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .. import options
from ..diagnosing import record_curve
from ..profiling.measure.protocol import ONE_STEP

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(
        parser,
        *options.NETWORK,
        "--batch",
        "--axis",
        "--memory-limit",
        "--by-instance",
        *options.RESULT,
    )


def run(args: argparse.Namespace) -> int:
    options.memory_limit_of(args)  # refuse a wrong one before anything is measured
    show(record_curve("memory", args, lambda _: ONE_STEP), args)
    return 0


def show(recording: Recording, args: argparse.Namespace) -> None:
    """Print the memory of a recording, as the options ask for."""
    from ..analysis.render.memory import show_memory

    limit_bytes = options.memory_limit_of(args)
    show_memory(
        recording, by_instance=args.by_instance, limit_bytes=limit_bytes, **options.shown(args)
    )
