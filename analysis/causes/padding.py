"""Padding as a cause: a product computes whole blocks of samples, so sizes within one block take
equally long.

Products in low precision have tall tiles (128 rows of fp8 or mxfp4 on a GPU, 16 or more of bf16 and
int8 on a CPU), and a library pads what does not fill the last one. Where no grid of blocks tells,
the times of the whole sweep do: they stay within a block and jump behind it. Modelled: a block more
takes equally long wherever it comes.
"""

from __future__ import annotations

from ...profiling.recording.experiments import Wave
from ..decompose.terms import KERNELS
from .case import Case, Cause, Intervention
from .evidence import Claim, Evidence, Strength, cite

PADDING = "padding to blocks"
_REFUTATION = "A size that fills the block takes longer, or the next one takes no longer than it."


def weigh_padding(case: Case) -> Claim | None:
    """Claim the time of the samples that fill the last block."""
    block = case.block
    if block is None or case.share.key.kind != KERNELS:
        return None

    def time_padding(batch: int) -> float:
        return block.block_ms * (block.pad(batch) - batch) / block.size

    amount = case.evaluate(time_padding)
    if not amount:
        return None
    where = "kernels.name" if block.is_tile else "kernels.duration_ns"
    low, high = block.within
    evidence = (
        cite("samples that are computed", map(block.pad, case.sides), "", where),
        cite(
            "time of those that fill the last block", map(time_padding, case.sides), "ms", "model"
        ),
        Evidence(
            f"time at {low} and at {high}, within one block of {block.size}",
            *block.times_ms,
            "ms",
            "kernels.duration_ns",
        ),
    )
    detail = f"of {block.size} samples"
    return Claim(PADDING, amount, Strength.SIGN, evidence, _REFUTATION, detail)


def find_filled_blocks(case: Case) -> tuple[Wave, ...]:
    """Where the last block ends at each batch size that does not fill it."""
    block = case.block
    if block is None:
        return ()
    padded = []
    for batch in case.functional.conditions:
        filled = block.pad(batch)
        if filled > batch:
            empty = (filled - batch) / block.size
            padded.append(Wave(batch, filled, filled + 1, filled + block.size, empty))
    return tuple(padded)


padding = Cause(
    name=PADDING,
    weigh=weigh_padding,
    intervention=Intervention(
        expected="More samples take no longer until the last block is full, and then a whole block "
        "longer.",
        shared=("filled_wave",),
    ),
)
