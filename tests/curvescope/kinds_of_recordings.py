"""Every kind of recording that a command may be given, each under a name with what writes it.

Stored recordings, seeds of the readers and makers of other tests join by themselves.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from curvescope.profiling.measure.protocol import PROTOCOLS
from curvescope.profiling.measure.sites import process
from curvescope.profiling.recording.archive import write_archive
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..analysis.planted_energy import write_energy
from ..analysis.ranks.planted_ranks import write_ranks
from ..profiling.readers.fuzzing import SEEDS
from ..profiling.readers.nsys_export import kernel, launch, push_pop, write_export
from ..shared import PROFILES, RECORDINGS
from . import scale_models
from .recordings import META, write_planted
from .tested_recording import write_tested

OWN_STEP = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(x).relu()


def make_step(batch, width=64):
    model = nn.Sequential(nn.Linear(64, width), Block(width), Block(width), nn.Linear(width, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(batch, 64)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    step.module = model
    return step
"""
PROGRAM = """
import sys, time

for number in range(400):
    begin = time.perf_counter()
    sum(range(2000 * int(sys.argv[1])))
    print(f"step {number}: {1e3 * (time.perf_counter() - begin):.4f} ms", flush=True)
"""
TABLE = "problem,batch,time_ms,device\n" + "".join(
    f"{problem},{batch},{factor * (1 + batch) + 9 * (batch > 8)},Card\n"
    for problem, factor in (("conv", 2), ("fc", 5))
    for batch in (1, 2, 4, 8, 16, 32)
)
UNTESTED = ("--quick", "--experiments", "0")
FEW = replace(PROTOCOLS["quick"], rounds=(3, 3), steps_per_visit=(2, 2), time_limit_s=600.0)
Command = Callable[..., object]  # `run_command` of tests/conftest.py
Make = Callable[[Path, Command], object]


class Kind(NamedTuple):
    """How a recording is written, or a folder of several, at a path that is free."""

    write: Make
    slow: bool = False  # it loads torch, or takes seconds to make
    exhaustive: bool = False  # much like another kind

    def make(self, path: Path, command: Command) -> None:
        """Write it; what is measured has the same few steps on any machine."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(PROTOCOLS, "quick", FEW)
            patch.setattr(process, "_ROUNDS", math.inf)  # in one process
            self.write(path, command)


def _diagnose_own_step(path: Path, command: Command, *axes: str) -> None:
    (path.parent / "own_step.py").write_text(OWN_STEP)
    sizes = axes or ("--batch", "1,2,4")
    words = (
        "--step",
        "own_step.py:make_step",
        *sizes,
        "--device",
        "cpu",
        "--probe",
        "0",
        *UNTESTED,
    )
    command("diagnose", *words, "-o", path, cwd=path.parent, code=0)


def _diagnose_program(path: Path, command: Command) -> None:
    (path.parent / "program.py").write_text(PROGRAM)
    words = ("--batch", "1,2", *UNTESTED, "--step-line", "step {n}: {ms} ms")
    program = ("--", sys.executable, "program.py", "{batch}")
    command("diagnose", *words, "-o", path, *program, cwd=path.parent, code=0)


def _measure_memory(path: Path, command: Command) -> None:
    (path.parent / "own_step.py").write_text(OWN_STEP)
    words = ("--step", "own_step.py:make_step", "--batch", "1,2,4", "--device", "cpu")
    command("diagnose", "--of", "memory", *words, "-o", path, cwd=path.parent, code=0)


def _bench(path: Path, command: Command) -> None:
    axes = ("--axis", "n=256,512", "--axis", "m=512", "--axis", "k=512")
    words = ("gemm", *axes, "--time-limit", "0.05")
    command("bench", *words, "-o", path, cwd=path.parent, code=0)


def _model(path: Path, command: Command) -> None:
    words = ("vgg_a", "--card", "gtx1080", "--batch", "16..64")
    command("diagnose", *words, "-o", path, cwd=path.parent, code=0)


def _import_table(path: Path, command: Command) -> None:
    (path.parent / "times.csv").write_text(TABLE)
    command("import", "times.csv", "-o", path, cwd=path.parent, code=0)


def _import_sweep(path: Path, command: Command) -> None:
    files = sorted(PROFILES.glob("parttrans_bs*"))
    words = ("--as", "sweep", "--batch", "128,32,512", *files)
    command("import", *words, "-o", path, cwd=path.parent, code=0)


def _scale(path: Path, command: Command) -> None:
    network = ("scale_models:build", "--input-shape", "64", "--device", "cpu", "--threads", "1")
    words = ("--devices", "1,2", "--at", "8", "--quick", "--time-limit", "0.1")
    where = Path(scale_models.__file__).parent
    command("scale", "measure", *network, *words, "-o", path, cwd=where, code=0)


def _begin(path: Path, _: Command) -> None:
    """What a kill leaves before the first part is written."""
    RecordingWriter(path, META)


def _archive(path: Path, _: Command) -> None:
    write_planted(path.parent / "packed")
    write_archive(open_recording(path.parent / "packed"), path)


def _profile_only(path: Path, _: Command) -> None:
    """A sweep whose timed steps are missing."""
    write_planted(path, keep=lambda steps: steps[steps["profiled"]])


def _import_profile(path: Path, command: Command, *, contents: Callable[[], bytes]) -> None:
    file = path.parent / "profile"
    file.write_bytes(contents())
    command("import", file, "-o", path, cwd=path.parent, code=0)


def _import_unnamed_layers(path: Path, command: Command) -> None:
    """Alike layers with a sign in their names that ours have: TensorRT names those so that have no
    name.
    """
    unnamed = [f"(Unnamed Layer* {number}) [Plugin]" for number in (76, 77)]
    ranges, launches, kernels = [push_pop("ExecutionContext::execute", 0, 10_000)], [], []
    for number, name in enumerate(["conv1", *unnamed, "conv2"], 1):
        start = 2000 * number
        ranges.append(push_pop(name, start, start + 900))
        launches.append(launch(number, start + 100))
        kernels.append(kernel(number, start + 200, start + 800, gridX=2 + (name not in unnamed)))
    file = path.parent / "profile.sqlite"
    write_export(file, ranges=ranges, launches=launches, kernels=kernels)
    command("import", file, "-o", path, cwd=path.parent, code=0)


MADE = {
    "own step": Kind(partial(_diagnose_own_step), slow=True),
    "program": Kind(_diagnose_program, slow=True),
    "peak memory": Kind(_measure_memory, slow=True),
    "bench": Kind(_bench, slow=True),
    "modelled": Kind(_model),
    "table of times": Kind(_import_table),
    "imported sweep": Kind(_import_sweep, slow=True),
    "energy": Kind(lambda path, _: write_energy(path, lambda batch: 300 if batch == 16 else 200)),
    "planted sweep": Kind(lambda path, _: write_planted(path)),
    "tested causes": Kind(lambda path, _: write_tested(path)),
    "profiled steps alone": Kind(_profile_only),
    "begun": Kind(_begin),
    "archive": Kind(_archive),
    "unnamed layers": Kind(_import_unnamed_layers),
    "profile itself": Kind(lambda path, _: path.write_bytes(SEEDS["pytorch_json"][0]())),
    "empty folder": Kind(lambda path, _: path.mkdir()),
    "other file": Kind(lambda path, _: path.write_text("nothing to read")),
    "ranks": Kind(lambda path, _: write_ranks(path, 4)),
    "scaling": Kind(_scale, slow=True),
}


def _seed(reader: str, number: int) -> bytes:
    return SEEDS[reader][number]()


def of_readers() -> dict[str, Kind]:
    """A kind for each seed of each reader."""
    kinds = {}
    for reader in SEEDS:
        for number in range(len(SEEDS[reader])):
            contents = partial(_seed, reader, number)
            write = partial(_import_profile, contents=contents)
            kinds[f"{reader} {number}"] = Kind(write, exhaustive=number > 0)
    return kinds


def of_stored() -> dict[str, Kind]:
    """A kind for each stored recording; what is said of them, test_stored_recordings asks."""

    def copy(path: Path, _: Command, *, stored: Path) -> None:
        shutil.copytree(stored, path)

    return {
        f"{folder.parent.name} {folder.name}": Kind(partial(copy, stored=folder), exhaustive=True)
        for folder in RECORDINGS
    }
