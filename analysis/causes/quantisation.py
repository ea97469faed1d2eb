"""Wave and tile quantisation: the last wave of blocks, or the padding of tiles, costs more at one size than the other.

A grid runs in waves of SMs x blocks per SM. The empty share of the last wave, 1 - waves/ceil(waves), is wasted time,
and so are blocks that grow faster than the batch. Modelled: all blocks of a kernel take equally long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from ...profiling.attribution.kernel_names import read_name, short_name
from ...profiling.recording.experiments import Wave
from .case import Case, Claim, Evidence, Intervention, Use

CAUSE = "wave and tile quantisation"
INTERVENTION = Intervention(
    expected=(
        "More samples take no longer until the last wave of blocks is full, and then a whole wave longer; with the "
        "batch padded to the next multiple, the odd sizes get faster."
    ),
    term=("filled_wave", "padded_batch"),
    step=("padded_batch",),
)
# With more waves the tail is under 3 % of the time, too little for a verdict.
_MOST_WAVES = 32
_MOST_SIZE = 2  # of further batch sizes, as a factor on the largest: they have to fit the memory


def weigh(case: Case) -> Claim | None:
    """Claim the empty part of last waves, and blocks beyond proportional growth."""
    claimed = predicted = measured = 0.0
    evidence: list[Evidence] = []
    for name, low, high in _in_waves(case):
        before_ms, after_ms = case.time_ms(case.before, name), case.time_ms(case.after, name)
        padding = _padding(case, name)
        claimed += _empty_share(case, name)
        claimed += case.coefficient(case.after) * after_ms * (1 - _tail(high)) * padding
        predicted += before_ms * math.ceil(high) / math.ceil(low)
        measured += after_ms
        evidence += _evidence(name, low, high, padding)
    if not evidence or measured <= 0 or not claimed:
        return None
    miss = abs(predicted - measured) / measured
    what = "time at the larger size: predicted by ceil(waves), recorded"
    evidence.append(Evidence(what, predicted, measured, "ms", "model; kernels.duration_ns"))
    # A prediction within 5 % is as good as the model gets; an error above 30 % makes it useless.
    score = 0.9 * max(0.0, min(1.0, (0.30 - miss) / 0.25))
    if score == 0:
        return None
    refutation = "A size that fills the last wave (grid a multiple of SMs x blocks per SM) still shows the excess."
    return Claim(CAUSE, claimed, score, tuple(evidence), refutation)


def fillings(case: Case) -> tuple[Wave, ...]:
    """Where the last wave ends, of the kernel for whose empty part most is claimed; empty where its grids do not tell.

    Blocks are taken for a constant number in each of ceil(batch x rate) rows. Of the rates that give the recorded
    grids, the largest says what certainly still fits a wave, the smallest what certainly takes one more.
    """
    names = [name for name, *_ in _in_waves(case)]
    name = max(names, key=lambda name: abs(_empty_share(case, name)), default=None)
    if name is None:
        return ()
    grids = {batch: _largest(case.at(batch, name)) for batch in case.functional.conditions}
    blocks = {batch: use.blocks for batch, use in grids.items() if use is not None and use.blocks}
    per_row = math.gcd(*blocks.values())
    rows = {batch: size // per_row for batch, size in blocks.items()}
    most = min((Fraction(count, batch) for batch, count in rows.items()), default=Fraction(0))
    least = max((Fraction(count - 1, batch) for batch, count in rows.items()), default=Fraction(0))
    if least >= most or not least:
        return ()
    found, missing = [], 0.0
    for batch, size in blocks.items():
        uses = case.at(batch, name)
        if (waves := _waves(case, uses)) is None:
            continue
        whole, of_wave = math.ceil(waves), round(size / waves)
        rows_in, rows_next = (count * of_wave // per_row for count in (whole, whole + 1))
        filled, last = (math.floor(count / most) for count in (rows_in, rows_next))
        beyond, last = math.floor(rows_in / least) + 1, min(last, _MOST_SIZE * case.functional.last)
        if batch < filled and beyond < last:
            found.append(Wave(batch, filled, beyond, last, whole - waves))
        elif batch < filled:
            missing += abs(sum(use.share * _tail(waves) for use in uses))
    # Without most of what is empty, nothing is told of the rest either.
    return tuple(found) if missing <= abs(_empty_share(case, name)) else ()


def _in_waves(case: Case) -> Iterator[tuple[str, float, float]]:
    """Kernels at both sizes whose blocks run in few waves, with the waves at the smaller and at the larger size."""
    for name in case.common_names():
        low, high = (_waves(case, case.at(batch, name)) for batch in case.sides)
        if (
            low is not None
            and high is not None
            and min(low, high) <= _MOST_WAVES
            and not _is_persistent(case, name)
        ):
            yield name, low, high


def _empty_share(case: Case, name: str) -> float:
    """Contribution of the empty part of a kernel's last waves."""
    return sum(use.share * _tail(_waves(case, (use,))) for use in case.uses if use.name == name)


def _largest(uses: tuple[Use, ...]) -> Use | None:
    return max(uses, key=lambda use: use.time_ms, default=None)


def _waves(case: Case, uses: tuple[Use, ...]) -> float | None:
    """Waves of the largest launch; None if the launch configuration or the device is unknown."""
    use = _largest(uses)
    if use is None or case.hardware.sm_count is None:
        return None
    if use.blocks is None or use.threads is None or use.registers_per_thread is None:
        return None
    per_sm = case.hardware.blocks_per_sm(
        use.threads, use.registers_per_thread, use.shared_memory_bytes or 0
    )
    return None if per_sm is None else use.blocks / (case.hardware.sm_count * per_sm)


def _is_persistent(case: Case, name: str) -> bool:
    """Whether a kernel fills the SMs with the same blocks at both sizes; they take tiles in turn, not waves."""
    blocks = {use.blocks for batch in case.sides for use in case.at(batch, name)}
    same = blocks.pop() if len(blocks) == 1 else None
    return bool(same and case.hardware.sm_count and same % case.hardware.sm_count == 0)


def _tail(waves: float | None) -> float:
    return 0.0 if waves is None else 1 - waves / math.ceil(waves)


def _padding(case: Case, name: str) -> float:
    """Share of the blocks at the larger size beyond proportional growth from the smaller size; 0 without any."""
    blocks = {
        batch: sum((u.blocks or 0) * u.calls for u in case.at(batch, name)) for batch in case.sides
    }
    return (
        max(0.0, 1 - case.factor * blocks[case.before] / blocks[case.after])
        if blocks[case.after]
        else 0.0
    )


def _evidence(name: str, low: float, high: float, padding: float) -> list[Evidence]:
    tile = read_name(name).tile
    label = short_name(name) if tile is None else f"{short_name(name)} (tile {tile[0]}x{tile[1]})"
    evidence = [
        Evidence(
            f"waves of {label}", low, high, "waves", "kernels.grid_x, block_x, registers_per_thread"
        )
    ]
    if padding > 0:
        evidence.append(
            Evidence(
                "blocks beyond proportional growth", 0.0, padding, "of blocks", "kernels.grid_x"
            )
        )
    return evidence
