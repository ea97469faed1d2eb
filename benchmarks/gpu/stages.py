"""The stages of the GPU campaign, read from stages.txt.

Every stage stands alone, and so does what it measures.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scripts

from curvescope.experiments.factor import Factor
from curvescope.experiments.factors import FACTORS, names_of
from curvescope.profiling.readers import metrics

_HERE = shlex.quote(str(Path(__file__).resolve().parent))
_ROOT = shlex.quote(str(Path(__file__).resolve().parents[2]))
_OWN = {"curvescope": [sys.executable, "-m", "curvescope.cli"], "python": [sys.executable]}
_LINE = re.compile(r"(?P<seconds>\d+) (\[(?P<needs>[^]]*)\] )?(?P<line>.*?)( > (?P<output>\S+))?")
# of what a line needs; other words but `whole` are Python packages
_PROGRAMS = (
    "ncu",
    "nvidia-smi",
)


@dataclass(frozen=True)
class Command:
    """One command of a stage."""

    line: str  # command line as for a shell; `curvescope` and `python` stand for this Python's own
    seconds: float = 5.0  # expected duration on a GPU
    output: str | None = None  # file for its standard output; None for the stage's log
    # program that must be on PATH; without it the command is skipped, and the log says so
    needs: str | None = None
    package: str | None = None  # Python package that must be installed, likewise
    environment: Mapping[str, str] = field(default_factory=dict)
    # whether it tells its results at its end: then it starts only if all of its estimate fits
    whole: bool = False
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

    def missing(self, done: Iterable[Mapping[str, Any]]) -> list[Command]:
        """The commands that did not end."""
        ended = {one["command"] for one in done if one["outcome"] != "timed out"}
        return [command for command in self.commands if command.line not in ended]


# Words and lists of stages.txt.
_SCALE: dict[str, Any] = {
    "device": "cuda:0",
    "network": "vgg_a",
    "sizes": (1, 8, 64),
    "curve": "1..256",
    "curve_s": 50,
    "tested_s": 70,
    "by_one": "14..36:1",
    "by_one_s": 45,
    "by_one_tested_s": 30,
    "as_graphs": "17,18,31,32,33",
    "as_graphs_s": 12,
    "pairs": 10,
    "few_sequences": "8,16,32",
    "sequences": "1..64",
    "model_s": 10,
    "rounds": 1,  # of processes
    "short": "--device cuda:0 --quick --time-limit 20",
    "counted_s": 5,
    "few": 3,
    "many": 10,
    "tests": "not compiled",
    "further_tests": "test",
    "planted": ("allocation", "pageable_copy", "one_block_past", "deterministic"),
    "planted_s": "12 30",
    "problem": "--device cuda:0",
    "energy_s": 80,
    "further": "1..128",
    "networks": ("alexnet", "resnet50", "bert_base"),
    "limits_gb": ("8", "6", "4"),
    "pressed": "32,64,128",
    "bench": "--device cuda:0 --time-limit 2 --json",
}
# Every stage in a minute at most: it shows that the commands run on a machine, and measures
# nothing.
_SHORT: dict[str, Any] = {
    **_SCALE,
    "network": "alexnet",
    "sizes": (1, 2, 4),
    "curve": "1,2,4",
    "curve_s": 1,
    "tested_s": 2,
    "by_one": "1,2,3",
    "by_one_s": 1,
    "by_one_tested_s": 2,
    "as_graphs": "2,3",
    "as_graphs_s": 1,
    "pairs": 1,
    "few_sequences": "1,2,4",
    "sequences": "1,2,4",
    "model_s": 1,
    "short": "--device cuda:0 --quick --time-limit 1",
    "counted_s": 1,
    "few": 1,
    "many": 1,
    "tests": "causes_see_clocks or first_block",
    "further_tests": "replay",
    "factors": ("unmodified", "cuda_graph"),
    "planted": ("pageable_copy",),
    "planted_s": "1 4",
    "problem": "--device cuda:0 --time-limit 0.02",
    "energy_s": 2,
    "further": "1,2,4",
    "networks": ("alexnet",),
    "limits_gb": ("4",),
    "pressed": "1,2",
    "bench": "--device cuda:0 --time-limit 0.02 --json",
}
_BENCHES = (
    "gemm --axis n=256,1024,4096",
    "conv --axis n=8,16,64 --axis direction=fwd,bwd_data,bwd_weights",
    *("launch", "peak", "memory", "latency"),
)
# What needs a card and can share a process; the last attaches to CUPTI.
_ERRORS = ("event_pair", "clock_under_load", "first_work", "energy_updates", "clock_error")


def _changes_the_network(factor: Factor, device: str) -> bool:
    """Whether a factor changes the steps of a network of PyTorch on the device."""
    own = not factor.only_in_programs and factor.fits("step", None)
    return own and factor.refusal(device) is None


def _words(short: bool) -> dict[str, Any]:
    from checks import CHECKS

    scale = _SHORT if short else _SCALE
    device, (small, middle, large) = scale["device"], scale["sizes"]
    # No result of the virtual card is right.
    unverified = " --no-verify" * scripts.on_virtual_card()
    on_gpu = [name for name in names_of("step") if _changes_the_network(FACTORS[name], device)]
    checks = [check.__name__ for check in CHECKS if check.__name__ not in _ERRORS]
    step = f"curvescope step {{}} --steps 1 --warm-up 1 --device {device}"
    conditions = "--clock-control=none --cache-control=none"
    return {
        "here": _HERE,
        "root": _ROOT,
        "program": f"python {_HERE}/recorded_program.py",
        "checked": f"python {_HERE}/check_recording.py recorded.jsonl",
        "torch_script": f"python {_ROOT}/examples/step/language_model.py",
        "model": f"{_ROOT}/examples/step/language_model.py",
        "jax_script": f"python {_HERE}/programs/train_jax.py",
        "ncu": f"ncu --csv --page=raw {conditions} --target-processes=all --log-file=ncu.csv",
        "truth": f"python {_HERE}/truth.py",
        "metrics": ",".join(metrics.choose_metrics("ncu")),
        "step": step.format(scale["network"]),
        "small_step": step.format("alexnet --batch 4"),
        "middle": middle,
        "large": large,
        "ends": (small, large),
        "all_networks": " ".join(scale["networks"]),
        "errors": ",".join(_ERRORS),
        "checks": [",".join(checks)] if short else checks,
        # None of the campaign changes a clock.
        "factors": ["unmodified", *(name for name in on_gpu if name != "locked_clock")],
        "operators_torch": (*_BENCHES[:3], "memory", "transfer"),
        "operators_cubins": _BENCHES,
        "operators_numba": (_BENCHES[0], "memory"),
        **scale,
        "problem": scale["problem"] + unverified,
        "bench": scale["bench"] + unverified,
    }


def stages(*, short: bool = False) -> tuple[Stage, ...]:
    """Every stage, the most valuable first: what fifteen minutes on a card must give, then the
    rest.

    Args:
        short: whether each has small networks and limits, which show only that it runs.
    """
    words = _words(short)
    paragraphs = [
        part.splitlines()
        for part in Path(__file__).with_suffix(".txt").read_text().split("\n\n")[1:]
    ]
    return tuple(
        Stage(
            *head.format(**words).split(": ", 1),
            tuple(command for line in lines for command in _commands(line, words)),
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
        plain = [word for word in needs if ":" not in word and word != "whole"]
        yield Command(
            found["line"].format(**filled),
            float(found["seconds"]),
            found["output"] and found["output"].format(**filled),
            next((word for word in plain if word in _PROGRAMS), None),
            next((word for word in plain if word not in _PROGRAMS), None),
            {"CURVESCOPE_RAW_BUFFERS": marked["raw"]} if "raw" in marked else {},
            "whole" in needs,
            marked["makes"].format(**filled) if "makes" in marked else None,
        )
