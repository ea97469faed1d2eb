"""The stages of the GPU campaign: what each one runs. Every stage stands alone and fits ten minutes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from curvescope.profiling.readers import metrics

HERE = Path(__file__).parent
BACKENDS = ("torch", "cupy", "numba", "pycuda")
KINDS = ("forward", "training")


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
)
REHEARSAL = Scale(
    "cpu", "1,2", 1, {"small": ("alexnet",), "deep": ("googlenet",)}, "alexnet", 1, ("alexnet",), ("alexnet",), 5
)


@dataclass(frozen=True)
class Command:
    """One command of a stage.

    Attributes:
        line: as a shell would take it; `curvescope` and `python` stand for this Python's own.
        output: file that its standard output goes to; null for the stage's log.
        needs: a program that must be on PATH; without it the command is skipped, and that is said.
        environment: variables to set.
        cuda: makes sense on a GPU only.
    """

    line: str
    output: str | None = None
    needs: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False

    @property
    def argv(self) -> list[str]:
        """What is run."""
        return [word for part in shlex.split(self.line) for word in _OWN.get(part, [part])]


_OWN = {"curvescope": [sys.executable, "-m", "curvescope.cli"], "python": [sys.executable]}


@dataclass(frozen=True)
class Stage:
    """A part of the campaign.

    Attributes:
        name: its folder.
        minutes: what it takes on a GPU, about.
        says: what it shows.
        commands: run in order in the stage's folder; one that fails does not stop the next.
    """

    name: str
    minutes: int
    says: str
    commands: tuple[Command, ...]


def stages(scale: Scale) -> tuple[Stage, ...]:
    """Every stage at that scale."""
    device = f"--device {scale.device}"
    small_step = f"curvescope step alexnet --batch 4 --steps 1 --warm-up 0 {device}"
    counted_batch = 16 if scale is FULL else 1
    wanted = ",".join(metrics.wanted("ncu"))
    short = f"{device} --quick --time-limit {scale.seconds}"
    here = shlex.quote(str(HERE))
    root = shlex.quote(str(HERE.parents[1]))
    sizes = {
        "gemm": "--axis n=256,1024,4096" if scale is FULL else "--axis n=64",
        "conv": f"--axis n={'8,16,64' if scale is FULL else '1'} --axis direction=fwd,bwd_data,bwd_weights",
    }
    problem_s = 2 if scale is FULL else 0.2
    pressures = [
        (f"{limit}{suffix}", limit, environment)
        for limit in (("16GB", "8GB", "6GB", "4GB") if scale is FULL else ("8GB",))
        for suffix, environment in (("", {}), ("-wscap64", {"CUDNN_CONV_WSCAP_DBG": "64"}))
    ]
    return (
        Stage(
            "machine",
            1,
            "the device, its driver and the versions",
            (
                Command("curvescope doctor --json", "doctor.json"),
                Command("nvidia-smi -q -d CLOCK,POWER,PERFORMANCE,MEMORY", "nvidia_smi.txt", needs="nvidia-smi"),
            ),
        ),
        Stage(
            "tests",
            8,
            "the native library built on this machine, and the tests that need a GPU",
            (
                # Its headers come from an index of packages; without one the installed library is tested as it is.
                Command(f"python -m pip wheel --quiet --no-deps --wheel-dir wheel {root}"),
                Command(f"python -m pytest -m gpu -q {root}/tests", "pytest.txt"),
            ),
        ),
        Stage(
            "ceilings",
            5,
            "compute peaks per precision and bandwidth per memory level",
            (Command(f"curvescope bench ceilings {device} --json -o recording", "ceilings.json"),),
        ),
        Stage(
            "operators",
            9,
            "products, convolutions, launches, FMA peaks, bandwidth and latency on every backend that is here",
            tuple(
                Command(
                    f"curvescope bench {what} {sizes.get(what, '')} --backend {backend} {device} "
                    f"--time-limit {problem_s} --json -o {what}-{backend}",
                    f"{what}-{backend}.json",
                )
                for what in ("gemm", "conv", "launch", "peak", "memory", "latency")
                for backend in BACKENDS
            ),
        ),
        Stage(
            "do-bench",
            4,
            "our timings against triton.testing.do_bench on ten problems",
            (Command(f"python {here}/against_do_bench.py do_bench.md", cuda=True),),
        ),
        Stage(
            "datasheet",
            3,
            "FMA peaks and copies against the datasheet, backends against each other",
            (Command(f"python {here}/datasheet.py", "datasheet.txt", cuda=True),),
        ),
        *(
            Stage(
                f"sweep-{name}",
                8,
                f"cost curves of {', '.join(networks)}, forward and training, under torch.profiler",
                tuple(
                    command
                    for network in networks
                    for command in (
                        # In one process each: a process per visit, as `sweep` has it, costs more than the steps here.
                        *(
                            Command(
                                f"curvescope diagnose {network} --mode {kind} --batch {scale.batches} {short} --all "
                                f"--experiments 0 -o {network}-{kind}",
                                f"{network}-{kind}.txt",
                            )
                            for kind in KINDS
                        ),
                        *(
                            Command(
                                f"curvescope table {network}-forward {network}-training --format {form}",
                                f"{network}.{suffix}",
                            )
                            for form, suffix in (("markdown", "md"), ("csv", "csv"))
                        ),
                    )
                ),
            )
            for name, networks in scale.networks.items()
        ),
        *(
            Stage(
                f"collector-{name}",
                8,
                f"steps of {', '.join(networks)} through the native collector, forward and training",
                tuple(
                    command
                    for network in networks
                    for kind in KINDS
                    for command in (
                        Command(
                            f"curvescope record -o {network}-{kind} -- "
                            f"python {here}/collected_steps.py {network} {scale.device} {kind} {scale.batches}"
                        ),
                        Command(f"curvescope explain {network}-{kind} --all", f"{network}-{kind}.txt"),
                        Command(
                            f"curvescope breakdown {network}-{kind} --by layer",
                            f"{network}-{kind}-breakdown.txt",
                        ),
                    )
                ),
            )
            for name, networks in scale.networks.items()
        ),
        *(
            Stage(
                f"experiments-{network}",
                8,
                f"causes in a training step of {network} tested by experiment, and its operators replayed alone",
                (
                    Command(
                        f"curvescope diagnose {network} --batch {scale.batches} {short} --all "
                        f"--experiments {scale.experiments_s}s -o recording",
                        "diagnosis.txt",
                    ),
                    Command(f"curvescope confirm recording --experiments {scale.experiments_s}s", "confirmed.txt"),
                    Command(f"python {here}/experiment_rows.py recording experiments.md"),
                    Command("curvescope explain recording --json", "diagnosis.json"),
                    Command(
                        f"curvescope bench replay recording {device} --time-limit {problem_s} --json -o replay",
                        "replay.json",
                    ),
                ),
            )
            for network in scale.tested
        ),
        Stage(
            "overhead",
            6,
            "what the collector, the ranges and torch.profiler add to the same step",
            (Command(f"python {here}/overhead.py {scale.step_network} {scale.device} {scale.step_batch} overhead.md"),),
        ),
        Stage(
            "memory-pressure",
            9,
            "VGG-A under memory limits and with cuDNN's workspace capped",
            (
                *(
                    Command(
                        f"curvescope sweep vgg_a --batch {'32..128' if scale is FULL else '1'} {short} "
                        f"--memory-limit {limit} -o sweep-{name}",
                        environment=environment,
                    )
                    for name, limit, environment in pressures
                ),
                *(
                    command
                    for name, _, _ in pressures
                    for command in (
                        Command(f"curvescope table sweep-{name} --format markdown", f"{name}.md"),
                        Command(f"curvescope explain sweep-{name}/vgg_a_training_fp32 --all", f"{name}.txt", cuda=True),
                    )
                ),
            ),
        ),
        Stage(
            "counters",
            9,
            "measured DRAM bytes against compulsory ones, by ncu",
            tuple(
                command
                for network in scale.counted
                for command in (
                    Command(f"curvescope sweep {network} --batch {counted_batch} {short} -o sweep-{network}"),
                    Command(
                        f"curvescope record --with ncu -o {network} -- "
                        f"curvescope step {network} --batch {counted_batch} --steps 1 --warm-up 0 {device}",
                        needs="ncu",
                        cuda=True,
                    ),
                    Command(f"curvescope roofline {network} --json", f"{network}.json", needs="ncu", cuda=True),
                    Command(
                        f"python {here}/dram_bytes.py sweep-{network}/{network}_training_fp32 {network} {network}.md",
                        needs="ncu",
                        cuda=True,
                    ),
                )
            ),
        ),
        Stage(
            "records",
            4,
            "real records as test data: CUPTI's buffers, a collector recording, a torch trace, a CSV of ncu",
            (
                Command(
                    f"curvescope record -o collector -- {small_step}",
                    environment={"CURVESCOPE_RAW_BUFFERS": "raw_buffers"},
                ),
                Command(f"python {here}/torch_trace.py alexnet {scale.device} 4 torch_trace.json"),
                Command(
                    f"ncu --csv --page=raw --clock-control=none --launch-count=60 --metrics={wanted} "
                    f"--log-file=ncu.csv {small_step}",
                    needs="ncu",
                    cuda=True,
                ),
                Command(f"python {here}/test_data.py test_data"),
            ),
        ),
    )
