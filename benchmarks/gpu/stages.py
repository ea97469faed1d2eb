"""The stages of the GPU campaign, the most valuable first. Every stage stands alone, and so does what it measures."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.readers import metrics

_HERE = shlex.quote(str(Path(__file__).resolve().parent))
_ROOT = shlex.quote(str(Path(__file__).resolve().parents[2]))
_OWN = {"curvescope": [sys.executable, "-m", "curvescope.cli"], "python": [sys.executable]}
_CUBINS = ("gemm", "conv", "launch", "peak", "memory", "latency")
_BENCHES = {
    "torch": ("gemm", "conv", "launch", "memory", "transfer"),
    "cupy": _CUBINS,
    "numba": ("gemm", "memory"),
    "pycuda": _CUBINS,
}


@dataclass(frozen=True)
class Command:
    """One command of a stage.

    Attributes:
        line: command line as for a shell; `curvescope` and `python` stand for this Python's own.
        seconds: expected duration on a GPU.
        output: file for its standard output; None for the stage's log.
        needs: program that must be on PATH; without it the command is skipped, and the log says so.
        package: Python package that must be installed, likewise.
        environment: variables to set.
        cuda: whether it makes sense on a GPU only.
        makes: name in the stage's folder that it leaves, where no option says so.
    """

    line: str
    seconds: float = 5.0
    output: str | None = None
    needs: str | None = None
    package: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False
    makes: str | None = None

    @property
    def argv(self) -> list[str]:
        """The words that are run."""
        return [word for part in shlex.split(self.line) for word in _OWN.get(part, [part])]

    @property
    def made(self) -> list[str]:
        """Names in the stage's folder that it leaves."""
        words = shlex.split(self.line)
        named = [words[place + 1] for place, word in enumerate(words) if word == "-o"]
        return [*named, *self.environment.values(), *filter(None, (self.output, self.makes))]


@dataclass(frozen=True)
class Stage:
    """A part of the campaign.

    Attributes:
        name: name of its folder.
        says: what it shows.
        commands: commands to run in order in the stage's folder; one that fails does not stop the next.
    """

    name: str
    says: str
    commands: tuple[Command, ...]

    @property
    def seconds(self) -> float:
        """Expected duration on a GPU."""
        return sum(command.seconds for command in self.commands)

    def missing(self, done: Iterable[Mapping[str, Any]], folder: Path) -> list[Command]:
        """The commands to run: those that did not end, and those whose results these read and the folder lacks."""
        ended = {one["command"] for one in done if one["outcome"] != "timed out"}
        missing: list[Command] = []
        for command in reversed(self.commands):
            read = {word for later in missing for word in shlex.split(later.line)}
            lacks = any(name in read and not (folder / name).exists() for name in command.made)
            if command.line not in ended or lacks:
                missing.insert(0, command)
        return missing


@dataclass(frozen=True)
class Scale:
    """How much is measured: all of it on a GPU, or as little as shows that every path runs.

    Attributes:
        device: `cuda:0` or `cpu`.
        network: network of most stages.
        batches: batch sizes of its cost curve.
        three: three of them, by which times are compared.
        others: further networks with a cost curve.
        seconds: time limit of a short cost curve.
        problem_s: time limit of one benchmarked problem, seconds.
    """

    device: str
    network: str
    batches: str
    three: tuple[int, int, int]
    others: tuple[str, ...]
    seconds: int
    problem_s: float


FULL = Scale("cuda:0", "resnet50", "1..128", (1, 8, 64), ("alexnet", "vgg_a", "bert_base"), 20, 2)
REHEARSAL = Scale("cpu", "alexnet", "1,2", (1, 2, 4), ("googlenet",), 1, 0.02)
PLANTED = ("low_clock", "allocation", "pageable_copy", "wave", "switch")


def stages(rehearse: bool = False) -> tuple[Stage, ...]:
    """Every stage, the most valuable first: what later work without a GPU needs, then answers, then numbers."""
    scale = REHEARSAL if rehearse else FULL
    return (
        _machine(),
        _records(scale),
        _tests(),
        _flagship(scale),
        _outside(),
        _checks(scale),
        _times(scale),
        _factors(scale),
        _planted(scale),
        _profilers(scale),
        _counters(scale),
        _ceilings(scale),
        _energy(scale),
        _networks(scale),
        _memory_pressure(scale),
        *(_operators(scale, backend) for backend in _BENCHES),
    )


def _machine() -> Stage:
    smi = "nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,MEMORY,COMPUTE"
    return Stage(
        "machine",
        "the device, its driver, the versions, and what `doctor` finds missing",
        (
            Command("curvescope doctor --json", 10, "doctor.json"),
            Command("curvescope doctor", 10, "doctor.txt"),
            Command(smi, 5, "nvidia_smi.txt", needs="nvidia-smi"),
        ),
    )


def _checked(scale: Scale, *recordings: str, **limits: Any) -> Command:
    """Fails if one of the recordings is empty."""
    return Command(f"python {_HERE}/check_recording.py {scale.device} recorded.md {' '.join(recordings)}", **limits)


def _step(scale: Scale, batch: int, network: str = "alexnet") -> str:
    return f"curvescope step {network} --batch {batch} --steps 1 --warm-up 1 --device {scale.device}"


def _raw(folder: str) -> dict[str, str]:
    """Writes CUPTI's own buffers, too."""
    return {"CURVESCOPE_RAW_BUFFERS": folder}


def _records(scale: Scale) -> Stage:
    program = f"python {_HERE}/recorded_program.py"
    wanted = ",".join(metrics.wanted("ncu"))
    trace: dict[str, Any] = {"package": "torch", "makes": "torch_trace.json"}
    here: dict[str, Any] = {"package": "torch", "cuda": True}
    recordings = "collector program processes profiler block-1 block-2"
    buffers = "raw_buffers program_raw_buffers driver_raw_buffers blocks_raw_buffers"
    return Stage(
        "records",
        "real records as test data: CUPTI's buffers, recordings of one, two and profiled processes, a torch trace, ncu",
        (
            # Without torch: what the driver alone launches.
            Command(
                f"curvescope record -o driver -- {program} driver",
                10,
                environment=_raw("driver_raw_buffers"),
                cuda=True,
            ),
            Command(
                f"curvescope record -o collector -- {_step(scale, 4)}",
                10,
                environment=_raw("raw_buffers"),
                package="torch",
            ),
            Command(
                f"curvescope record -o program -- {program} driver copy streams graph",
                10,
                environment=_raw("program_raw_buffers"),
                **here,
            ),
            Command(f"{program} blocks .", 10, environment=_raw("blocks_raw_buffers"), **here),
            Command(f"curvescope record -o processes -- {program} processes", 15, **here),
            Command(f"curvescope record -o profiler -- {program} profiler", 10, **here),
            Command(f"python {_HERE}/torch_trace.py alexnet {scale.device} 4 torch_trace.json", 10, **trace),
            Command(
                f"ncu --csv --page=raw --clock-control=none --cache-control=none --launch-count=60 --metrics={wanted} "
                f"--log-file=ncu.csv {_step(scale, 4)}",
                30,
                needs="ncu",
                makes="ncu.csv",
                **here,
            ),
            Command(
                f"python {_HERE}/test_data.py test_data {recordings} driver {buffers} torch_trace.json ncu.csv", 10
            ),
            _checked(scale, "driver", cuda=True),
            _checked(scale, recordings, **here),
        ),
    )


def _tests() -> Stage:
    wheel = "python -m pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir wheel"
    pytest = f"python -m pytest -m gpu -q -p no:cacheprovider {_ROOT}/tests"
    return Stage(
        "tests",
        "the tests that need a GPU, and the native library built on this machine",
        (
            Command(pytest, 150, "pytest.txt", package="pytest", cuda=True),
            # With the compiler, the build tools and the headers of this machine, which may have no network.
            Command(f"{wheel} {_ROOT}", 30, package="scikit_build_core"),
        ),
    )


def _flagship(scale: Scale) -> Stage:
    limits = "--experiments 120s" if scale is FULL else "--quick --time-limit 1 --experiments 5s"
    return Stage(
        f"diagnose-{scale.network}",
        f"the product itself: the cost curve of {scale.network}, its causes tested by experiment",
        (
            Command(
                f"curvescope diagnose {scale.network} --batch {scale.batches} --device {scale.device} {limits} --all "
                "-o recording",
                255,
                "diagnosis.txt",
            ),
            Command("curvescope explain recording --json", 5, "diagnosis.json", package="torch"),
            _checked(scale, "recording", package="torch"),
        ),
    )


def _outside() -> Stage:
    return Stage(
        "outside",
        "two numbers of others: our timings against triton.testing.do_bench, peaks and copies against the datasheet",
        (
            Command(f"python {_HERE}/against_do_bench.py do_bench.md", 60, package="triton", cuda=True),
            Command(f"python {_HERE}/datasheet.py", 45, "datasheet.txt", cuda=True),
        ),
    )


def _checks(scale: Scale) -> Stage:
    from checks import CHECKS, ON_A_CPU

    step = f"{scale.device} {scale.network} {scale.three[-1]}"
    commands = [
        Command(
            f"python {_HERE}/checks.py {check.__name__} {step} checks.md",
            8,
            package="torch",
            cuda=check not in ON_A_CPU,
        )
        for check in CHECKS
    ]
    return Stage("checks", "what only a card can answer, question by question", tuple(commands))


def _times(scale: Scale) -> Stage:
    batches = ",".join(map(str, scale.three))
    middle = scale.three[1]
    return Stage(
        "times",
        "the truth of times: kernels by torch.profiler, by replay alone and by ncu",
        (
            Command(
                f"curvescope diagnose {scale.network} --batch {batches} {_short(scale)} --experiments 0 -o recording",
                40,
                "diagnosis.txt",
            ),
            Command(
                f"curvescope bench replay recording --share 80% --batch {batches} --time-limit "
                f"{min(0.5, scale.problem_s)} --device {scale.device} -o replay",
                90,
                "replay.txt",
                package="torch",
            ),
            Command(
                f"curvescope record --with ncu -o by-ncu -- {_step(scale, middle, scale.network)} --mode forward",
                60,
                needs="ncu",
                cuda=True,
            ),
            Command("curvescope compare recording by-ncu --by kernel", 5, "ncu.txt", needs="ncu", cuda=True),
        ),
    )


def _factors(scale: Scale) -> Stage:
    small, large = scale.three[1:]
    on_gpu = [name for name in names_of("step") if FACTORS[name].refusal("cuda:0") is None]
    factors = on_gpu if scale is FULL else ["channels_last"]
    swept = f"curvescope diagnose {scale.network} --batch {small},{large} {_short(scale)} --experiments 0 -o recording"
    return Stage(
        "factors",
        f"every factor of complete steps once on {scale.network}: its start, its time and its kernels",
        (
            Command(swept, 35, "diagnosis.txt"),
            *(
                Command(
                    f"python {_HERE}/step_factors.py recording {name} factors.md",
                    40 if name == "compiled" else 15,
                    package="torch",
                )
                for name in ("unmodified", *factors)
            ),
        ),
    )


def _planted(scale: Scale) -> Stage:
    seconds = "15 45" if scale is FULL else "1 5"
    return Stage(
        "planted",
        "causes that were planted, and what `explain` says of them",
        tuple(
            Command(
                f"python {_HERE}/planted.py {name} {scale.device} {seconds} planted.md", 70, package="torch", makes=name
            )
            for name in PLANTED
            if scale is FULL or name == "allocation"
        ),
    )


def _profilers(scale: Scale) -> Stage:
    commands = [
        Command(
            f"python {_HERE}/overhead.py {scale.network} {scale.device} {scale.three[1]} overhead.md",
            150,
            package="torch",
        )
    ]
    for batch in (scale.three[0], scale.three[-1]):
        step = f"{scale.network} {scale.device} {batch}"
        here: dict[str, Any] = {"package": "torch", "cuda": True}
        commands += [
            Command(f"curvescope record -o ours-{batch} -- {_step(scale, batch, scale.network)}", 10, **here),
            Command(
                f"python {_HERE}/torch_trace.py {step} trace-{batch}.json",
                10,
                package="torch",
                makes=f"trace-{batch}.json",
            ),
            Command(f"curvescope import trace-{batch}.json -o torch-{batch}", 5, package="torch"),
            Command(f"curvescope compare torch-{batch} ours-{batch} --by kernel", 5, f"kernels-{batch}.txt", **here),
        ]
    says = "what the collector, the ranges and torch.profiler add to a step, and their times kernel by kernel"
    return Stage("profilers", says, tuple(commands))


def _counters(scale: Scale) -> Stage:
    network, cuda = scale.network, {"cuda": True}
    swept = f"sweep/{network}_training_fp32"
    return Stage(
        "counters",
        "measured DRAM bytes against compulsory ones, by CUPTI and by ncu",
        (
            Command(f"curvescope sweep {network} --batch 8 {_short(scale)} -o sweep", 40, package="torch", **cuda),
            Command(f"cp -r {swept} by-ncu", 1, makes="by-ncu", **cuda),
            Command(f"curvescope counters {swept} --with cupti", 60, **cuda),
            Command("curvescope counters by-ncu --with ncu", 120, needs="ncu", **cuda),
            Command(f"curvescope roofline {swept} --json", 5, "roofline.json", **cuda),
            Command(f"python {_HERE}/against_ncu.py {swept} by-ncu tools.md", 5, needs="ncu", **cuda),
        ),
    )


def _ceilings(scale: Scale) -> Stage:
    return Stage(
        "ceilings",
        "compute ceilings and peaks of the units per precision, and bandwidth per memory level",
        (Command(f"curvescope bench ceilings --device {scale.device} --json -o recording", 150, "ceilings.json"),),
    )


def _energy(scale: Scale) -> Stage:
    return Stage(
        "energy",
        f"joules per step and sample of {scale.network}, tested like times",
        (
            Command(
                f"curvescope energy {scale.network} --batch {scale.batches} --device {scale.device} "
                f"--time-limit {4 * scale.seconds} -o recording",
                110,
                "energy.txt",
            ),
        ),
    )


def _networks(scale: Scale) -> Stage:
    """In one process each: a process per visit, as `sweep` has it, costs more than the steps here."""
    runs = [f"{network}-{mode}" for network in scale.others for mode in ("forward", "training")]
    commands = [
        Command(
            f"curvescope diagnose {run.split('-')[0]} --mode {run.split('-')[1]} --batch {scale.batches} "
            f"{_short(scale)} --experiments 0 -o {run}",
            scale.seconds + 15,
            f"{run}.txt",
        )
        for run in runs
    ]
    tables = Command(f"curvescope table {' '.join(runs)} --format markdown", 5, "table.md")
    says = f"cost curves of {', '.join(scale.others)}, forward and training"
    return Stage("networks", says, (*commands, tables, _checked(scale, *runs, package="torch")))


def _memory_pressure(scale: Scale) -> Stage:
    """Each visit is a process of some seconds."""
    commands: list[Command] = []
    batches = "32,64,128" if scale is FULL else "1"
    for limit in ("8GB", "6GB", "4GB") if scale is FULL else ("8GB",):
        sweep = f"curvescope sweep vgg_a --batch {batches} {_short(scale)} --memory-limit {limit} -o sweep-{limit}"
        commands += [
            Command(sweep, 90),
            Command(f"curvescope explain sweep-{limit}/vgg_a_training_fp32 --all", 5, f"{limit}.txt", cuda=True),
        ]
    return Stage("memory-pressure", "VGG-A under memory limits", tuple(commands))


def _operators(scale: Scale, backend: str) -> Stage:
    sizes = {
        "gemm": "--axis n=256,1024,4096" if scale is FULL else "--axis n=64",
        "conv": f"--axis n={'8,16,64' if scale is FULL else '1'} --axis direction=fwd,bwd_data,bwd_weights",
    }
    commands = [
        Command(
            f"curvescope bench {what} {sizes.get(what, '')} --backend {backend} --device {scale.device} "
            f"--time-limit {scale.problem_s} --json -o {what}-{backend}",
            40,
            f"{what}-{backend}.json",
            package=backend,
        )
        for what in _BENCHES[backend]
    ]
    says = f"products, convolutions, launches, FMA peaks, bandwidth and latency through {backend}"
    return Stage(f"operators-{backend}", says, tuple(commands))


def _short(scale: Scale) -> str:
    return f"--device {scale.device} --quick --time-limit {scale.seconds}"
