"""What makes a card surprising: times that vary, a step that the host paces inside a library, a
clock that rises and falls, work of others, and a counter of energy that moves now and then.
"""

import pytest

from curvescope.profiling.attribution.kernel_precision import kernel_precision
from curvescope.profiling.hardware.devices import get_device
from curvescope.profiling.recording.store import open_recording

from .card import Card
from .measured import ROOT, table

H100 = Card(virtual_time=True)
CLOCK_HZ = get_device("h100").clock_hz

STEPS = """
    import json, statistics, time, torch

    def steps_ms(run, count):
        times = []
        for _ in range(count):
            torch.cuda.synchronize()
            began_ns = time.perf_counter_ns()
            run()
            torch.cuda.synchronize()
            times.append((time.perf_counter_ns() - began_ns) / 1e6)
        return times

    def launches():
        for _ in range(200):
            x.add_(1.0)

    x, a = torch.empty(1, device="cuda"), torch.empty(4096, 4096, device="cuda")
    launches(), a @ a
    print(json.dumps([steps_ms(launches, 40), steps_ms(lambda: [a @ a for _ in range(8)], 40)]))
"""


def _spread(times):
    ordered = sorted(times)
    return ordered[len(ordered) * 3 // 4] / ordered[len(ordered) // 4] - 1


def test_steps_vary_as_on_the_card_and_a_seed_gives_the_same_times_again(answer_of):
    exact, first, again, other = (
        answer_of(Card(virtual_time=True, noise=seed), STEPS) for seed in (0, 1, 1, 2)
    )
    assert first == again
    assert first != other
    for still, noisy in zip(exact, first, strict=True):
        assert _spread(still) < 1e-3
        # A few calls take several times as long, so the mean of all is above the median.
        assert 0.95 < sorted(noisy)[20] / sorted(still)[20] < 1.3
    of_host, of_card = map(_spread, first)
    assert of_host > 5 * of_card > 0  # the H100's steps of 1 vary by percents, those of 64 by 0.1 %


def test_a_bf16_step_of_fused_attention_runs_by_every_kernel_of_torch(answer_of):
    found = answer_of(
        H100,
        """
        import json, torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from curvescope.profiling.collect.torch_step import record_step

        q = torch.empty(8, 16, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        attention = torch.nn.functional.scaled_dot_product_attention

        def step(_):
            attention(q, q, q, is_causal=True).sum().backward()
            torch.cuda.synchronize()

        found = {}
        for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
            with sdpa_kernel(getattr(SDPBackend, backend)):
                step(None)
                rows = record_step(step, (), device="cuda:0")
            found[backend] = [[row["name"], row["duration_ns"]] for row in rows.kernels]
        with torch.no_grad():
            attention(q, q, q)
        print(json.dumps(found))
        """,
    )
    parts = {
        "CUDNN_ATTENTION": ("flash_fprop", "flash_bprop"),
        "FLASH_ATTENTION": ("flash_fwd", "flash_bwd_dq_dk_dv"),
        "EFFICIENT_ATTENTION": ("fmha_cutlassF", "fmha_cutlassB"),
        "MATH": ("gemm", "gemm"),
    }
    times = {}
    for backend, names in parts.items():
        kernels = found[backend]
        assert all(any(name in kernel for kernel, _ in kernels) for name in names), kernels
        times[backend] = sum(ns for _, ns in kernels)
    assert times["CUDNN_ATTENTION"] < times["FLASH_ATTENTION"] < times["MATH"]
    forward, backward = (
        next(ns for kernel, ns in found["FLASH_ATTENTION"] if name in kernel)
        for name in parts["FLASH_ATTENTION"]
    )
    # Half of 4 n² d h FLOPs at 0.35 of 989 TFLOP/s; the gradient has 2.5 times as many, at 0.3.
    assert forward == pytest.approx(
        0.5 * 4 * 8 * 16 * 1024**2 * 64 / (0.35 * 989e12) * 1e9, rel=0.3
    )
    assert backward / forward == pytest.approx(2.5 * 0.35 / 0.3, rel=0.1)


def test_a_16_bit_product_of_an_odd_width_runs_in_older_kernels(answer_of):
    found = answer_of(
        H100,
        """
        import json, torch
        from curvescope.profiling.collect.torch_step import record_step

        def one_kernel(run):
            def step(_):
                run()
                torch.cuda.synchronize()
            step(None)
            (kernel,) = record_step(step, (), device="cuda:0").kernels
            return kernel["name"], kernel["duration_ns"]

        x = torch.empty(4096, 512, device="cuda", dtype=torch.bfloat16)
        widths = [torch.empty(n, 512, device="cuda").bfloat16() for n in (50257, 50258, 50304)]
        found = [one_kernel(lambda: x @ width.T) for width in widths]
        padded = torch.empty(4096, 50304, device="cuda", dtype=torch.bfloat16)[:, :50257]
        found.append(one_kernel(lambda: torch.mm(x, widths[0].T, out=padded)))
        print(json.dumps(found))
        """,
    )
    names, times = zip(*found, strict=True)
    odd, even, aligned, padded = times
    assert "s1688gemm_bf16" in names[0]
    assert names[0].endswith("align1")
    assert names[1].endswith("align2")
    assert "align" not in names[2] + names[3]
    assert odd / aligned == pytest.approx(1.8, rel=0.1)
    assert even / aligned == pytest.approx(1.8, rel=0.1)
    assert padded == pytest.approx(aligned, rel=0.02)  # rows of the memory count, not of the matrix


def test_a_product_in_fp8_takes_half_the_time_of_one_in_bf16(answer_of):
    wide, (name, narrow) = answer_of(
        H100,
        """
        import json, torch
        from curvescope.profiling.collect.torch_step import record_step

        a = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
        q, scale = a.to(torch.float8_e4m3fn), torch.ones((), device="cuda")

        def step(_):
            a @ a
            torch._scaled_mm(q, q.T, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
            torch.cuda.synchronize()

        step(None)
        first, second = record_step(step, (), device="cuda:0").kernels
        print(json.dumps([first["duration_ns"], [second["name"], second["duration_ns"]]]))
        """,
    )
    assert kernel_precision(name) == "fp8"
    assert 0.3 < narrow / wide < 0.6  # 1,979 TFLOP/s of 990; bf16 ran at a lower clock


def test_a_step_that_the_host_paces_inside_a_library_is_as_on_the_card_and_is_told(
    curvescope_on, tmp_path
):
    """Of 17 images the FFT of conv3_2 is 2,112 products on eight SMs each."""
    options = ("--time-limit", 6, "--experiments", 0, "-o", tmp_path / "found")
    text = curvescope_on(H100, "diagnose", "vgg_a", "--batch", "16,17,32", *options, "--all")
    recording = open_recording(tmp_path / "found")
    steps, kernels = recording.frame("steps"), recording.frame("kernels")
    real = open_recording(ROOT / table()["h100"]["paced"]["recording"]).frame("steps")

    def median_ms(of):
        timed = of[~of["profiled"] & (of["batch"] == 17)]
        return timed["duration_ns"].median() / 1e6

    assert median_ms(steps) == pytest.approx(median_ms(real), rel=0.15)
    step = steps[steps["profiled"] & (steps["batch"] == 17)]["step"].iloc[-1]
    paced = kernels[(kernels["step"] == step) & kernels["name"].str.contains("cf32cf32")]
    assert len(paced) > 2000
    assert paced["stream"].nunique() > 4
    assert "launch- or host-bound" in text


def test_a_program_that_ends_while_a_thread_of_it_sleeps_does_not_stop_the_time(answer_of):
    """Nobody asks how it ended, so the system keeps its number."""
    slept = answer_of(
        H100,
        """
        import json, subprocess, sys, time
        program = (
            "import os, threading, time; "
            "threading.Thread(target=time.sleep, args=(1,), daemon=True).start(); "
            "print('begun', flush=True); os._exit(0)"
        )
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "begun\\n"
        while open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0] != "Z":
            pass
        began = time.monotonic()
        time.sleep(5)
        print(json.dumps(time.monotonic() - began))
        """,
    )
    assert slept == pytest.approx(5, abs=0.1)


NVML = """
    import json, time, torch
    from curvescope.profiling.hardware.nvml import find_device

    def reads(*names):
        return [device.read(name) for name in names]

    device = find_device("cuda:0")
    a = torch.empty(4096, 4096, device="cuda")
    a @ a  # makes a handle and a workspace
    torch.cuda.synchronize()
"""


def test_the_energy_counter_moves_as_often_as_on_the_card(answer_of):
    found = answer_of(
        H100,
        NVML
        + """
    seen = []
    for _ in range(1000):
        time.sleep(1e-3)
        joules = device.read("nvmlDeviceGetTotalEnergyConsumption")
        if not seen or seen[-1] != joules:
            seen.append(joules)
    print(json.dumps(seen))
    """,
    )
    assert 9 <= len(found) <= 12  # each 98 ms of a second
    assert found == sorted(found)


PRODUCTS = """
    def product_ms(calls=1):
        torch.cuda.synchronize()
        began_ns = time.perf_counter_ns()
        for _ in range(calls):
            a @ a
        torch.cuda.synchronize()
        return (time.perf_counter_ns() - began_ns) / 1e6 / calls
"""


def test_the_clock_rises_after_a_pause(answer_of):
    card = Card(virtual_time=True, costs={"ramp_ns": 20e6, "ramp_after_ns": 100e6})
    first, later, again = answer_of(
        card,
        NVML
        + PRODUCTS
        + """
    time.sleep(1)
    first = product_ms()
    product_ms(100)
    later = product_ms()
    time.sleep(1)
    print(json.dumps([first, later, product_ms()]))
    """,
    )
    base = get_device("h100").facts["base_clock_hz"].value / CLOCK_HZ
    assert later / first == pytest.approx(base, rel=0.1)
    assert again == pytest.approx(first, rel=0.03)


def test_heat_takes_the_clock_down_and_nvml_says_so(answer_of):
    card = Card(virtual_time=True, costs={"heat_ns": 200e6, "heat_clock": 0.7})
    cold, hot, rested, states = answer_of(
        card,
        NVML
        + PRODUCTS
        + """
    names = "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"
    cold, before = product_ms(), device.read(names[0])
    product_ms(200)
    hot, during = product_ms(), device.read(names[0])
    time.sleep(1)
    print(json.dumps([cold, hot, product_ms(), [before & 0x20, during & 0x20]]))
    """,
    )
    assert cold / hot == pytest.approx(0.7, rel=0.03)
    assert rested == pytest.approx(cold, rel=0.03)
    assert states == [0, 0x20]


def test_work_of_others_takes_its_share_of_the_multiprocessors(answer_of):
    others = {"other_ns": 50e6, "other_every_ns": 100e6, "other_share": 0.5}
    times = answer_of(
        Card(virtual_time=True, costs=others),
        NVML + PRODUCTS + "    print(json.dumps([product_ms() for _ in range(200)]))\n",
    )
    assert max(times) == pytest.approx(2 * min(times), rel=0.05)
    slow = sum(ms > 1.5 * min(times) for ms in times) / len(times)
    assert 0.2 < slow < 0.5  # of as many steps each takes twice the time
