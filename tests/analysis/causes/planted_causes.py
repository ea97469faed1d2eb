"""Sweeps with a planted cause from batch 8 to 16, for tests of what is named and for the confusion
matrix.

Each is a network of three layers on a GTX 1080 whose cost is fixed plus proportional, but for what
is planted. Kernels' times vary by a few percent from step to step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pandas as pd

from curvescope.analysis.causes.case import TermOperands
from curvescope.analysis.causes.context import Recorded
from curvescope.analysis.causes.expert_tokens import ExpertTokens
from curvescope.analysis.decompose.communication import slow_downs
from curvescope.analysis.decompose.functionals import excess
from curvescope.analysis.decompose.statistics import FASTER_HALF
from curvescope.analysis.decompose.terms import KERNELS, Key
from curvescope.analysis.diagnosis.estimate import Estimates
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.analysis.diagnosis.split import explain_functional
from curvescope.profiling.hardware.limits import Hardware, hardware_of

from ..synthetic import profiled_step, times_of, work_of

BATCHES = (4, 8, 16)
GTX_1080 = hardware_of({"device": {"name": "GeForce GTX 1080", "kind": "cuda"}})
CPU = hardware_of({"device": {"name": "AMD EPYC", "kind": "cpu"}})
_LAST = BATCHES[-1]
_CONV3 = Key("conv3", "backward", KERNELS)
_SECOND_NS = 10**9


@dataclass(eq=False)  # so that what is made of one can be kept
class Plan:
    """What a planted sweep does; functions are of the batch size."""

    batches: tuple = BATCHES
    # Layer conv3 backward, and conv1 forward: name, time in ms, further columns.
    kernel: object = field(
        default=lambda b: ("maxwell_scudnn_128x64_relu_small_nn_v1", 3.0 * b, {})
    )
    first: object = field(default=lambda b: ("maxwell_scudnn_128x32_relu_small_nn_v1", 2.0 * b, {}))
    idle_ms: object = field(default=lambda b: 2.0)
    # of unprofiled steps, beyond that of profiled ones
    unseen_ms: object = field(default=lambda b: 0.0)
    jitter: float = 0.01  # standard deviation of a kernel's time
    # cudaMalloc and cudaFree inside a profiled step
    allocation_ms: object = field(default=lambda b: 0.0)
    clock_hz: object = None
    slow: object = field(default=lambda b: 1.0)  # factor on every kernel
    peak_memory_bytes: object = None
    host_use: object = None  # by batch size and duration in ns of a timed step: columns of `steps`
    hardware: Hardware = GTX_1080
    # whether every other step of the last batch size takes 1.3 times as long
    two_paces: bool = False
    # factor on every other timed step of the last batch size, of which T then is the mean
    slow_steps: float = 1.0
    optimizer_ms: float = 5.0
    # equal calls into which the kernel's time is divided
    calls: object = field(default=lambda b: 1)
    # of these, the last ones: beside an all-reduce, and at the last batch size twice as long
    beside: int = 0
    compiled_code: object = None  # what torch.compile's counters tell
    graph_batch: object = None  # that the replayed CUDA graph was captured for
    operands: object = None  # of conv3 backward, as are the copies
    copies_ms: object = None


def _at_last(last, before):
    """A function of the batch size: one value at the last one, another at the others."""
    return lambda batch: last if batch == _LAST else before


def _switch(batch):
    if batch < _LAST:
        return "cudnn::winograd_nonfused::winogradForwardData4x4<float, float>", 3.0 * batch, {}
    return "cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", 7.0 * batch, {}


def _waves(batch):
    # 256 threads and 64 registers: 4 blocks per SM, 80 in a wave. 40, 80, then 164 blocks: 1, 1 and
    # 3 waves.
    geometry = {
        "block_x": 256,
        "block_y": 1,
        "block_z": 1,
        "registers_per_thread": 64,
        "shared_memory_bytes": 16_384,
    }
    blocks = {4: 40, 8: 80, 16: 164}[batch]
    grid = {"grid_x": blocks, "grid_y": 1, "grid_z": 1}
    return "maxwell_sgemm_128x64_nn", 30.0 * -(-blocks // 80), {**grid, **geometry}


def blocks_of(batch, size):
    """The samples that are computed, in whole blocks."""
    return -(-batch // size) * size


def _outgrown(batch):
    # One launch moves 100 kB per sample: 1.6 MB at 16 would fit 2 MiB of L2, so 200 kB: 1.6 MB at
    # 8, 3.2 MB at 16.
    size = 200_000 * batch
    return (
        "vectorized_elementwise_kernel",
        (3.0 if batch < _LAST else 6.0) * batch,
        {"bytes_compulsory": size},
    )


def _below_the_ridge(batch):
    # Ridge 27.7 FLOP/B: 55 until batch 8, then DRAM traffic of 8 times as much.
    traffic = 10**8 * batch * (1 if batch < _LAST else 8)
    flops = 55 * 10**8 * batch
    roof_ms = 1e3 * max(flops / 8.87296e12, traffic / 320.3e9)
    return "maxwell_sgemm_128x64_nn", 3.0 * roof_ms, {"flops": flops, "dram_bytes": traffic}


def _half_a_core(batch, duration_ns):
    waited_ns = duration_ns // 2 if batch == _LAST else 0
    cpu_ns = duration_ns - waited_ns
    return {
        "cpu_time_ns": cpu_ns,
        "run_queue_wait_ns": waited_ns,
        "system_time_ns": 0,
        "page_faults": 100,
    }


def _third_in_the_system(batch, duration_ns):
    last = batch == _LAST
    faults = {
        "system_time_ns": duration_ns // 3 if last else 0,
        "page_faults": 20_000 if last else 100,
    }
    return {"cpu_time_ns": duration_ns, "run_queue_wait_ns": 0, **faults}


def _half_the_threads(batch, duration_ns):
    cpu_ns = 2 * duration_ns if batch < _LAST else duration_ns
    return {"cpu_time_ns": cpu_ns, "run_queue_wait_ns": 0, "system_time_ns": 0, "page_faults": 100}


def _twice_the_threads(batch, duration_ns):
    cpu_ns = 2 * duration_ns if batch == _LAST else duration_ns
    return {"cpu_time_ns": cpu_ns, "run_queue_wait_ns": 0, "system_time_ns": 0, "page_faults": 100}


PLANS = {
    "algorithm switch": Plan(kernel=_switch),
    "more calls": Plan(
        kernel=lambda b: ("maxwell_sgemm_128x64_nn", (12.0 if b == _LAST else 3.0) * b, {}),
        calls=_at_last(4, 1),
    ),
    "more work per sample": Plan(
        kernel=lambda b: ("maxwell_sgemm_128x64_nn", 3.0 * b**2 / 8, {"op": "aten::bmm", "flops": 10**9 * b**2})
    ),
    "wave and tile quantisation": Plan(kernel=_waves),
    "padding to blocks": Plan(
        kernel=lambda b: ("matmul brg_matmul:avx10_1_512_amx", 3.0 * blocks_of(b, 16), {}),
        batches=(4, 8, 16, 17, 24, 32, 33, 48),
        hardware=CPU,
    ),
    "graph padding": Plan(
        kernel=lambda b: ("maxwell_sgemm_128x64_nn", 3.0 * (b if b < _LAST else 32), {}),
        graph_batch=lambda b: b if b < _LAST else 32,
    ),
    "memory pressure": Plan(
        allocation_ms=_at_last(60.0, 0.0),
        idle_ms=_at_last(65.0, 2.0),
        peak_memory_bytes=lambda b: 4e8 * b,
    ),
    "page faults": Plan(
        host_use=_third_in_the_system, slow=_at_last(1.5, 1.0), idle_ms=lambda b: 0.0, hardware=CPU
    ),
    "launch- or host-bound": Plan(idle_ms=_at_last(65.0, 2.0)),
    "copies from and to the host": Plan(
        kernel=lambda b: ("Memcpy HtoD (Pageable -> Device)", (3.0 if b < _LAST else 6.0) * b, {})
    ),
    "cache capacity": Plan(kernel=_outgrown),
    "roof change": Plan(kernel=_below_the_ridge),
    "throttling": Plan(
        clock_hz=lambda b: 1.2e9 if b == _LAST else 1.7e9,
        slow=_at_last(1.7 / 1.2, 1.0),
    ),
    "kernels beside communication": Plan(calls=lambda b: 8, beside=4),
    "CPU contention": Plan(host_use=_half_a_core, slow=_at_last(2.0, 1.0), hardware=CPU),
    "idle threads": Plan(host_use=_half_the_threads, slow=_at_last(2.0, 1.0), hardware=CPU),
    "values of the operands": Plan(
        slow=_at_last(2.0, 1.0),
        operands=lambda b: TermOperands(denormals=0.5 if b == _LAST else 0.0),
        hardware=CPU,
    ),
    "start of threads": Plan(host_use=_twice_the_threads, slow=_at_last(2.0, 1.0), hardware=CPU),
    "copies of operands": Plan(
        kernel=lambda b: ("mkl SGEMM(N,N)", 3.0 * b, {"op": "aten::bmm", "flops": 10**9 * b}),
        copies_ms=lambda b: 60.0 if b == _LAST else b / 2,
        hardware=CPU,
    ),
    "precision": Plan(
        slow=_at_last(2.0, 1.0),
        operands=lambda b: TermOperands({"aten::mm": frozenset({"float32" if b == _LAST else "bfloat16"})}),
        hardware=CPU,
    ),
    "recompile limit": Plan(
        slow=_at_last(2.0, 1.0),
        compiled_code=lambda b: "none" if b == _LAST else "own",
        hardware=CPU,
    ),
    "kernels of dynamic shapes": Plan(
        slow=_at_last(2.0, 1.0),
        compiled_code=lambda b: "shared" if b == _LAST else "own",
        hardware=CPU,
    ),
    "slow library call": Plan(
        kernel=lambda b: ("maxwell_sgemm_128x64_nn", (3.0 if b < _LAST else 6.0) * b, {"flops": 10**10 * b})
    ),
    # 4 experts of 16 have a token at 4 and at 8, and all at 16.
    "weights of experts": Plan(
        kernel=lambda b: ("mkl SGEMM(T,N)", 10.0 * (16 if b == _LAST else 4), {}),
        operands=lambda b: TermOperands(
            experts=ExpertTokens((2,) * 16 if b == _LAST else (b, b // 2, 1, 1), 16)
        ),
        hardware=CPU,
    ),
    # 12.8 GB at 320.3 GB/s: 40 of 80 ms.
    "weights read every step": Plan(
        kernel=lambda b: (
            "maxwell_sgemm_128x64_nn",
            40.0 + 2.0 * b,
            {"op": "aten::addmm", "flops": 10**9 * b, "bytes_compulsory": 12_800_000_000},
        )
    ),
    "optimizer work": Plan(optimizer_ms=20.0),
    "not significant": Plan(jitter=0.4, two_paces=True),
    "fixed cost amortised": Plan(kernel=lambda b: ("maxwell_sgemm_128x64_nn", 80.0, {})),
    "profiling overhead": Plan(unseen_ms=_at_last(40.0, 0.0)),
    "slow steps": Plan(slow_steps=2.5),
    "unexplained": Plan(kernel=lambda b: ("maxwell_sgemm_128x64_nn", (3.0 if b < _LAST else 6.0) * b, {})),
}  # fmt: skip


def planted(cause, seed, jitter=None, rounds=8):
    """Steps, kernels and what else is recorded of a sweep with the cause (its name, or a plan) in
    it.
    """
    plan, random = cause if isinstance(cause, Plan) else PLANS[cause], np.random.default_rng(seed)
    jitter = plan.jitter if jitter is None else jitter
    steps, kernels, launches, clocks = [], [], [], []

    def layers(batch):
        name, time_ms, further = plan.kernel(batch)
        call = ("conv3", "backward", name, time_ms / plan.calls(batch), further)
        slow = (*call[:3], call[3] * (2 if batch == _LAST else 1), further)
        rows = [
            ("conv1", "forward", *plan.first(batch)),
            *[call] * (plan.calls(batch) - plan.beside),
            *[slow] * plan.beside,
            *(
                [(*call[:2], "aten::copy_", plan.copies_ms(batch), {"op": "aten::bmm"})]
                if plan.copies_ms
                else []
            ),
            (None, "optimizer", "at::native::multi_tensor_apply_kernel<4>", plan.optimizer_ms, {}),
        ]
        noise = np.exp(jitter * random.standard_normal(len(rows)))
        return [
            (la, ph, na, t * plan.slow(batch) * n, fu)
            for (la, ph, na, t, fu), n in zip(rows, noise, strict=True)
        ]

    for round_ in range(rounds):
        for batch in plan.batches:
            for index in range(4):
                profiled = index == 3
                step = len(steps)
                rows = layers(batch)
                row, launched = profiled_step(step, batch, round_, rows, plan.idle_ms(batch))
                row.update(index=index, profiled=profiled)
                if plan.peak_memory_bytes:
                    row["peak_memory_bytes"] = plan.peak_memory_bytes(batch)
                if plan.compiled_code:
                    row["compiled_code"] = plan.compiled_code(batch)
                if plan.graph_batch:
                    row["graph_batch"] = plan.graph_batch(batch)
                if profiled:
                    kernels += [*launched, *_all_reduce(launched[-1 - plan.beside : -1])]
                    launches += _allocations(step, row, plan.allocation_ms(batch))
                else:
                    pace = 1.3 if plan.two_paces and batch == _LAST and index % 2 else 1.0
                    pace *= plan.slow_steps if batch == _LAST and index % 2 else 1.0
                    row["duration_ns"] = round(
                        row["duration_ns"] * pace + plan.unseen_ms(batch) * 1e6
                    )
                if plan.host_use:
                    row.update(plan.host_use(batch, row["duration_ns"]))
                steps.append(row)
                if plan.clock_hz:
                    middle = row["start_ns"] + row["duration_ns"] // 2
                    reasons = "sw_power_cap" if batch == _LAST else ""
                    clocks.append((middle, int(plan.clock_hz(batch)), reasons))
    of_steps, work = pd.DataFrame(steps), pd.DataFrame(kernels)
    recorded = Recorded(
        of_steps,
        pd.DataFrame(launches) if launches else None,
        pd.DataFrame(clocks, columns=["start_ns", "sm_clock_hz", "throttle_reasons"])
        if clocks
        else None,
        plan.hardware,
        slow_downs=slow_downs(work_of(work), of_steps) if plan.beside else None,
        operands={b: {_CONV3: plan.operands(b)} for b in BATCHES} if plan.operands else {},
    )
    return recorded.steps, work, recorded


def _all_reduce(beside):
    """One all-reduce that runs as long as these kernels, which follow one another."""
    if not beside:
        return []
    end = beside[-1]["start_ns"] + beside[-1]["duration_ns"]
    times = {"start_ns": beside[0]["start_ns"], "duration_ns": end - beside[0]["start_ns"]}
    return [
        {
            **beside[0],
            **times,
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "layer": None,
            "phase": None,
        }
    ]


def _allocations(step, row, time_ms):
    if not time_ms:
        return []
    half = round(time_ms * 1e6 / 2)
    end = row["start_ns"] + row["duration_ns"]
    return [
        {"name": name, "start_ns": end - place * half, "duration_ns": half, "step": step}
        for place, name in ((2, "cudaFree"), (1, "cudaMalloc"))
    ]


@cache
def diagnosed(cause):
    """The diagnosis of a planted sweep (its cause, or a plan), and what was recorded beside its
    kernels.
    """
    steps, kernels, beside = planted(cause, 1)
    plan = cause if isinstance(cause, Plan) else PLANS[cause]
    statistic = "median" if plan.slow_steps == 1.0 else FASTER_HALF
    times = times_of(steps, kernels)
    recorded = replace(beside, kernel_times=times, statistic=statistic)
    return diagnose(recorded), recorded


def explained(cause, functional=None, **beside):
    """A functional of a planted sweep, by default the excess from 8 to 16, with some of what is
    recorded replaced.
    """
    found, recorded = diagnosed(cause)
    functional, recorded = functional or excess(8, 16), replace(recorded, **beside)
    return explain_functional(functional, Estimates(found.curve, found.terms), recorded)
