"""Everything that only a GPU can show, as one campaign: `make gpu`, or `python benchmarks/gpu/campaign.py`.

It runs in stages, the most valuable first; each is a list of commands. A stage stands alone: one that fails does not
stop the others. With `--total-limit`, a later call resumes with the commands that did not end: `carry/` in the output
folder says what is done. Take that folder along to another machine.

The output folder has a folder per stage with its log and results, and `summary.md`. `--pack` puts what a call left into
one file. Without a GPU, `--rehearse` runs what makes sense on a CPU, very small; its results say so.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages import Command, Stage

sys.path.insert(0, str(Path(__file__).parent))

RESERVE_S = 25  # of the total limit, for the end of a stage's last command and for packing
LEAST_SHARE = 1 / 3  # of its estimate must fit for a command to start
TIMED_OUT = "timed out"
_HANGS = 4, 60.0  # a command that takes so many times its estimate, and so many seconds more, hangs
_SHOWN = 120  # characters of a command in the summary
_DIGEST = 2500  # characters that are printed of a stage's results
_BEGAN = "CURVESCOPE_CAMPAIGN_BEGAN_S"  # monotonic time at which the campaign began, where it installed wheels first

RunCommand = Callable[["Command", Path, float], str]  # command, folder of its stage and seconds to its outcome


@dataclass
class Campaign:
    """Stages to run."""

    stages: Sequence[Stage]  # the most valuable first
    output: Path
    run: RunCommand  # runs a command; returns ok, timed out, or failed or skipped with the reason after a colon
    total_limit_s: float = math.inf  # seconds from the begin of the campaign until the last command must have ended
    again: bool = False  # run commands that are done, too
    rehearsal: bool = False  # on a CPU
    clock_s: Callable[[], float] = time.monotonic
    began_s: float = 0.0
    show: Callable[[str], None] = print
    started: list[str] = field(default_factory=list)  # names of stages
    failed: int = 0  # commands of this call

    def run_stages(self) -> list[str]:
        """Run what is not done yet and fits the time; returns the names of the stages with commands left."""
        from packing import done_before

        before = {} if self.again else {done["stage"]: done for done in done_before(self.output)}
        left = []
        for stage in self.stages:
            done = before.get(stage.name) or {"stage": stage.name, "says": stage.says, "commands": []}
            missing = stage.missing(done["commands"], self.output / stage.name)
            if not missing:
                self.show(f"{stage.name}: done before ({counted(done)})")
            elif not self._fits(sum(command.seconds for command in missing)):
                self.show(f"{stage.name}: left for a later call")
                left.append(stage.name)
            elif not self._run(stage, missing, done):
                left.append(stage.name)
        return left

    def _run(self, stage: Stage, missing: Sequence[Command], done: dict[str, Any]) -> bool:
        """Run commands of a stage until one does not end; returns whether all ended."""
        from packing import carry, unpack_carried

        folder = self.output / stage.name
        if self.again and folder.exists():
            folder.rename(folder.with_name(f"{folder.name}.{time.time_ns()}"))
        unpack_carried(self.output, stage.name)
        self.started.append(stage.name)
        for command in missing:
            if not self._fits(command.seconds):
                break
            for path in map(folder.joinpath, command.made):
                if path.exists():
                    # What an interrupted or earlier run of the command left stays, under another name.
                    path.rename(path.with_name(f"{path.name}.{time.time_ns()}"))
            began_s = self.clock_s()
            hangs_s = _HANGS[0] * command.seconds + _HANGS[1]
            outcome = self.run(command, folder, min(self._left_s(), hangs_s))
            earlier = next((one for one in done["commands"] if one["command"] == command.line), None)
            again = earlier is not None and earlier["outcome"] == TIMED_OUT
            if outcome == TIMED_OUT and (again or self._left_s() > RESERVE_S):
                outcome = "failed: it did not end in time" + (", twice" if again else "")
            self.failed += outcome.startswith("failed")
            done["commands"] = [one for one in done["commands"] if one is not earlier]
            seconds = round(self.clock_s() - began_s, 1)
            done["commands"].append({"command": command.line, "outcome": outcome, "seconds": seconds})
            done["rehearsal"] = self.rehearsal
            done["utc"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
            (folder / "done.json").write_text(json.dumps(done, indent=1))
            carry(self.output, stage.name)
            if outcome == TIMED_OUT:
                break
        write_summary(self.output)
        self.show(f"{stage.name}: {counted(done)}\n" + "\n".join(results_of(self.output, done))[:_DIGEST])
        return not stage.missing(done["commands"], folder)

    def _left_s(self) -> float:
        return self.total_limit_s - RESERVE_S - (self.clock_s() - self.began_s)

    def _fits(self, seconds: float) -> bool:
        return self._left_s() >= LEAST_SHARE * seconds and self._left_s() > 0


def counted(done: dict[str, Any]) -> str:
    outcomes = Counter(one["outcome"].split(":")[0] for one in done["commands"])
    seconds = sum(one["seconds"] for one in done["commands"])
    return ", ".join([*(f"{n} {what}" for what, n in outcomes.items()), f"{seconds:.0f} s"])


def write_summary(output: Path) -> None:
    """`summary.md`: a row per stage of this call and earlier ones, then the tables that the stages wrote."""
    from packing import done_before

    stages_done = done_before(output)
    lines = ["# GPU campaign", ""]
    if any(done["rehearsal"] for done in stages_done):
        lines += ["**A rehearsal on a CPU: it shows that the stages run, and nothing about a GPU.**", ""]
    lines += ["| stage | shows | outcome |", "| --- | --- | --- |"]
    lines += [f"| {done['stage']} | {done['says']} | {counted(done)} |" for done in stages_done]
    for done in stages_done:
        if results := results_of(output, done):
            lines += ["", f"## {done['stage']}", *results]
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.md").write_text("\n".join(lines) + "\n")


def results_of(output: Path, done: dict[str, Any]) -> list[str]:
    """Lines of Markdown: the commands of a stage that did not end well, with the reasons, then its tables."""
    bad = [one for one in done["commands"] if one["outcome"] != "ok"]
    lines = ["", *(f"- `{_short(one['command'])}`: {one['outcome']}" for one in bad)] if bad else []
    for part in sorted((output / "carry" / done["stage"]).glob("*.md")):
        lines += ["", f"### {part.stem}", "", part.read_text().strip()]
    return lines


def _short(command: str) -> str:
    """A command without the folder of its script, and cut off where it is long."""
    text = command.replace(f"{Path(__file__).resolve().parent}/", "")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def main() -> int:
    began_s = float(os.environ.pop(_BEGAN, time.monotonic()))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="*", help="stages to run (default: all)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("runs/gpu"), help="folder to leave (default: runs/gpu)"
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, very small")
    parser.add_argument("--again", action="store_true", help="run commands that are done, too")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    parser.add_argument(
        "--total-limit", type=float, default=math.inf, metavar="S", help="seconds of this call (default: no limit)"
    )
    parser.add_argument(
        "--pack", type=Path, metavar="FILE.tar.gz", help="file for what this call leaves (15 MiB at most)"
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="install these wheels for this call; needs no network"
    )
    args = parser.parse_args()
    if args.wheels:
        return _run_with_wheels(args.wheels, began_s)

    from stages import stages

    from curvescope.profiling.hardware.cuda_driver import count_gpus

    known = stages(args.rehearse)
    if unknown := set(args.stage) - {stage.name for stage in known}:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(stage.name for stage in known)}")
    chosen = [stage for stage in known if not args.stage or stage.name in args.stage]
    seconds = sum(stage.seconds for stage in chosen)
    where = "a rehearsal on the CPU" if args.rehearse else f"about {seconds / 60:.0f} minutes"
    print(f"{len(chosen)} stages, {where}, into {args.output}:")
    for stage in chosen:
        print(f"  {stage.name:<18} {'' if args.rehearse else f'{stage.seconds:>4.0f} s  '}{stage.says}")
    if args.list:
        return 0
    if not args.rehearse and not count_gpus():
        print("No GPU is usable here: `curvescope doctor` says what is missing; --rehearse needs none.")
        return 2
    return _run(args, chosen, began_s)


def _run(args: argparse.Namespace, chosen: Sequence[Stage], began_s: float) -> int:
    from packing import pack
    from running import run_command

    def run(command: Command, folder: Path, limit_s: float) -> str:
        limit_s = math.inf if args.rehearse else limit_s  # a busy machine takes what it takes
        return run_command(command, folder, args.output / "carry" / "data", limit_s, rehearsal=args.rehearse)

    campaign = Campaign(chosen, args.output, run, args.total_limit, args.again, args.rehearse, began_s=began_s)
    # `timeout` sends SIGTERM: what is there is packed all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        campaign.run_stages()
    finally:
        write_summary(args.output)
        print(f"Summary in {args.output / 'summary.md'}.")
        if args.pack:
            left_out = pack(args.output, campaign.started, args.pack)
            print(f"Packed into {args.pack}." + "".join(f"\n  too large: {name}" for name in left_out))
    return int(bool(campaign.failed))


def _run_with_wheels(folder: Path, began_s: float) -> int:
    """Install wheels into a temporary folder, and run this call with them; returns its exit code."""
    wheels = sorted(map(str, folder.glob("*.whl")))
    if not wheels:
        print(f"{folder} has no wheels: `make gpu-wheels` makes them where there is a network.")
        return 2
    with tempfile.TemporaryDirectory(prefix="curvescope-wheels-") as site:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--disable-pip-version-check", "--target", site, *wheels], check=True)
        path = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
        words = iter(sys.argv[1:])
        arguments = [word for word in words if not (word == "--wheels" and next(words))]
        arguments = [word for word in arguments if not word.startswith("--wheels=")]
        command = subprocess.Popen(
            [sys.executable, __file__, *arguments], env={**os.environ, "PYTHONPATH": path, _BEGAN: str(began_s)}
        )
        # The stages end and are packed there; this process only waits.
        signal.signal(signal.SIGTERM, lambda number, _: command.send_signal(number))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
        return command.wait()


if __name__ == "__main__":
    sys.exit(main())
