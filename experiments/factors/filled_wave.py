"""What the empty part of the last wave of blocks costs, by batch sizes that fill the wave and that begin the next one.

Nothing but the batch size changes: the further sizes run among the unmodified ones, see `Wave`.
"""

from __future__ import annotations

from ..factor import Factor, TermChange

NAME = "filled_wave"
FACTOR = Factor(
    name=NAME,
    what="the last wave of blocks is full",
    refuses={"cpu": "a CPU runs no blocks in waves"},
    term=TermChange(screen=9, same_work=True),
    by_size=True,
)
