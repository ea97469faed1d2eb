"""CPU contention: threads waited for a core that other work had: a busy neighbour, a quota, or fewer cores.

Amounts are upper bounds. Threads of the step that wait for each other look the same, so the evidence is weak where the
share of runnable time with a core does not change; the experiment tells them apart.
"""

from __future__ import annotations

from .case import Case, Claim, Intervention, seen

CAUSE = "CPU contention"
INTERVENTION = Intervention(
    expected="At a raised priority, which leaves next to nothing to other work on the cores, the excess goes away.",
    step=("priority",),
)
_COLUMNS = "steps.cpu_time_ns, run_queue_wait_ns"
# A few threads always wait briefly for each other's cores.
_FALLEN = 0.95
_SCORE, _SCORE_THROUGHOUT = 0.88, 0.35


def weigh(case: Case) -> Claim | None:
    """Claim the time explained by missing cores."""
    if case.share.key.kind != "kernels" or case.hardware.kind != "cpu":
        return None
    used = {batch: case.facts[batch].host_use for batch in case.functional.conditions}
    paces = {
        batch: use.pace for batch, use in used.items() if use is not None and use.pace is not None
    }
    if len(paces) < len(used):
        return None
    best = max(paces.values())
    falls = min(paces.values()) <= _FALLEN * best
    if not falls and best > _FALLEN:
        return None
    usual = best if falls else 1.0
    uses = [use for use in map(used.get, case.sides) if use is not None]
    evidence = (
        seen("share of runnable time with a core", map(paces.get, case.sides), "1", _COLUMNS),
        seen("CPU time per step", (use.cpu_ms for use in uses), "ms", "steps.cpu_time_ns"),
        seen(
            "wait for a core per step",
            (use.run_queue_wait_ms for use in uses),
            "ms",
            "steps.run_queue_wait_ns",
        ),
    )
    amount = case.evaluate(lambda batch: case.time_ms(batch) * (1 - paces[batch] / usual))
    score = _SCORE if falls else _SCORE_THROUGHOUT
    return Claim(CAUSE, amount, score, evidence, "At a raised priority the excess is as large.")
