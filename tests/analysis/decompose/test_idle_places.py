"""The place of idle time on a GPU: the gap before a kernel is that of the layer that
launched it.
"""

import numpy as np
import pandas as pd
import pytest

from curvescope.analysis.decompose.kernel_times import kernel_times
from curvescope.analysis.decompose.marked import _without_small_places, with_averaged
from curvescope.analysis.decompose.terms import IDLE, Key, estimate_terms

from ...tables import ask_each
from ..synthetic import work_of

US = 1000
LAYERS = 100
SLEEPS = "layer50"


def step_of(number, batch, round_, duration_ns):
    row = {
        "step": number,
        "batch": batch,
        "round": round_,
        "index": 99,
        "mode": "training",
        "profiled": True,
    }
    return row | {"start_ns": number * 10**12, "duration_ns": duration_ns, "process": pd.NA}


def kernel_of(step, layer, start_ns, duration_ns):
    row = {
        "name": f"k{layer}",
        "step": step,
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "layer": layer,
    }
    return row | {"phase": "forward", "op": "aten::mm"}


@ask_each("seed", range(8))
def test_gaps_by_place_add_up_to_the_idle_time_whatever_overlaps(seed):
    random = np.random.default_rng(seed)
    steps, kernels, expected = [], [], {}
    for number in range(3):
        origin, window = number * 10**12, int(random.integers(1, 200))
        steps.append(step_of(number, 8, number, window))
        starts = random.choice(np.arange(-20, 220), random.integers(0, 12), replace=False)
        spans = [(int(start), int(random.integers(0, 30))) for start in starts]
        until = 0
        for index, (start, duration) in enumerate(sorted(spans)):
            layer = f"l{index % 3}"
            kernels.append(kernel_of(number, layer, origin + start, duration))
            begin, end = np.clip([start, start + duration], 0, window).tolist()
            expected[number, layer] = expected.get((number, layer), 0) + max(begin - until, 0)
            until = max(until, end)
    table, work = (
        pd.DataFrame(steps),
        work_of(pd.DataFrame(kernels).sample(frac=1, random_state=seed)),
    )
    placed, whole = (kernel_times(work, table, place_idle=place) for place in (True, False))
    idle = placed[placed["name"] == IDLE]
    found = idle.dropna(subset="layer").set_index(["step", "layer"])["exclusive_ns"].to_dict()
    assert found == {place: ns for place, ns in expected.items() if ns}
    idle_ns = whole[whole["name"] == IDLE].groupby("step")["exclusive_ns"].sum()
    assert idle.groupby("step")["exclusive_ns"].sum().to_dict() == idle_ns.to_dict()
    assert placed[placed["name"] != IDLE].equals(whole[whole["name"] != IDLE])


def test_a_sleep_of_50_us_in_one_of_100_layers_is_that_layers():
    """Each layer has a kernel of 20 µs after 5 µs of the host; from batch 12 on one of them sleeps
    first.
    """
    rows, kernels = [], []
    for round_ in range(5):
        for batch in (4, 8, 16):
            number = len(rows)
            at = origin = number * 10**12
            for index in range(LAYERS):
                at += 5 * US + (50 * US if batch >= 12 and f"layer{index}" == SLEEPS else 0)
                kernels.append(kernel_of(number, f"layer{index}", at, 20 * US))
                at += 20 * US
            rows.append(step_of(number, batch, round_, at + 3 * US - origin))
    steps = pd.DataFrame(rows)
    times = with_averaged(
        kernel_times(work_of(pd.DataFrame(kernels)), steps, place_idle=True), None
    )
    terms = estimate_terms(_without_small_places(times), steps)
    place = Key(SLEEPS, "forward", IDLE)
    assert {key for key in terms.keys if key.kind == IDLE} == {Key(None, None, IDLE), place}
    at = terms.keys.index(place)
    change = terms.values_ms[2, at] - terms.values_ms[1, at]
    assert change == pytest.approx(0.050, rel=0.10)
    assert place.label == f"idle in {SLEEPS} forward"
