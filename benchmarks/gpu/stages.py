"""The stages of the GPU campaign, read from stages.txt. Every stage stands alone, and so does what it measures."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.readers import metrics

_HERE = shlex.quote(str(Path(__file__).resolve().parent))
_ROOT = shlex.quote(str(Path(__file__).resolve().parents[2]))
_OWN = {"curvescope": [sys.executable, "-m", "curvescope.cli"], "python": [sys.executable]}
_LINE = re.compile(r"(?P<seconds>\d+) (\[(?P<needs>[^]]*)\] )?(?P<line>.*?)( > (?P<output>\S+))?")
_PROGRAMS = ("ncu", "nvidia-smi")  # of what a line needs; other words but cuda are Python packages


@dataclass(frozen=True)
class Command:
    """One command of a stage."""

    line: str  # command line as for a shell; `curvescope` and `python` stand for this Python's own
    seconds: float = 5.0  # expected duration on a GPU
    output: str | None = None  # file for its standard output; None for the stage's log
    needs: str | None = None  # program that must be on PATH; without it the command is skipped, and the log says so
    package: str | None = None  # Python package that must be installed, likewise
    environment: Mapping[str, str] = field(default_factory=dict)
    cuda: bool = False  # whether it makes sense on a GPU only
    makes: str | None = None  # name in the stage's folder that it leaves, where no option says so

    @property
    def argv(self) -> list[str]:
        return [word for part in shlex.split(self.line) for word in _OWN.get(part, [part])]

    @property
    def made(self) -> list[str]:
        words = shlex.split(self.line)
        named = [words[place + 1] for place, word in enumerate(words) if word == "-o"]
        return [*named, *self.environment.values(), *filter(None, (self.output, self.makes))]


@dataclass(frozen=True)
class Stage:
    """A part of the campaign."""

    name: str  # of its folder, too
    says: str
    commands: tuple[Command, ...]  # in order; one that fails does not stop the next

    @property
    def seconds(self) -> float:
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


# Words and lists of stages.txt: all of it on a GPU, or as little as shows that every path runs.
_FULL: dict[str, Any] = {
    "device": "cuda:0",
    "network": "resnet50",
    "batches": "1..128",
    "sizes": (1, 8, 64),
    "limits": "--experiments 120s",
    "short": "--device cuda:0 --quick --time-limit 20",
    "replay": "--share 80% --time-limit 0.5",
    "planted_s": "15 45",
    "energy_s": "80",
    "pressed": "32,64,128",
    "problem_s": "2",
    "planted": ("allocation", "pageable_copy", "wave", "switch"),
    "networks": ("alexnet", "vgg_a", "bert_base"),
    "limits_gb": ("8", "6", "4"),
    "gemm": "gemm --axis n=256,1024,4096",
    "conv": "conv --axis n=8,16,64 --axis direction=fwd,bwd_data,bwd_weights",
}
_REHEARSAL: dict[str, Any] = {
    "device": "cpu",
    "network": "alexnet",
    "batches": "1,2",
    "sizes": (1, 2, 4),
    "limits": "--quick --time-limit 1 --experiments 5s",
    "short": "--device cpu --quick --time-limit 1",
    "replay": "--share 80% --time-limit 0.02",
    "planted_s": "1 5",
    "energy_s": "4",
    "pressed": "1",
    "problem_s": "0.02",
    "planted": ("allocation",),
    "networks": ("googlenet",),
    "limits_gb": ("8",),
    "gemm": "gemm --axis n=64",
    "conv": "conv --axis n=1 --axis direction=fwd,bwd_data,bwd_weights",
}


def _words(rehearse: bool) -> dict[str, Any]:
    from checks import CHECKS, ON_A_CPU

    scale = _REHEARSAL if rehearse else _FULL
    device, (small, middle, large) = scale["device"], scale["sizes"]
    on_gpu = [name for name in names_of("step") if FACTORS[name].refusal("cuda:0") is None]
    step = f"curvescope step {{}} --steps 1 --warm-up 1 --device {device}"
    clocks = "--clock-control=none --cache-control=none"
    cubins = (scale["gemm"], scale["conv"], "launch", "peak", "memory", "latency")
    return {
        **scale,
        "here": _HERE,
        "root": _ROOT,
        "program": f"python {_HERE}/recorded_program.py",
        "checked": f"python {_HERE}/check_recording.py {device} recorded.md",
        "recordings": "collector program processes profiler block-1 block-2",
        "buffers": "raw_buffers program_raw_buffers driver_raw_buffers blocks_raw_buffers",
        "ncu": f"ncu --csv --page=raw {clocks} --launch-count=60 --metrics={','.join(metrics.wanted('ncu'))}",
        "step": step.format(scale["network"]),
        "small_step": step.format("alexnet --batch 4"),
        "three": f"{small},{middle},{large}",
        "middle": middle,
        "large": large,
        "ends": (small, large),
        "all_networks": " ".join(scale["networks"]),
        "checks": [check.__name__ for check in ON_A_CPU],
        "checks_on_gpu": [check.__name__ for check in CHECKS if check not in ON_A_CPU],
        "factors": ["unmodified", *(["channels_last"] if rehearse else on_gpu)],
        "bench": f"--device {device} --time-limit {scale['problem_s']} --json",
        "operators_torch": (*cubins[:3], "memory", "transfer"),
        "operators_cubins": cubins,
        "operators_numba": (scale["gemm"], "memory"),
    }


def stages(rehearse: bool = False) -> tuple[Stage, ...]:
    """Every stage, the most valuable first: what later work without a GPU needs, then answers, then numbers."""
    words = _words(rehearse)
    text = Path(__file__).with_suffix(".txt").read_text()
    paragraphs = [part.splitlines() for part in text.split("\n\n")[1:]]
    return tuple(
        Stage(
            *head.format(**words).split(": ", 1), tuple(command for line in lines for command in _commands(line, words))
        )
        for head, *lines in paragraphs
    )


def _commands(line: str, words: Mapping[str, Any]) -> Iterator[Command]:
    """The command of a line, or one for each item of its list."""
    found = _LINE.fullmatch(line)
    assert found is not None, line
    needs = (found["needs"] or "").split()
    marked = dict(word.split(":", 1) for word in needs if ":" in word)
    for each in words[marked["each"]] if "each" in marked else ("",):
        filled = {**words, "each": each, "name": str(each).partition(" ")[0]}
        plain = [word for word in needs if ":" not in word and word != "cuda"]
        yield Command(
            found["line"].format(**filled),
            float(found["seconds"]),
            found["output"] and found["output"].format(**filled),
            next((word for word in plain if word in _PROGRAMS), None),
            next((word for word in plain if word not in _PROGRAMS), None),
            {"CURVESCOPE_RAW_BUFFERS": marked["raw"]} if "raw" in marked else {},
            "cuda" in needs,
            marked["makes"].format(**filled) if "makes" in marked else None,
        )
