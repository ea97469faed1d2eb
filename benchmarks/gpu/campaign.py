"""Everything that only a GPU can show, as one campaign: `make gpu`, or
`python benchmarks/gpu/campaign.py`.

It runs in stages, the most valuable first; each is a list of commands, and one that fails does not
stop the others. With `--total-limit`, a later call on the same machine resumes with the commands
that did not end. The output folder has a folder per stage with its log, its tables and its results.
`--pack` writes the six files that are worth to take along (packing.py), after every stage.

No command changes a clock or another setting of the GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages import Command, Stage

sys.path.insert(0, str(Path(__file__).parent))

RESERVE_S = 10  # of the total limit, for packing
# of its estimate must fit for a command to start that keeps what it has when it is cut
LEAST_SHARE = 1 / 3
TIMED_OUT = "timed out"
_CUT = "cut: its time was up, and it keeps what it has"
_HANGS = 4, 60.0  # a command that takes so many times its estimate, and so many seconds more, hangs
# Of its estimate, in a call with a limit: a command is cut then, so that none takes the time of the
# stages behind it. What does not tell its results at its end gets some seconds more to start.
_OVERTIME = 1.5
_START_S = 20.0
_SHOWN = 120  # characters of a command in the summary
_DIGEST = 2500  # characters that are printed of a stage's results
VIRTUAL = (
    "**On the virtual card of tests/virtual_card: it shows that the stages run, and nothing about "
    "a real GPU.**"
)
# monotonic time at which the call began, before it installed wheels
_BEGAN = "CURVESCOPE_CAMPAIGN_BEGAN_S"

# command, folder of its stage and seconds to its outcome
RunCommand = Callable[["Command", Path, float], str]


@dataclass
class Campaign:
    """Stages to run."""

    stages: Sequence[Stage]  # the most valuable first
    output: Path
    # runs a command; returns ok, timed out, or failed or skipped with the reason after a colon
    run: RunCommand
    # seconds from the begin of the call until the last command must have ended
    total_limit_s: float = math.inf
    again: bool = False  # run commands that are done, too
    clock_s: Callable[[], float] = time.monotonic
    began_s: float = 0.0
    show: Callable[[str], None] = print
    keep: Callable[[], object] = lambda: None  # packs what there is, after every stage
    failed: int = 0  # commands of this call

    def run_stages(self) -> list[str]:
        """Run what is not done yet and fits the time; returns the names of the stages with commands
        left.
        """
        from packing import done_stages

        before = {} if self.again else {done["stage"]: done for done in done_stages(self.output)}
        left = []
        for stage in self.stages:
            done = before.get(stage.name) or {
                "stage": stage.name,
                "says": stage.says,
                "commands": [],
            }
            missing = stage.missing(done["commands"])
            if not missing:
                self.show(f"{stage.name}: done before ({counted(done)})")
            elif not self._fits(missing[0]):
                self.show(f"{stage.name}: left for a later call")
                left.append(stage.name)
            elif not self._run(stage, missing, done):
                left.append(stage.name)
        return left

    def _run(self, stage: Stage, missing: Sequence[Command], done: dict[str, Any]) -> bool:
        """Run commands of a stage until one does not end; returns whether all ended."""
        folder = self.output / stage.name
        if self.again and folder.exists():
            folder.rename(_aside(folder))
        folder.mkdir(parents=True, exist_ok=True)
        for command in missing:
            if not self._fits(command):
                break
            for path in map(folder.joinpath, command.made):
                if path.exists():
                    # What an interrupted or earlier run of the command left stays, under another
                    # name.
                    path.rename(_aside(path))
            began_s = self.clock_s()
            outcome = self.run(command, folder, min(self._left_s(), self._longest_s(command)))
            earlier = next(
                (one for one in done["commands"] if one["command"] == command.line), None
            )
            outcome = self._judged(outcome, command, earlier)
            self.failed += outcome.startswith("failed")
            done["commands"] = [one for one in done["commands"] if one is not earlier]
            seconds = round(self.clock_s() - began_s, 1)
            entry = {
                "command": command.line,
                "outcome": outcome,
                "seconds": seconds,
                "expected_s": command.seconds,
            }
            done["commands"].append(entry)
            done["utc"] = datetime.now(timezone.utc).isoformat(timespec="microseconds")
            (folder / "done.json").write_text(json.dumps(done, indent=1))
            if outcome == TIMED_OUT:
                break
        self.show(
            f"{stage.name}: {counted(done)}\n" + "\n".join(results_of(self.output, done))[:_DIGEST]
        )
        self.keep()
        return not stage.missing(done["commands"])

    def _judged(self, outcome: str, command: Command, earlier: dict[str, Any] | None) -> str:
        """The outcome of a command that did not end: cut by the end of the call, or hanging."""
        if outcome != TIMED_OUT:
            return outcome
        if command.whole and math.isfinite(self.total_limit_s):
            return _CUT
        if self._left_s() > RESERVE_S:
            return "failed: it did not end in time"
        if earlier is not None and earlier["outcome"] == TIMED_OUT:
            return "failed: it did not end in time, twice"
        return TIMED_OUT

    def _longest_s(self, command: Command) -> float:
        if math.isfinite(self.total_limit_s):
            return _OVERTIME * command.seconds + (0 if command.whole else _START_S)
        return _HANGS[0] * command.seconds + _HANGS[1]

    def _left_s(self) -> float:
        return self.total_limit_s - RESERVE_S - (self.clock_s() - self.began_s)

    def _fits(self, command: Command) -> bool:
        least_s = command.seconds * (1 if command.whole else LEAST_SHARE)
        return self._left_s() >= least_s


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{time.time_ns()}")


def counted(done: dict[str, Any]) -> str:
    outcomes = Counter(one["outcome"].split(":")[0] for one in done["commands"])
    seconds = sum(one["seconds"] for one in done["commands"])
    return ", ".join([*(f"{n} {what}" for what, n in outcomes.items()), f"{seconds:.0f} s"])


def summary(output: Path, *, virtual: bool) -> str:
    """A row per stage of this call and earlier ones, then the tables that the stages wrote;
    Markdown.
    """
    from packing import done_stages, evidence

    stages_done = done_stages(output)
    device = evidence(output, virtual)["device"] or {}
    lines = ["# GPU campaign", "", *([VIRTUAL, ""] if virtual else [])]
    if device:
        software = ", ".join(f"{name} {number}" for name, number in device["packages"].items())
        lines += [
            f"{device['name']}, driver {device['driver']}, Python {device['python']}, {software}.",
            "",
        ]
    lines += ["| stage | shows | outcome | expected |", "| --- | --- | --- | ---: |"]
    for done in stages_done:
        expected_s = sum(one["expected_s"] for one in done["commands"])
        lines.append(f"| {done['stage']} | {done['says']} | {counted(done)} | {expected_s:.0f} s |")
    for done in stages_done:
        if results := results_of(output, done):
            lines += ["", f"## {done['stage']}", *results]
    return "\n".join(lines) + "\n"


def results_of(output: Path, done: dict[str, Any]) -> list[str]:
    """Lines of Markdown: the commands of a stage that did not end well, with the reasons, then its
    tables.
    """
    import scripts
    from packing import tables_of

    bad = [one for one in done["commands"] if one["outcome"] != "ok"]
    lines = ["", *(f"- `{_short(one['command'])}`: {one['outcome']}" for one in bad)] if bad else []
    for name, rows in tables_of(output / done["stage"]).items():
        lines += ["", f"### {name}", "", *scripts.as_markdown(rows)]
    return lines


def _short(command: str) -> str:
    """A command without the folder of its script, and cut off where it is long."""
    text = command.replace(f"{Path(__file__).resolve().parent}/", "")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def main() -> int:
    began_s = float(os.environ.setdefault(_BEGAN, str(time.monotonic())))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", nargs="*", help="stages to run (default: all)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("runs/gpu"),
        help="folder to leave (default: runs/gpu)",
    )
    parser.add_argument("--again", action="store_true", help="run commands that are done, too")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    parser.add_argument(
        "--short",
        action="store_true",
        help="small networks and limits: whether every stage runs here, in some minutes",
    )
    parser.add_argument(
        "--total-limit",
        type=float,
        default=math.inf,
        metavar="S",
        help="seconds of this call (default: no limit)",
    )
    parser.add_argument(
        "--pack", type=Path, metavar="DIR", help="folder for the six files to take along"
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        metavar="DIR",
        help="packages to install for this call; needs no network",
    )
    args = parser.parse_args()
    if args.wheels:
        import machine

        if not machine.is_ready():
            machine.start_with(args.wheels)
            print(
                f"{args.wheels} has no wheels: `make gpu-wheels` makes them where there is a "
                "network."
            )
            return 2
    os.environ.pop(_BEGAN)

    from stages import stages

    from curvescope.profiling.hardware.cuda_driver import count_gpus

    known = stages(short=args.short)
    if unknown := set(args.stage) - {stage.name for stage in known}:
        parser.error(
            f"no stage {', '.join(sorted(unknown))}; there are "
            f"{', '.join(stage.name for stage in known)}"
        )
    chosen = [stage for stage in known if not args.stage or stage.name in args.stage]
    seconds = sum(stage.seconds for stage in chosen)
    print(f"{len(chosen)} stages, about {seconds / 60:.0f} minutes, into {args.output}:")
    for stage in chosen:
        print(f"  {stage.name:<18} {stage.seconds:>4.0f} s  {stage.says}")
    if args.list:
        return 0
    if not count_gpus():
        print(
            "No GPU is usable here: `curvescope doctor` says what is missing; `make rehearse` "
            "needs none."
        )
        return 2
    return _run(args, chosen, began_s)


def _run(args: argparse.Namespace, chosen: Sequence[Stage], began_s: float) -> int:
    import machine
    import packing
    import scripts
    from running import run_command

    machine.find_tools(os.environ)
    virtual = scripts.on_virtual_card()

    def keep() -> None:
        args.output.mkdir(parents=True, exist_ok=True)
        text = summary(args.output, virtual=virtual)
        (args.output / "summary.md").write_text(text)
        if args.pack:
            packing.pack(args.output, text, virtual, args.pack)

    campaign = Campaign(
        chosen,
        args.output,
        # Under a virtual time a limit says nothing of a command that hangs.
        lambda command, folder, limit_s: run_command(
            command, folder, args.output / "data", math.inf if args.short else limit_s
        ),
        args.total_limit,
        args.again,
        began_s=began_s,
        keep=keep,
    )
    # `timeout` sends SIGTERM: what is there is packed all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        campaign.run_stages()
    finally:
        keep()
        print(
            f"Summary in {args.output / 'summary.md'}."
            + (f" Packed into {args.pack}." if args.pack else "")
        )
    return int(bool(campaign.failed))


if __name__ == "__main__":
    sys.exit(main())
