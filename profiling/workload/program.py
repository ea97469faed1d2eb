"""A program as it is: its command line, in which `{batch}` or the name of another axis stands for a
value.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import CurvescopeError
from ...base.masking import mask_text
from ..recording.axis import BATCH

MODE = "program"
_ASSIGNING = Path(__file__).resolve().parents[1] / "collect" / "startup" / "assigned.py"
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=(\{\w+\}|[-+]?\d+(\.\d+)?)")
_LAUNCHERS = re.compile(r"(python[0-9.]*|torchrun|accelerate|env|sh|bash|nice|taskset|numactl)$")
_NUMBER = r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?"
# What a pattern of `--step-line` may hold, and the form of its text.
_FIELDS = {"n": r"\d+", "ms": _NUMBER, "s": _NUMBER}


@dataclass(frozen=True)
class Program:
    """A command and how its steps are found."""

    command: tuple[str, ...]
    # name of a range that is a step; None to look for every mark that is known
    step_range: str | None = None
    # pattern of a line of its output at the end of a step, see `line_pattern`
    step_line: str | None = None
    # folder in which each run gets one of its own, where it runs; None: the current one
    workdir: str | None = None
    # constants of its script that get other numbers, each NAME=VALUE, e.g. batch_size={batch}
    assign: tuple[str, ...] = ()
    # name of a function of JAX or TensorFlow whose calls are the steps; None as of `step_range`
    step_function: str | None = None

    @property
    def name(self) -> str:
        """The script, or else the first word that is no launcher, option or value; none that may be
        a secret.
        """
        words = [word for word in self.command if not word.startswith("-") and "=" not in word]
        scripts = [word for word in words if word.endswith((".py", ".sh"))]
        others = [word for word in words if not _LAUNCHERS.search(word) and "{" not in word]
        names = [Path(word).name for word in (*scripts, *others, self.command[0])]
        return next((name for name in names if mask_text(name) == name), MODE)

    def check(self, axis: str, fixed: Mapping[str, int]) -> None:
        """Refuse a command without a place for the axes, and a pattern with other fields."""
        marks = {
            "--step-range": self.step_range,
            "--step-line": self.step_line,
            "--step-function": self.step_function,
        }
        options = [option for option in marks if marks[option] is not None]
        if len(options) > 1:
            raise CurvescopeError(f"{' and '.join(options)} each say what a step is: give one.")
        for constant in self.assign:
            if not _ASSIGNED.fullmatch(constant):
                raise CurvescopeError(
                    f"--assign {constant}: write NAME=NUMBER or NAME={{axis}}, e.g. --assign "
                    "batch_size={batch}."
                )
        if self.assign and self._script is None:
            raise CurvescopeError(
                "--assign changes constants of a script, and the command names no file that ends "
                "in .py."
            )
        for name in (axis, *fixed):
            if not any(f"{{{name}}}" in word for word in (*self.command, *self.assign)):
                option = "--batch-size {batch}" if name == BATCH else f"--{name} {{{name}}}"
                raise CurvescopeError(
                    f"The command does not say where its {name} goes: write {{{name}}} there, e.g. "
                    f"`-- python train.py {option}`, or `-- env {name.upper()}={{{name}}} python "
                    "train.py`. If the script has it as a constant, "
                    f"`--assign batch_size={{{name}}}` before the -- gives it another number as it "
                    "runs; the file stays as it is."
                )
        if self.step_line is not None:
            line_pattern(self.step_line)

    def words(self, values: Mapping[str, int]) -> list[str]:
        """The command for values of the axes."""
        words = list(self.command)
        assign = list(self.assign)
        for name, value in values.items():
            place = f"{{{name}}}"
            words = [word.replace(place, str(value)) for word in words]
            assign = [word.replace(place, str(value)) for word in assign]
        script = self._script
        if assign and script is not None:
            numbers = {}
            for constant in assign:
                name, _, number = constant.partition("=")
                numbers[name] = json.loads(number)
            words[script:script] = [str(_ASSIGNING), json.dumps(numbers)]
        for at, word in enumerate(words):
            if self._moves(word):
                words[at] = os.path.abspath(word)
        return words

    @property
    def _script(self) -> int | None:
        """The place of the script among the words; None if there is none."""
        for at, word in enumerate(self.command):
            if word.endswith(".py"):
                return at
        return None

    def _moves(self, word: str) -> bool:
        """Whether a word is a relative path that a run in another folder would not find."""
        if self.workdir is None or word.startswith("-"):
            return False
        return os.path.exists(word)

    @property
    def entry(self) -> dict[str, Any]:
        """Its entries of `recording.json`, from which `measure.configuration` makes it again."""
        return {
            "program": list(self.command),
            "step_range": self.step_range,
            "step_line": self.step_line,
            "workdir": self.workdir,
            "assign": list(self.assign),
            "step_function": self.step_function,
        }


def line_pattern(text: str) -> re.Pattern[str]:
    """The pattern of `--step-line`: {n} is the number of the step, {ms} or {s} its time; all else
    is literal.

    Raises:
        CurvescopeError: it names another field.
    """
    pattern = ""
    for part in re.split(r"(\{\w+\})", text):
        if part.startswith("{"):
            name = part[1:-1]
            if name not in _FIELDS:
                raise CurvescopeError(
                    f"--step-line {text!r}: {part} is unknown; write {{n}} for the number of the "
                    "step, and {ms} or {s} for its time."
                )
            pattern += f"(?P<{name}>{_FIELDS[name]})"
        else:
            pattern += re.escape(part)
    return re.compile(pattern)


def steps_of_lines(lines: Sequence[tuple[int, str]], text: str) -> list[dict[str, Any]]:
    """The steps that lines of a program tell, each with the time at which it came, ns: rows of the
    table `steps`.

    A line without a time of its own ends what ran since the line before; where {n} counts on by
    several, the row is the mean of these steps.
    """
    pattern = line_pattern(text)
    rows = []
    before: tuple[int, int | None] | None = None
    for at_ns, line in lines:
        if (match := pattern.search(line)) is None:
            continue
        groups = match.groupdict()
        number = int(groups["n"]) if groups.get("n") else None
        steps = 1
        if before is not None and number is not None and before[1] is not None:
            steps = max(number - before[1], 1)
        if (duration := groups.get("ms") or groups.get("s")) is not None:
            unit_ns = 1e6 if groups.get("ms") else 1e9
            duration_ns = round(float(duration) * unit_ns)
            rows.append({"start_ns": at_ns - duration_ns, "duration_ns": duration_ns})
        elif before is not None:
            duration_ns = (at_ns - before[0]) // steps
            rows.append({"start_ns": before[0], "duration_ns": duration_ns})
        before = at_ns, number
    return rows
