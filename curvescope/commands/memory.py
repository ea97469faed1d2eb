"""Find which layers and tensors make the peak memory of a step, how it grows, and the largest batch size that fits.

Every batch size runs a few steps, and nothing is timed. `curvescope explain RUN --of memory` prints the result again.
"""

from __future__ import annotations

import argparse

from .. import options
from ..diagnosing import record_curve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_network_arguments(parser)
    options.add_batch_argument(parser)
    options.add_axis_argument(parser)
    options.add_memory_argument(parser)
    options.add_by_instance_argument(parser)
    options.add_result_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from ..analysis.render.memory import show_memory
    from ..profiling.measure.protocol import ONE_STEP

    limit_bytes = options.memory_limit_of(args)
    recording = record_curve("memory", args, lambda _: ONE_STEP)
    show_memory(
        recording,
        axis=args.curvature,
        by_instance=args.by_instance,
        limit_bytes=limit_bytes,
        everything=args.all,
        as_json=args.json,
    )
    return 0
