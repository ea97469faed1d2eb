"""The stages of the GPU campaign, the most valuable first. Every stage stands alone and fits eight minutes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvescope.profiling.readers import metrics

_HERE = shlex.quote(str(Path(__file__).resolve().parent))
_ROOT = shlex.quote(str(Path(__file__).resolve().parents[2]))
_CUBINS = ("gemm", "conv", "launch", "peak", "memory", "latency")
_BENCHES = {
    "torch": ("gemm", "conv", "launch", "memory", "transfer"),
    "cupy": _CUBINS,
    "numba": ("gemm", "memory"),
    "pycuda": _CUBINS,
}
BACKENDS = tuple(_BENCHES)
MODES = ("forward", "training")


@dataclass(frozen=True)
class Scale:
    """How much is measured: all of it on a GPU, or as little as shows that every path runs.

    Attributes:
        device: `cuda:0` or `cpu`.
        batches: of the cost curves.
        seconds: time limit of one cost curve.
        networks: of the cost curves, by part.
        step_network: network of single steps.
        step_batch: batch size of single steps.
        counted: networks whose DRAM bytes are measured.
        tested: networks whose causes are tested by experiment.
        experiments_s: time limit of the experiments on one of them, seconds.
        replayed: share of a step's time whose operators are replayed alone.
        problem_s: time limit of one benchmarked problem, seconds.
    """

    device: str
    batches: str
    seconds: int
    networks: Mapping[str, tuple[str, ...]]
    step_network: str
    step_batch: int
    counted: tuple[str, ...]
    tested: tuple[str, ...]
    experiments_s: int
    replayed: str
    problem_s: float


FULL = Scale(
    "cuda:0",
    "1..256",
    25,
    {
        "small": ("alexnet", "overfeat", "googlenet"),
        "vgg": ("vgg_a", "vgg16"),
        "deep": ("resnet50", "bert_base"),
    },
    "resnet50",
    64,
    ("alexnet", "resnet50"),
    ("alexnet", "vgg_a", "resnet50"),
    120,
    "99%",
    2,
)
REHEARSAL = Scale(
    "cpu",
    "1,2",
    1,
    {"small": ("alexnet",), "deep": ("googlenet",)},
    "alexnet",
    1,
    ("alexnet",),
    ("alexnet",),
    5,
    "80%",
    0.02,
)


@dataclass(frozen=True)
class Command:
    """One command of a stage.

    Attributes:
        line: command line as for a shell; `curvescope` and `python` stand for this Python's own.
        output: file for its standard output; None for the stage's log.
        needs: program that must be on PATH; without it the command is skipped, and the log says so.
        package: Python package that must be installed, likewise.
        environment: variables to set.
        cuda: whether it makes sense on a GPU only.
    """

    line: str
    output: str | None = None
    needs: str | None = None
    package: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False

    @property
    def argv(self) -> list[str]:
        """The words that are run."""
        return [word for part in shlex.split(self.line) for word in _OWN.get(part, [part])]


_OWN = {"curvescope": [sys.executable, "-m", "curvescope.cli"], "python": [sys.executable]}


@dataclass(frozen=True)
class Stage:
    """A part of the campaign.

    Attributes:
        name: name of its folder.
        minutes: expected duration on a GPU.
        says: what it shows.
        commands: commands to run in order in the stage's folder; one that fails does not stop the next.
    """

    name: str
    minutes: int
    says: str
    commands: tuple[Command, ...]


def stages(scale: Scale) -> tuple[Stage, ...]:
    """Every stage at that scale, the most valuable first: what later work without a GPU needs, then answers."""
    sweeps = {name: _sweep(scale, name, networks) for name, networks in scale.networks.items()}
    collected = {name: _collected(scale, name, networks) for name, networks in scale.networks.items()}
    experiments = [_experiments(scale, network) for network in scale.tested]
    first, *others = scale.networks
    return (
        _machine(),
        _records(scale),
        sweeps[first],
        _script(scale, "checks", 5, "what only a card can answer, question by question"),
        experiments[0],
        collected[first],
        _script(scale, "residual", 2, "what an earlier profiler leaves behind in a process"),
        _tests(),
        _counters(scale),
        _ceilings(scale),
        *experiments[1:2],
        _script(scale, "overhead", 7, "what the collector, the ranges and torch.profiler add to the same step"),
        _energy(scale),
        *experiments[2:],
        *(one[name] for name in others for one in (sweeps, collected)),
        _do_bench(),
        _datasheet(),
        _memory_pressure(scale),
        *(_operators(scale, backend) for backend in BACKENDS),
    )


def _script(scale: Scale, name: str, minutes: int, says: str) -> Stage:
    """A stage of one script, on the step of the scale; the script writes NAME.md."""
    step = f"{scale.step_network} {scale.device} {scale.step_batch}"
    order = f"{scale.device} {scale.step_network} {scale.step_batch}" if name == "checks" else step
    return Stage(name, minutes, says, (Command(f"python {_HERE}/{name}.py {order} {name}.md", package="torch"),))


def _checked(scale: Scale, *recordings: str, **limits: Any) -> Command:
    """Fails the stage if one of its recordings is empty."""
    return Command(f"python {_HERE}/check_recording.py {scale.device} recorded.md {' '.join(recordings)}", **limits)


def _machine() -> Stage:
    return Stage(
        "machine",
        1,
        "the device, its driver and the versions",
        (
            Command("curvescope doctor --json", "doctor.json"),
            Command("nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,MEMORY", "nvidia_smi.txt", needs="nvidia-smi"),
        ),
    )


def _records(scale: Scale) -> Stage:
    device = f"--device {scale.device}"
    small_step = f"curvescope step alexnet --batch 4 --steps 1 --warm-up 0 {device}"
    program = f"python {_HERE}/recorded_program.py"
    wanted = ",".join(metrics.wanted("ncu"))

    def raw(folder: str) -> dict[str, str]:
        return {"CURVESCOPE_RAW_BUFFERS": folder}

    return Stage(
        "records",
        5,
        "real records as test data: CUPTI's buffers, collector recordings, a torch trace, a CSV of ncu",
        (
            # Without torch: what the driver alone launches.
            Command(
                f"curvescope record -o driver -- {program} driver", environment=raw("driver_raw_buffers"), cuda=True
            ),
            Command(f"curvescope record -o collector -- {small_step}", environment=raw("raw_buffers"), package="torch"),
            Command(
                f"curvescope record -o program -- {program} driver copy streams graph",
                environment=raw("program_raw_buffers"),
                package="torch",
                cuda=True,
            ),
            Command(f"{program} blocks .", environment=raw("blocks_raw_buffers"), package="torch", cuda=True),
            Command(f"python {_HERE}/torch_trace.py alexnet {scale.device} 4 torch_trace.json", package="torch"),
            Command(
                f"ncu --csv --page=raw --clock-control=none --cache-control=none --launch-count=60 --metrics={wanted} "
                f"--log-file=ncu.csv {small_step}",
                needs="ncu",
                package="torch",
                cuda=True,
            ),
            Command(f"python {_HERE}/test_data.py test_data"),
            _checked(scale, "driver", cuda=True),
            _checked(scale, "collector", "program", "block-1", "block-2", package="torch", cuda=True),
        ),
    )


def _tests() -> Stage:
    return Stage(
        "tests",
        6,
        "the native library built on this machine, and the tests that need a GPU",
        (
            # With the compiler, the build tools and the headers of this machine, which may have no network.
            Command(
                f"python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir wheel {_ROOT}",
                package="scikit_build_core",
            ),
            Command(f"python -m pytest -m gpu -q -p no:cacheprovider {_ROOT}/tests", "pytest.txt", package="pytest"),
        ),
    )


def _ceilings(scale: Scale) -> Stage:
    return Stage(
        "ceilings",
        5,
        "compute peaks per precision and bandwidth per memory level",
        (
            Command(f"curvescope bench ceilings --device {scale.device} --json -o recording", "ceilings.json"),
            Command(f"python {_HERE}/check_benches.py measured.md ceilings.json"),
        ),
    )


def _operators(scale: Scale, backend: str) -> Stage:
    sizes = {
        "gemm": "--axis n=256,1024,4096" if scale is FULL else "--axis n=64",
        "conv": f"--axis n={'8,16,64' if scale is FULL else '1'} --axis direction=fwd,bwd_data,bwd_weights",
    }
    commands = [
        Command(
            f"curvescope bench {what} {sizes.get(what, '')} --backend {backend} --device {scale.device} "
            f"--time-limit {scale.problem_s} --json -o {what}-{backend}",
            f"{what}-{backend}.json",
            package=backend,
        )
        for what in _BENCHES[backend]
    ]
    documents = " ".join(str(command.output) for command in commands)
    commands.append(Command(f"python {_HERE}/check_benches.py measured.md {documents}", package=backend, cuda=True))
    says = f"products, convolutions, launches, FMA peaks, bandwidth and latency through {backend}"
    return Stage(f"operators-{backend}", 4, says, tuple(commands))


def _do_bench() -> Stage:
    return Stage(
        "do-bench",
        4,
        "our timings against triton.testing.do_bench on ten problems",
        (Command(f"python {_HERE}/against_do_bench.py do_bench.md", package="triton", cuda=True),),
    )


def _datasheet() -> Stage:
    return Stage(
        "datasheet",
        3,
        "FMA peaks and copies against the datasheet, backends against each other",
        (Command(f"python {_HERE}/datasheet.py", "datasheet.txt", cuda=True),),
    )


def _sweep(scale: Scale, name: str, networks: Sequence[str]) -> Stage:
    commands: list[Command] = []
    for network in networks:
        # In one process each: a process per visit, as `sweep` has it, costs more than the steps here.
        commands += [
            Command(
                f"curvescope diagnose {network} --mode {mode} --batch {scale.batches} {_short(scale)} --all "
                f"--experiments 0 -o {network}-{mode}",
                f"{network}-{mode}.txt",
            )
            for mode in MODES
        ]
        commands += [
            Command(f"curvescope table {network}-forward {network}-training --format {form}", f"{network}.{suffix}")
            for form, suffix in (("markdown", "md"), ("csv", "csv"))
        ]
    commands.append(_checked(scale, *(f"{network}-{mode}" for network in networks for mode in MODES), package="torch"))
    says = f"cost curves of {', '.join(networks)}, forward and training, under torch.profiler"
    return Stage(f"sweep-{name}", 5, says, tuple(commands))


def _collected(scale: Scale, name: str, networks: Sequence[str]) -> Stage:
    commands: list[Command] = []
    for network in networks:
        for mode in MODES:
            run = f"{network}-{mode}"
            program = f"python {_HERE}/collected_steps.py {network} {scale.device} {mode} {scale.batches}"
            commands += [
                Command(f"curvescope record -o {run} -- {program}", package="torch"),
                Command(f"curvescope explain {run} --all", f"{run}.txt", package="torch"),
                Command(f"curvescope breakdown {run} --by layer", f"{run}-breakdown.txt", package="torch"),
            ]
    recordings = (f"{network}-{mode}" for network in networks for mode in MODES)
    commands.append(_checked(scale, *recordings, package="torch", cuda=True))
    says = f"steps of {', '.join(networks)} through the native collector, forward and training"
    return Stage(f"collector-{name}", 7, says, tuple(commands))


def _experiments(scale: Scale, network: str) -> Stage:
    seconds = f"{scale.experiments_s}s"
    return Stage(
        f"experiments-{network}",
        7,
        f"causes in a training step of {network} tested by experiment, and its operators replayed alone",
        (
            Command(
                f"curvescope diagnose {network} --batch {scale.batches} {_short(scale)} --all "
                f"--experiments {seconds} -o recording",
                "diagnosis.txt",
            ),
            Command(f"curvescope confirm recording --experiments {seconds}", "confirmed.txt", package="torch"),
            Command(f"python {_HERE}/experiment_rows.py recording experiments.md", package="torch"),
            Command("curvescope explain recording --json", "diagnosis.json", package="torch"),
            Command(
                f"curvescope bench replay recording --device {scale.device} --share {scale.replayed} "
                f"--time-limit {scale.problem_s} --json -o replay",
                "replay.json",
            ),
            _checked(scale, "recording", package="torch"),
        ),
    )


def _memory_pressure(scale: Scale) -> Stage:
    pressures = [
        (f"{limit}{suffix}", limit, environment)
        for limit in (("16GB", "8GB", "6GB", "4GB") if scale is FULL else ("8GB",))
        for suffix, environment in (("", {}), ("-wscap64", {"CUDNN_CONV_WSCAP_DBG": "64"}))
    ]
    batches = "32..128" if scale is FULL else "1"
    commands = [
        Command(
            f"curvescope sweep vgg_a --batch {batches} {_short(scale)} --memory-limit {limit} -o sweep-{name}",
            environment=environment,
        )
        for name, limit, environment in pressures
    ]
    for name, _, _ in pressures:
        commands += [
            Command(f"curvescope table sweep-{name} --format markdown", f"{name}.md", package="torch"),
            Command(f"curvescope explain sweep-{name}/vgg_a_training_fp32 --all", f"{name}.txt", cuda=True),
        ]
    says = "VGG-A under memory limits and with cuDNN's workspace capped"
    return Stage("memory-pressure", 8, says, tuple(commands))


def _counters(scale: Scale) -> Stage:
    batch, commands = 8 if scale is FULL else 1, []
    for network in scale.counted:
        swept = f"sweep-{network}/{network}_training_fp32"
        by_ncu = f"by-ncu-{network}"
        commands += [
            Command(f"curvescope sweep {network} --batch {batch} {_short(scale)} -o sweep-{network}", package="torch"),
            Command(f"cp -r {swept} {by_ncu}"),
            Command(f"curvescope counters {swept} --with cupti", cuda=True),
            Command(f"curvescope counters {by_ncu} --with ncu", needs="ncu", cuda=True),
            Command(f"curvescope roofline {swept} --json", f"{network}.json", cuda=True),
            Command(f"curvescope breakdown {swept}", f"{network}.txt", cuda=True),
            Command(f"python {_HERE}/dram_bytes.py {swept} {network}.md", cuda=True),
            Command(f"python {_HERE}/against_ncu.py {swept} {by_ncu} {network}-tools.md", needs="ncu", cuda=True),
        ]
    return Stage("counters", 8, "measured DRAM bytes against compulsory ones, by CUPTI and by ncu", tuple(commands))


def _energy(scale: Scale) -> Stage:
    return Stage(
        "energy",
        4,
        f"joules per step and sample of {scale.step_network}, tested like times",
        (
            Command(
                f"curvescope energy {scale.step_network} --batch {scale.batches} --device {scale.device} "
                f"--time-limit {4 * scale.seconds} -o recording",
                "energy.txt",
            ),
            Command("curvescope explain recording --of energy --json", "energy.json", package="torch", cuda=True),
        ),
    )


def _short(scale: Scale) -> str:
    return f"--device {scale.device} --quick --time-limit {scale.seconds}"
