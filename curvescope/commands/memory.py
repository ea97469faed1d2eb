"""Find which layers and tensors make the peak memory of a step, how it grows, and the largest batch size that fits.

Every batch size runs a few steps, and nothing is timed. `curvescope explain RUN --of memory` prints the result again.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .. import options
from ..diagnosing import record_curve

if TYPE_CHECKING:
    from ..profiling.recording.store import Recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network_arguments(parser)
    options.add_batch_argument(parser)
    options.add_axis_argument(parser)
    options.add_memory_argument(parser)
    options.add_by_instance_argument(parser)
    options.add_result_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..profiling.measure.protocol import ONE_STEP

    options.memory_limit_of(args)  # refuse a wrong one before anything is measured
    return show(record_curve("memory", args, lambda _: ONE_STEP), args)


def show(recording: Recording, args: argparse.Namespace) -> int:
    """Print the memory of a recording, as the options ask for."""
    from ..analysis.render.memory import show_memory

    show_memory(
        recording,
        axis=args.curvature,
        by_instance=args.by_instance,
        limit_bytes=options.memory_limit_of(args),
        everything=args.all,
        as_json=args.json,
    )
    return 0
