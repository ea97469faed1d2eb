"""How long the analysis of a large sweep takes, and how much memory: ten batch sizes, a million
kernels.

A process of its own opens a synthetic recording, explains its anomalies, and draws the report:
seconds, also of the processor, and peak resident memory, medians of three runs, each beside its
target.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from curvescope.profiling.recording.store import RecordingWriter

BATCHES = tuple(2**n for n in range(10))
LAYERS, ROUNDS, KERNELS = 100, 5, 1_000_000
TARGET_S, TARGET_BYTES = 5.0, 1 << 30

ANALYSE = """
import json, sys, time
began = time.perf_counter()
def peak_bytes():  # not ru_maxrss, which begins with what the process that started this one held
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
from curvescope.analysis.diagnosis.explain import diagnose
from curvescope.analysis.render.html import render_html
from curvescope.profiling.recording.store import open_recording
from curvescope.analysis.diagnosis.read import read
from curvescope.analysis.render.report_data import report_document, report_input
imported = time.perf_counter()
run = open_recording(sys.argv[1])
recorded = read(run)
loaded = time.perf_counter()
found = diagnose(recorded, recording=run)
assert found.explanations
diagnosed, processor = time.perf_counter(), time.process_time()
peak = peak_bytes()
page = render_html(report_document([report_input(run)], "benchmark"))
print(json.dumps({"import": imported - began, "load": loaded - imported, "diagnose": diagnosed - loaded,
                  "report": time.perf_counter() - diagnosed, "peak": peak, "processor": processor,
                  "page": len(page.encode()),
                  "peak with report": peak_bytes()}))
"""  # noqa: E501


def write(path: Path) -> None:
    """A recording of ten batch sizes whose kernels, a million, jump in one layer at the largest."""
    random = np.random.default_rng(0)
    per_step = KERNELS // (len(BATCHES) * ROUNDS)
    meta = {
        "recording_type": "sweep",
        "network": "synthetic",
        "batches": list(BATCHES),
        "device": {"name": "GeForce GTX 1080"},
    }
    with RecordingWriter(path, meta) as writer:
        step, start_ns, steps = 0, 0, []
        for round_ in range(ROUNDS):
            for batch in BATCHES:
                layer = np.arange(per_step) % LAYERS
                each_ns = 2000 + 40.0 * batch * (1 + 99 * (layer == 7) * (batch == BATCHES[-1]))
                duration = (each_ns * np.exp(0.02 * random.standard_normal(per_step))).astype(
                    np.int64
                )
                begin = start_ns + np.concatenate([[0], np.cumsum(duration + 500)[:-1]])
                window = int(duration.sum() + 500 * per_step)
                kernels = {
                    "name": np.where(
                        layer == 7,
                        "volta_sgemm_64x64_nt",
                        "volta_scudnn_128x64_relu_interior_nn_v1",
                    ),
                    "start_ns": begin,
                    "duration_ns": duration,
                    "correlation_id": np.arange(per_step),
                    "phase": np.where(np.arange(per_step) < per_step // 3, "forward", "backward"),
                    "layer": [f"block{i // 10}.conv{i}" for i in layer],
                }
                alike = {
                    "device": 0,
                    "stream": 7,
                    "step": step,
                    "registers_per_thread": 64,
                    "source": "cupti",
                }
                shape = {
                    "grid_x": 16 * batch,
                    "grid_y": 1,
                    "grid_z": 1,
                    "block_x": 256,
                    "block_y": 1,
                    "block_z": 1,
                }
                table = pd.DataFrame(kernels).assign(**alike, **shape, shared_memory_bytes=16_384)
                writer.write("kernels", table)
                for index in range(4):
                    noisy = round(window * float(np.exp(0.01 * random.standard_normal())))
                    steps.append(
                        {
                            "step": step,
                            "batch": batch,
                            "round": round_,
                            "index": index,
                            "mode": "training",
                        }
                        | {
                            "start_ns": start_ns,
                            "profiled": index == 0,
                            "duration_ns": noisy if index else window,
                        }
                    )
                    step += 1
                start_ns += 2 * window
        writer.write("steps", pd.DataFrame(steps))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "run")
        runs = []
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, "-c", ANALYSE, str(Path(folder) / "run")],
                check=True,
                capture_output=True,
                text=True,
            )
            runs.append(json.loads(done.stdout))
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    seconds = figures["import"] + figures["load"] + figures["diagnose"]
    print(
        f"import {figures['import']:.2f} s, load {figures['load']:.2f} s, diagnose "
        f"{figures['diagnose']:.2f} s"
    )
    print(
        f"analysis: {seconds:.2f} s, {figures['processor']:.2f} s of processor time (target "
        f"{TARGET_S:g} s)"
    )
    print(f"memory: {figures['peak'] / 2**20:.0f} MiB (target 1024 MiB)")
    print(f"report besides: {figures['report']:.2f} s, {figures['peak with report'] / 2**20:.0f} MiB, "  # noqa: E501
          f"page {figures['page'] / 1e6:.2f} MB (target 5 MB)")  # fmt: skip
    return int(seconds > TARGET_S or figures["peak"] > TARGET_BYTES)


if __name__ == "__main__":
    sys.exit(main())
