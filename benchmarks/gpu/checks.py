"""Questions that only a card can answer, each by a small experiment; a row each.

Arguments: names of checks with commas between them, device, network, batch size, file of the rows.
Checks of one process run in that order. An answer states figures and judges nothing; a check that
broke says with what, the others run, and then the exit code is 1.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scripts

import curvescope
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.collect.range_profiler import RangeProfiler
from curvescope.profiling.hardware.clocks import ClockSampler
from curvescope.profiling.hardware.cuda_driver import KERNEL_NAME, CudaDriver
from curvescope.profiling.hardware.energy import find_meter
from curvescope.profiling.hardware.nvml import find_device
from curvescope.profiling.hardware.stream_clock import stream_clock
from curvescope.profiling.measure.visit import record_step
from curvescope.profiling.recording.store import Recording
from curvescope.profiling.workload.network_step import Workload
from curvescope.profiling.workload.networks import get_network


@dataclass(frozen=True)
class Context:
    """What the checks run on."""

    device: str  # `cuda:N` or `cpu`
    network: str
    batch: int

    def workload(self) -> Workload:
        workload = Workload(get_network(self.network), self.device)
        workload.load(self.batch)
        for _ in range(5):
            workload.time_step()
        return workload


def recorded(work: Callable[[], object]) -> Recording:
    """The recording of a block of this process; its tables are read before the folder goes."""
    with tempfile.TemporaryDirectory() as folder:
        with curvescope.record(Path(folder, "r")) as recording:
            work()
        for table in ("kernels", "clocks", "api_calls"):
            recording.frame(table)
        return recording


def collector_of(recording: Recording) -> dict[str, Any]:
    """The collector's facts about the process with CUDA."""
    return next((one for one in recording.meta["collectors"] if "cupti_status" in one), {})


def idle_before_step(context: Context) -> str:
    """Does a step take longer after an idle time? One step discarded, then one timed."""
    workload, answers = context.workload(), []
    # Idle times and how often each; the check ends within its minute, and a CPU only rehearses.
    plan = ((0.0, 5), (0.2, 5), (1.0, 2), (5.0, 2)) if workload.cuda else ((0.0, 1), (0.01, 1))
    for idle_s, times in plan:
        first, second = [], []
        for _ in range(times):
            time.sleep(idle_s)
            first.append(workload.time_step()[1] / 1e6)
            second.append(workload.time_step()[1] / 1e6)
        answers.append(
            f"{idle_s:g} s idle: {statistics.median(first):.3f}, then "
            f"{statistics.median(second):.3f} ms"
        )
    return "; ".join(answers)


def earlier_profiler(context: Context) -> str:
    """What does an earlier profiler leave in a process?

    Above 1, T(b) timed after a profile has some of its cost.
    """
    workload, count = context.workload(), 50 if context.device != "cpu" else 2

    def step_ms() -> float:
        for _ in range(count // 5):
            workload.time_step()
        return statistics.median(workload.time_step()[1] / 1e6 for _ in range(count))

    fresh = step_ms()
    with import_torch().profiler.profile():
        workload.time_step()
    profiled = step_ms()
    recorded(workload.time_step)
    ratios = (
        f"{profiled / fresh:.4f} after torch.profiler, {step_ms() / fresh:.4f} after a recording"
    )
    return f"{fresh:.3f} ms in a fresh process; {ratios}; {count} steps each"


def first_work(context: Context) -> str:
    """How long is a profiled step idle before its first kernel, at a batch size and at 1?"""
    answers = []
    for batch in (context.batch, 1):
        workload, idle_ms = Context(context.device, context.network, batch).workload(), []
        for _ in range(5):
            rows = record_step(workload)
            idle_ms.append(
                (min(row["start_ns"] for row in rows.kernels) - rows.windows[0][0]) / 1e6
            )
        answers.append(f"batch {batch}: {', '.join(f'{one:.3f}' for one in idle_ms)} ms")
    return "; ".join(answers)


def event_pair(context: Context) -> str:
    """What does a pair of events read around nothing and around an empty kernel, and how long is
    that by CUPTI?
    """
    from curvescope.kernels.backends import open_backend

    backend, number = (
        open_backend("torch", context.device),
        import_torch().zeros(1, device=context.device),
    )
    answers, medians_ns = [], []
    for what, run in (("nothing", lambda: None), ("the smallest kernel", lambda: number.add_(1))):
        samples = backend.timer.take(run, 1, 200, None)
        low, middle, high = statistics.quantiles([sample.duration_ns for sample in samples], n=4)
        medians_ns.append(middle)
        answers.append(f"{what} {middle:.0f} ns ({low:.0f} to {high:.0f})")
    rows = backend.record(lambda: [number.add_(1) for _ in range(50)], None, None)
    durations_ns = [row["duration_ns"] for row in rows.kernels]
    if not durations_ns:
        return f"{'; '.join(answers)}; CUPTI recorded no kernel"
    of_kernel_ns = statistics.median(durations_ns)
    answers.append(f"the kernel itself {of_kernel_ns:.0f} ns by CUPTI (n {len(durations_ns)})")
    return f"{'; '.join(answers)}: the pair adds {medians_ns[1] - of_kernel_ns:.0f} ns"


def nvml_latency(context: Context) -> str:
    """How long does one sample of the clocks take, idle and beside work?"""
    sampler, workload = ClockSampler(context.device), context.workload()
    sampler.sample()
    times_ms: dict[str, list[float]] = {"idle": [], "beside work": []}
    for what, values in times_ms.items():
        for _ in range(20):
            if what != "idle":
                workload.submit()
            began_ns = time.monotonic_ns()
            sampler.sample()
            values.append((time.monotonic_ns() - began_ns) / 1e6)
            import_torch().cuda.synchronize()
    return ", ".join(
        f"{what} {statistics.median(values):.2f} ms" for what, values in times_ms.items()
    )


def clock_under_load(context: Context) -> str:
    """Which SM clock do the step's own kernels see, and which does NVML say after it?"""
    workload, gpu = context.workload(), find_device(context.device)
    clock, seen_mhz, asked_mhz = stream_clock(context.device), [], []
    assert clock is not None
    for _ in range(20):
        clock.begin()
        workload.time_step()
        seen_mhz.append((clock.end() or 0) / 1e6)
        asked_mhz.append(gpu.read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"))
    seen, asked = (
        f"{min(values):.0f} to {max(values):.0f} MHz" for values in (seen_mhz, asked_mhz)
    )
    return f"in the stream {seen}, NVML {asked}; {len(seen_mhz)} steps"


def device_facts(context: Context) -> str:
    """Do L2 and memory in devices.toml fit what the card says?"""
    from curvescope.profiling.hardware.limits import match_device

    facts = import_torch().cuda.get_device_properties(context.device)
    listed = match_device(facts.name, f"{facts.major}.{facts.minor}")
    said = (
        {}
        if listed is None
        else {name: fact.value for name, fact in listed.facts.items() if "bytes" in name}
    )
    return (
        f"{facts.name}: L2 {facts.L2_cache_size} B, memory {facts.total_memory} B; listed "
        f"{said or 'not at all'}"
    )


def nvml_device(context: Context) -> str:
    """Is the card that NVML is asked about the one that CUDA runs on?"""
    uuid = str(import_torch().cuda.get_device_properties(context.device).uuid)
    other = find_device(context.device).read("nvmlDeviceGetUUID")
    return f"{'yes' if uuid in str(other) else 'NO'}: CUDA {uuid}, NVML {other}"


def device_record(context: Context) -> str:
    """Does a block that began after CUDA have the facts of the device?"""
    workload = context.workload()
    device = recorded(workload.time_step).meta.get("device")
    return f"{'yes' if device else 'NO'}: {device}"


def environment_records(context: Context) -> str:
    """Does CUPTI give clocks (ENVIRONMENT records), and what does it refuse?"""
    workload = context.workload()
    recording = recorded(lambda: [workload.time_step() for _ in range(30)])
    rows, refused = recording.count_rows("clocks"), collector_of(recording).get("cupti_refused")
    return f"{len(recording.frame('clocks')) or rows} samples; refused: {refused}"


def collector_overhead(context: Context) -> str:
    """How long do CUPTI's own stalls take, among them buffer requests?"""
    workload = context.workload()
    began_s = time.monotonic()
    recording = recorded(lambda: [workload.time_step() for _ in range(50)])
    facts = collector_of(recording)
    return (
        f"{facts.get('overhead_ns')} in {time.monotonic() - began_s:.1f} s with "
        f"{facts.get('cupti_version')}"
    )


def clock_error(context: Context) -> str:
    """Do kernels begin before their launches, and is that within the stated error of the clocks?"""
    recording = recorded(context.workload().time_step)
    facts = collector_of(recording)
    early = {
        key: value
        for key, value in recording.meta.items()
        if key.startswith("kernel") and "before" in key
    }
    return f"{early or 'none do'}; stated error {facts.get('clock_error_ns')} ns"


def many_threads(_: Context) -> str:
    """Are launches of eighty threads all recorded?"""
    count = 80

    def work() -> None:
        threads = [threading.Thread(target=launch) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def launch() -> None:
        with CudaDriver().empty_kernel() as start:
            for _ in range(10):
                start()

    launch()
    recording = recorded(work)
    seen = int((recording.frame("kernels")["name"] == KERNEL_NAME).sum())
    return f"{seen} of {10 * count} kernels; lost: {recording.meta['lost']}"


def profiler_then_recording(context: Context) -> str:
    """Do a recording and torch.profiler both see kernels, whichever comes first?"""
    workload, torch = context.workload(), import_torch()

    def profile() -> int:
        with torch.profiler.profile() as profiler:
            workload.time_step()
        return sum("CUDA" in str(event.device_type) for event in profiler.events())

    answers = []
    for _ in range(2):
        recording = recorded(workload.time_step)
        status = collector_of(recording).get("cupti_status")
        answers += [
            f"recording: {len(recording.frame('kernels'))} kernels ({status})",
            f"profiler: {profile()} kernels",
        ]
    return "; ".join(answers)


def graph_in_second_block(_: Context) -> str:
    """Do kernels of a CUDA graph join a call in the second block of a process, too?"""
    torch = import_torch()
    a = torch.randn(256, 256, device="cuda")
    (a @ a).sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (a @ a).sum()

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    answers = []
    for _ in range(2):
        recording = recorded(replay)
        kernels, calls = recording.frame("kernels"), recording.frame("api_calls")
        joined = int(kernels["correlation_id"].isin(calls["correlation_id"]).sum())
        answers.append(f"{joined} of {len(kernels)} kernels")
    return f"first block {answers[0]}, second {answers[1]}; driver {CudaDriver().version()}"


def capture_under_recording(_: Context) -> str:
    """Does a capture in the default mode survive the collector's flushes, every 50 ms?"""
    torch = import_torch()
    a = torch.randn(256, 256, device="cuda")
    (a @ a).sum()

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            for _ in range(10):
                (a @ a).sum()
                time.sleep(0.03)

    recording = recorded(capture)
    return f"yes; lost: {recording.meta['lost']}"


def workspace_cap(_: Context) -> str:
    """Does CUDNN_CONV_WSCAP_DBG change the memory that a convolution takes?"""
    program = (
        "import torch\n"
        "torch.backends.cudnn.benchmark = True\n"  # the fastest algorithm, which has a workspace
        "c = torch.nn.Conv2d(256, 256, 3, padding=1).cuda()\n"
        "x = torch.randn(64, 256, 56, 56, device='cuda')\n"
        "c(x).sum().backward()\n"  # the choice, which tries all
        "torch.cuda.reset_peak_memory_stats(); c(x).sum().backward()\n"
        "print(torch.cuda.max_memory_allocated())"
    )
    peaks = {}
    for cap in (None, "1"):
        environment = {**os.environ, **({} if cap is None else {"CUDNN_CONV_WSCAP_DBG": cap})}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        peaks[cap] = int(done.stdout)
    return (
        f"{'yes' if peaks[None] != peaks['1'] else 'NO'}: peak {peaks[None]} B without, "
        f"{peaks['1']} B with 1 MiB"
    )


def collective_operator(_: Context) -> str:
    """Which operator launches an all-reduce of NCCL, by torch.profiler? One rank only."""
    torch = import_torch()
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        x = torch.ones(1 << 20, device="cuda")
        torch.distributed.all_reduce(x)
        with torch.profiler.profile() as profiler:
            torch.distributed.all_reduce(x)
            torch.cuda.synchronize()
        torch.distributed.destroy_process_group()
    return (
        ", ".join(
            sorted({event.name for event in profiler.events() if "reduce" in event.name.lower()})
        )
        or "none"
    )


def dirty_lines(context: Context) -> str:
    """What does a cold read cost beyond a hot one, far beyond the L2? 1 is right; more is
    write-back of the flush.
    """
    from curvescope.kernels.backends import open_backend
    from curvescope.kernels.memory import Memory
    from curvescope.kernels.method import BenchMeasurement, Method

    backend, times_ns = open_backend("cupy", context.device), {}
    for cache in ("hot", "cold"):
        measurement, method = BenchMeasurement(Memory("read", 1 << 30)), Method(cache=cache)
        while not measurement.done(method):
            measurement.take(backend, method)
        times_ns[cache] = statistics.median(measurement.durations_ns())
    hot_ns, cold_ns = times_ns["hot"], times_ns["cold"]
    return f"{cold_ns / hot_ns:.3f} times"


def energy_updates(context: Context) -> str:
    """How often is the source of energies updated, and is its power that of the driver?"""
    meter = find_meter(context.device)
    workload = context.workload()
    readings: list[tuple[int, float]] = []
    began_ns = time.monotonic_ns()
    while time.monotonic_ns() - began_ns < 3e9:
        workload.time_step()
        joules = meter.read()
        if joules is not None and (not readings or joules != readings[-1][1]):
            readings.append((time.monotonic_ns(), joules))
    if len(readings) < 2:
        return f"{meter.source.name}: {len(readings)} readings in 3 s"
    (first_ns, first_j), (last_ns, last_j) = readings[0], readings[-1]
    seconds = (last_ns - first_ns) / 1e9
    milliwatts = (
        None
        if context.device == "cpu"
        else find_device(context.device).read("nvmlDeviceGetPowerUsage")
    )
    said = (
        ""
        if milliwatts is None
        else f"; nvmlDeviceGetPowerUsage says {milliwatts / 1e3:.0f} W at the end"
    )
    step_ms = statistics.median(workload.time_step()[1] / 1e6 for _ in range(5))
    return (
        f"{meter.source.name}: {len(readings) - 1} changes in {seconds:.2f} s, read after every "
        f"step of {step_ms:.1f} ms; {(last_j - first_j) / seconds:.0f} W{said}"
    )


def range_profiler(context: Context) -> str:
    """Does CUPTI's range profiler count each kernel, in order?

    FLOPs should be n or 2 n, DRAM bytes at most 8 n.
    """
    torch = import_torch()
    sizes = [1 << power for power in (16, 20, 27)]
    tensors = [torch.zeros(n, device=context.device) for n in sizes]
    major, minor = torch.cuda.get_device_capability(context.device)

    def add() -> None:
        for one in tensors:
            one.add_(1.0)
        torch.cuda.synchronize()

    add()
    profiler = RangeProfiler()
    index = torch.device(context.device).index or 0
    counted = profiler.count_kernels(
        f"{major}.{minor}", index, CudaDriver().current_context(), add
    ).columns
    pairs = list(zip(sizes, counted, strict=False))
    flops = ", ".join(f"{columns['flops_executed'] / n:.2f}" for n, columns in pairs)
    moved = ", ".join(f"{columns['dram_bytes'] / n:.2f}" for n, columns in pairs)
    return (
        f"{len(counted)} of {len(sizes)} kernels; FLOPs / n {flops}; DRAM bytes / n {moved}; "
        f"{profiler.path}"
    )


CHECKS: tuple[Callable[[Context], str], ...] = (
    first_work, clock_under_load, event_pair, idle_before_step, earlier_profiler, device_facts, nvml_device,  # noqa: E501
    nvml_latency, device_record, environment_records, collector_overhead, clock_error, profiler_then_recording,  # noqa: E501
    graph_in_second_block, capture_under_recording, range_profiler, energy_updates, many_threads, workspace_cap,  # noqa: E501
    dirty_lines, collective_operator,
)  # fmt: skip


def answer(name: str, context: Context, path: str) -> bool:
    """Run a check and write its row; returns whether it broke."""
    check = {check.__name__: check for check in CHECKS}[name]
    broke = None
    try:
        said = check(context)
    except Exception as error:  # whatever breaks is the answer
        broke = error
        said = f"broke: {type(error).__name__}: {error}"
        traceback.print_exc()
    scripts.add_row(
        path, {"check": name, "question": " ".join(str(check.__doc__).split()), "answer": said}
    )
    return broke is not None


def main() -> int:
    names, device, network, batch, path = sys.argv[1:]
    answered = {row["check"] for row in scripts.read_rows(Path(path))}  # by a call that ended
    left = [name for name in names.split(",") if name not in answered]
    broke = [answer(name, Context(device, network, int(batch)), path) for name in left]
    return int(any(broke))


if __name__ == "__main__":
    scripts.run(main)
