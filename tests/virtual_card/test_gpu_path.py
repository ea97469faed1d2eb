"""What only a GPU reaches, in virtual time: a kernel of known cycles has to come out of every path
with its time, its stream, its device, its operator and its launch.
"""

import pytest

from curvescope.profiling.hardware.devices import get_device

from .card import Card

H100 = Card(virtual_time=True)
CYCLES = 20_000_000
SPIN_NS = CYCLES / get_device("h100").clock_hz * 1e9  # and `kernel_ns` of the card, 1.15 us

RECORD = """
    import json, time, torch
    from curvescope.profiling.collect.torch_step import record_step

    def recorded(step, layers=()):
        "The rows of a step by torch's profiler."
        for _ in range(2):  # the first makes contexts, handles and plans
            rows = record_step(step, layers, device="cuda:0")
        return rows
"""


def test_a_profiled_step_has_each_kernel_with_its_time_stream_operator_and_launch(answer_of):
    found = answer_of(
        H100,
        RECORD
        + f"""
    side = torch.cuda.Stream()
    a, b = torch.empty(1024, 1024, device="cuda"), torch.empty(1024, 1024, device="cuda")

    def step(ranges):
        with ranges("curvescope:phase:forward"):
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                torch.cuda._sleep({CYCLES})
                a.relu_()          # launched before the product, and runs after it
            b @ b
            main.wait_stream(side)
        torch.cuda.synchronize()

    began_ns = time.monotonic_ns()
    rows = recorded(step)
    columns = {{"kernels": rows.kernels, "calls": rows.api_calls, "window": rows.windows[0]}}
    print(json.dumps({{**columns, "run": [began_ns, time.monotonic_ns()]}}, default=str))
    """,
    )
    kernels = {
        name: row
        for row in found["kernels"]
        for name in ("spin", "clamp", "gemm")
        if name in row["name"]
    }
    assert set(kernels) == {"spin", "clamp", "gemm"}
    spin, relu, product = kernels["spin"], kernels["clamp"], kernels["gemm"]
    assert spin["duration_ns"] == pytest.approx(SPIN_NS, rel=1e-3)
    assert spin["stream"] == relu["stream"] != product["stream"]
    assert relu["op"] == "aten::relu_"
    assert product["op"] == "aten::matmul"
    assert product["start_ns"] < relu["start_ns"]
    assert relu["start_ns"] >= spin["start_ns"] + spin["duration_ns"]
    start_ns, duration_ns = found["window"]
    assert found["run"][0] < start_ns < found["run"][1]  # on the clock of recordings
    assert duration_ns >= SPIN_NS
    assert all(start_ns <= row["start_ns"] <= start_ns + duration_ns for row in found["kernels"])
    launches = {
        row["correlation_id"]: row for row in found["calls"] if "LaunchKernel" in row["name"]
    }
    assert all(
        launches[row["correlation_id"]]["start_ns"] < row["start_ns"] for row in kernels.values()
    )


def test_a_profiled_step_has_its_copies_with_their_bytes(answer_of):
    rows = answer_of(
        H100,
        RECORD
        + """
    host = torch.empty(1 << 20, dtype=torch.uint8)

    def step(_):
        host.to("cuda")
        torch.cuda.synchronize()

    print(json.dumps(recorded(step).kernels, default=str))
    """,
    )
    (copy,) = [row for row in rows if row["name"].startswith("Memcpy HtoD")]
    assert "Pageable" in copy["name"]
    assert copy["duration_ns"] == pytest.approx(
        1000 + (1 << 20) / 6e9 * 1e9, rel=0.01
    )  # `Costs` in src/card.h


SPIN = f"""
        import json, time, torch
        from curvescope.profiling.hardware.stream_clock import stream_clock
        from curvescope.profiling.measure.visit import discard_steps
        from curvescope.profiling.workload.any_workload import AnyWorkload

        class Spin(AnyWorkload):
            "Steps of one kernel."
            device, clock_ns = "cuda:0", staticmethod(time.monotonic_ns)

            def load(self, batch): pass
            def _run(self, ranges): torch.cuda._sleep({CYCLES})

        torch.zeros(1, device="cuda")  # a context
        spin = Spin()
        spin.time_step()
"""


def test_a_timed_step_begins_after_the_work_before_it_and_ends_with_its_own(answer_of):
    duration_ns, started_after_ns, run_ns = answer_of(
        H100,
        SPIN
        + f"""
        before_ns = time.monotonic_ns()
        torch.cuda._sleep({CYCLES})
        start_ns, duration_ns = spin.time_step()
        run_began_ns = time.monotonic_ns()
        spin.run(None)
        print(json.dumps([duration_ns, start_ns - before_ns, time.monotonic_ns() - run_began_ns]))
        """,
    )
    assert duration_ns == pytest.approx(SPIN_NS, rel=0.01)
    assert started_after_ns >= SPIN_NS
    assert run_ns >= SPIN_NS


def test_steps_of_a_tenth_of_a_second_are_discarded_until_a_gpu_has_its_clocks(answer_of):
    found = answer_of(H100, SPIN + "\n        print(discard_steps(spin, 8, 1).steps)\n")
    assert found == round(100e6 / SPIN_NS)


def test_a_step_counts_the_clock_that_the_card_had_in_it(answer_of):
    usual_hz, lower_hz = answer_of(
        H100,
        SPIN
        + """
        import ctypes
        clock, seen = stream_clock("cuda:0"), []
        for line in (b"forget_plants", b"plant match spin clock 0.5"):
            ctypes.CDLL(None).virtual_card_configure(line)
            clock.begin()
            spin.time_step()
            seen.append(clock.end())
        print(json.dumps(seen))
        """,
    )
    assert usual_hz == pytest.approx(get_device("h100").clock_hz, rel=0.02)
    assert lower_hz == pytest.approx(usual_hz / 2, rel=0.02)


TIMER = """
        import json, torch
        from curvescope.kernels.backends import open_backend
        timer = open_backend("torch", "cuda").timer
"""


def test_events_time_the_device_and_not_the_host_or_what_runs_before(answer_of):
    samples = answer_of(
        H100,
        TIMER
        + f"""
        spin = lambda: torch.cuda._sleep({CYCLES})
        timer.take(spin, 1, 1, None)
        taken = timer.take(spin, 1, 3, lambda: torch.cuda._sleep(3 * {CYCLES}))
        print(json.dumps([[one.duration_ns, one.waits_for_host] for one in taken]))
        """,
    )
    for duration_ns, waits in samples:
        assert duration_ns == pytest.approx(SPIN_NS, rel=0.01)
        assert not waits


def test_kernels_shorter_than_their_launches_are_timed_without_the_host(answer_of):
    """A launch takes the host 7.5 us; the kernel takes 1.15 us and the gap before it 1.18 us."""
    durations_ns = answer_of(
        H100,
        TIMER
        + """
        x = torch.empty(32, device="cuda")
        timer.take(x.relu_, 100, 3, None)
        print(json.dumps([one.duration_ns for one in timer.take(x.relu_, 100, 3, None)]))
        """,
    )
    assert max(durations_ns) < 2500


def test_the_second_card_has_its_own_work(answer_of):
    devices = answer_of(
        Card(["h100", "v100"], virtual_time=True),
        """
        import json, torch
        from curvescope.profiling.collect.torch_step import record_step
        x = torch.empty(1024, 1024, device="cuda:1")

        def step(_):
            x @ x
            torch.cuda.synchronize("cuda:1")

        for _ in range(2):
            rows = record_step(step, (), device="cuda:1")
        print(json.dumps([[row["name"], row["device"]] for row in rows.kernels]))
        """,
    )
    assert {device for name, device in devices if "gemm" in name} == {1}
    assert all("volta" in name for name, _ in devices if "gemm" in name)
