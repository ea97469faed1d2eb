"""The virtual H100 beside the measured one: each operator that was timed on the card, and how far
off it is here.

The card's table (measured.toml) has the products, so those only show that the table is kept;
convolutions of the recorded network were timed a second time on the card, by another command.
`OPERATORS` says what no table brings near.
"""

import pytest

from curvescope.profiling.recording.store import open_recording

from .card import Card
from .measured import ROOT, recording_of, stage_rows

H100 = Card(virtual_time=True)
# The range of the virtual time over the measured one, of kernels alone.
NEAR = (0.93, 1.05)
OPERATORS = {
    "product 1024 float32": NEAR,
    "product 2048 float32": NEAR,
    "product 4096 float32": NEAR,
    "product 2048 bfloat16": NEAR,
    "product 8192 bfloat16": NEAR,
    "add 4 MiB": NEAR,
    "add 256 MiB": NEAR,
    # Bytes over bandwidth; on the card they also compute, and read in an order that the memory
    # likes less.
    "sum of rows": (0.7, 1.05),
    "softmax": (0.7, 1.05),
    "layer norm": (0.6, 1.05),
    "transposed copy": (0.4, 1.05),
    # On the card cuDNN converts the layout before and after its tensor cores.
    "convolution 64": (0.45, 1.05),
}

TIMES = """
    import json, statistics, sys, torch
    sys.path.insert(0, {folder!r})
    from curvescope.kernels.backends import open_backend

    timer = open_backend("torch", "cuda:0").timer

    def event_us(run, calls=1, samples=20):
        "The median of pairs of events around `calls` calls, for one of them."
        timer.take(run, calls, samples // 2, None)
        taken = timer.take(run, calls, samples, None)
        return statistics.median(one.duration_ns for one in taken) / 1e3

    def kernels_of(run, calls=1):
        "Name and microseconds of the kernels of the last of some calls, by torch's profiler."
        run()
        with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as profiler:
            for _ in range(calls):
                run()
            torch.cuda.synchronize()
        events = [e for e in profiler.kineto_results.events() if e.device_type().name != "CPU"]
        return [[e.name(), e.duration_ns() / 1e3] for e in events][-len(events) // calls :]
"""


@pytest.fixture(scope="module")
def campaign():
    """The folder of the campaign's scripts."""
    return str(ROOT / "benchmarks" / "gpu")


def test_hot_operators_take_what_they_took_on_the_card(answer_of, campaign):
    found = answer_of(
        H100,
        TIMES.format(folder=campaign)
        + """
    import truth
    found = {}
    for name, run in truth.operators("cuda:0").items():
        kernels = kernels_of(run, 50 if "8192" in name else 1)
        found[name] = [event_us(run), sum(us for _, us in kernels)]
    print(json.dumps(found))
    """,
    )
    rows = {row["operator"]: row for row in stage_rows("h100", "truth")}
    assert set(found) == set(rows) == set(OPERATORS)
    for name, (pair_us, kernels_us) in found.items():
        low, high = OPERATORS[name]
        assert low <= kernels_us / rows[name]["collector_us"] <= high, name
        assert pair_us - kernels_us < 20 or "8192" in name  # its clock still falls between the two


def test_a_pair_of_events_adds_what_it_added_on_the_card(answer_of, campaign):
    nothing_us, smallest_us = answer_of(
        H100,
        TIMES.format(folder=campaign)
        + """
    x = torch.empty(1, device="cuda")
    print(json.dumps([event_us(lambda: None), event_us(lambda: x.add_(1.0))]))
    """,
    )
    assert nothing_us == pytest.approx(1.28, rel=0.03)
    assert smallest_us == pytest.approx(4.096, rel=0.03)


def test_products_in_a_queue_take_what_they_took_at_the_clock_that_power_leaves(
    answer_of, campaign
):
    rows = [row for row in stage_rows("h100", "peaks") if row["problem"].startswith("gemm")]
    problems = [[row["problem"].split()[1], row["problem"].split()[-1], row["us"]] for row in rows]
    found = answer_of(
        H100,
        TIMES.format(folder=campaign)
        + f"""
    import ctypes
    from curvescope.profiling.hardware.stream_clock import stream_clock
    torch.empty(1, device="cuda")  # the clock needs a context
    found, clock = [], stream_clock("cuda:0")
    for shape, precision, us in {problems!r}:
        extent = int(shape.split("x")[0])
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        kind = torch.bfloat16 if precision == "bf16" else torch.float32
        a = torch.empty(extent, extent, device="cuda", dtype=kind)
        calls = max(1, int(1e4 / us))
        event_us(lambda: a @ a, calls, 10)
        clock.begin()
        for _ in range(max(1, int(3e4 / us))):
            a @ a
        found.append([event_us(lambda: a @ a, calls, 6), clock.end() / 1e6])
    print(json.dumps(found))
    """,
    )
    assert len(rows) == 12
    for row, (us, clock_mhz) in zip(rows, found, strict=True):
        assert us == pytest.approx(row["us"], rel=0.05), row["problem"]
        assert clock_mhz == pytest.approx(row["clock_mhz"], rel=0.05), row["problem"]


def test_convolutions_of_the_recorded_network_take_what_two_other_commands_measured(
    answer_of, campaign
):
    """The table is of VGG-A's profiled steps; `bench` and do_bench timed these shapes in other
    processes.
    """
    rows = {row["problem"]: row["us"] for row in stage_rows("h100", "peaks")}
    rows |= {row["problem"]: row["ours_ms"] * 1e3 for row in stage_rows("h100", "do_bench")}
    found = answer_of(
        H100,
        TIMES.format(folder=campaign)
        + """
    from curvescope.kernels.conv import DIRECTIONS
    torch.backends.cudnn.allow_tf32 = False
    conv, grad = torch.nn.functional.conv2d, torch.ops.aten.convolution_backward
    shape = lambda n, c, extent: (torch.empty(n, c, extent, extent, device="cuda"),
                                  torch.empty(c, c, 3, 3, device="cuda"))
    x, w = shape(64, 256, 56)
    wanted = dict(fwd=None, bwd_data=[True, False, False], bwd_weights=[False, True, False])
    found = {}
    for direction in DIRECTIONS:
        mask = wanted[direction]
        fixed = None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        run = (lambda: grad(x, x, w, *fixed, mask)) if mask else (lambda: conv(x, w, padding=1))
        names = [name for name, _ in kernels_of(run)]
        found[f"conv {direction} n64 c256 56x56 k256 3x3 p1 fp32"] = [event_us(run), names]
    x, w = shape(128, 512, 14)
    found["conv fwd n128 c512 14x14 k512 3x3 p1 fp32"] = [
        event_us(lambda: conv(x, w, padding=1)), []]
    print(json.dumps(found))
    """,
    )
    assert len(found) == 4
    for problem, (us, names) in found.items():
        assert us == pytest.approx(rows[problem], rel=0.02), problem
        if "bwd_data" in problem:
            assert any(name.startswith("void fft2d_r2c_32x32") for name in names)
        if "bwd_weights" in problem:
            assert any("winogradWgradDelta4x4" in name for name in names)


FAMILIES = ("fft2d", "winograd", "implicit_gemm", "dgrad_engine", "wgrad_alg0", "cf32cf32")


def test_a_step_of_vgg_has_the_convolutions_and_nearly_the_time_of_the_card(answer_of, campaign):
    """61.75 ms at 64 on the card; what is missing is pooling, and the host, which takes no virtual
    time.
    """
    recording = open_recording(recording_of("h100"))
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    last = steps[steps["profiled"] & (steps["batch"] == 64)]["step"].max()
    real = list(kernels[kernels["step"] == last]["name"])
    step_ms, virtual = answer_of(
        H100,
        TIMES.format(folder=campaign)
        + """
    from curvescope.profiling.measure.visit import record_step
    from curvescope.profiling.workload.network_step import Workload
    from curvescope.profiling.workload.networks import get_network

    step = Workload(get_network("vgg_a"), "cuda:0")
    step.load(64)
    record_step(step)
    rows = record_step(step).kernels
    print(json.dumps([step.time_step()[1] / 1e6, [row["name"] for row in rows]]))
    """,
    )
    assert 0.9 * 61.75 < step_ms < 1.05 * 61.75
    for family in FAMILIES:
        counts = [sum(family in name for name in names) for names in (real, virtual)]
        assert counts[0] == counts[1] > 0, family
    assert 0.85 < len(virtual) / len(real) < 1.05
