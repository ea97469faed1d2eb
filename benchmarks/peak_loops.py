"""Counts the instructions in the loops that measure the peaks of the units, by architecture.

A scheduler issues one instruction a clock, so what is not the loop's own takes from a peak of
lanes. No GPU takes part: NVRTC compiles, and nvdisasm lists. Keeps the table `peak_loops`; its
newest architecture needs NVRTC 12.8 or nvcc:

    .venv-virtual/bin/python benchmarks/peak_loops.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.evidence import keep  # noqa: E402
from tests.kernels.disassembly import compile_own, disassemble, longest_loop  # noqa: E402

HEAD = ("architecture", "kernel", "instruction", "of its own", "in a round", "share")
ARCHITECTURES = (80, 90, 100)
# The kernels of kernels/cuda/peak.cu, and what each measures.
OWN = {
    "peak_fp32": "FFMA",
    "peak_fp64": "DFMA",
    "peak_fp16x2": "HFMA2",
    "peak_bf16x2": "HFMA2",
    "peak_bf16_tensor": "HMMA",
    "peak_tf32_tensor": "HMMA",
    "peak_fp64_tensor": "DMMA",
}


def count_loops(architecture: int, folder: Path) -> Iterator[list[str]]:
    """A row of the table for each kernel."""
    listing = disassemble(compile_own("peak", architecture, folder), architecture)
    for kernel, instruction in OWN.items():
        loop = longest_loop(listing, kernel)
        own = loop.count(instruction)
        share = f"{own / len(loop):.1%}"
        yield [f"sm_{architecture}", kernel, instruction, str(own), str(len(loop)), share]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows: list[list[str]] = []
        for architecture in ARCHITECTURES:
            rows += count_loops(architecture, Path(folder))
    keep("peak_loops", HEAD, rows)
    for row in rows:
        print(*row)


if __name__ == "__main__":
    main()
