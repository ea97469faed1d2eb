"""Wave and tile quantisation: the last wave of blocks, or the padding of tiles, costs more at one size than the other.

A grid runs in waves of SMs x blocks per SM. The share of the last wave that stays empty, 1 - waves/ceil(waves), is time
paid for nothing; so are blocks that grow faster than the batch. Amount: what that share of every launch contributes.
Modelled from recorded grids: it assumes that all blocks of a kernel take equally long.
"""

from __future__ import annotations

import math

from ...profiling.attribution.kernel_names import read_name, short_name
from .case import Case, Claim, Evidence, Use

CAUSE = "wave and tile quantisation"
# Past that many waves the tail is under 3 % of the time, below what any verdict here rests on.
_MOST_WAVES = 32


def weigh(case: Case) -> Claim | None:
    """Claim the empty part of last waves, and blocks beyond the batch's share."""
    names = [name for name in case.common_names() if case.at(case.before, name) and case.at(case.after, name)]
    claimed = predicted = measured = 0.0
    evidence: list[Evidence] = []
    for name in names:
        waves = {batch: _waves(case, case.at(batch, name)) for batch in (case.before, case.after)}
        low, high = waves[case.before], waves[case.after]
        if low is None or high is None or min(low, high) > _MOST_WAVES:
            continue
        before_ms, after_ms = case.time_ms(case.before, name), case.time_ms(case.after, name)
        amount = sum(use.share * _tail(_waves(case, (use,))) for use in case.uses if use.name == name)
        padding = _padding(case, name)
        amount += case.coefficient(case.after) * after_ms * (1 - _tail(high)) * padding
        claimed += amount
        predicted += before_ms * math.ceil(high) / math.ceil(low)
        measured += after_ms
        evidence += _evidence(name, low, high, padding)
    if not evidence or measured <= 0 or not claimed:
        return None
    miss = abs(predicted - measured) / measured
    held = "time at the larger size: ceil(waves) predicts, the recording has"
    evidence.append(Evidence(held, predicted, measured, "ms", "model; kernels.duration_ns"))
    # A prediction within 5 % is as good as the model gets; beyond 30 % it tells nothing.
    score = 0.9 * max(0.0, min(1.0, (0.30 - miss) / 0.25))
    if score == 0:
        return None
    refutation = (
        "A batch size that fills the last wave (grid a multiple of SMs x blocks per SM) still shows the excess."
    )
    return Claim(CAUSE, claimed, score, tuple(evidence), refutation)


def _waves(case: Case, uses: tuple[Use, ...]) -> float | None:
    """Waves of the largest launch; null where the geometry or the device is not known."""
    if not uses or case.hardware.sm_count is None:
        return None
    use = max(uses, key=lambda u: u.time_ms)
    if use.blocks is None or use.threads is None or use.registers_per_thread is None:
        return None
    per_sm = case.hardware.blocks_per_sm(use.threads, use.registers_per_thread, use.shared_memory_bytes or 0)
    return None if per_sm is None else use.blocks / (case.hardware.sm_count * per_sm)


def _tail(waves: float | None) -> float:
    return 0.0 if waves is None else 1 - waves / math.ceil(waves)


def _padding(case: Case, name: str) -> float:
    """Share of the blocks at the larger size beyond the batch's share of those at the smaller; 0 where none."""
    blocks = {
        batch: sum((u.blocks or 0) * u.calls for u in case.at(batch, name)) for batch in (case.before, case.after)
    }
    return max(0.0, 1 - case.factor * blocks[case.before] / blocks[case.after]) if blocks[case.after] else 0.0


def _evidence(name: str, low: float, high: float, padding: float) -> list[Evidence]:
    tile = read_name(name).tile
    label = short_name(name) if tile is None else f"{short_name(name)} (tile {tile[0]}x{tile[1]})"
    found = [Evidence(f"waves of {label}", low, high, "waves", "kernels.grid_x, block_x, registers_per_thread")]
    if padding > 0:
        found.append(Evidence("blocks beyond the batch's share", 0.0, padding, "of the blocks", "kernels.grid_x"))
    return found
