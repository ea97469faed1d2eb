"""Everything that only a GPU can show, as one campaign: `make gpu`, or `python benchmarks/gpu/campaign.py`.

It runs in stages, the most valuable first. A stage stands alone: one that fails does not stop the others, and one
that is done is not run again (`--again` does). With `--total-limit`, a stage starts only if it should end in time, and
a later call resumes: `carry/` in the output folder says what is done. Take that folder along to another machine.

The output folder has a folder per stage with its log and results, and `summary.md`. `--pack` puts what a call left into
one file. Without a GPU, `--rehearse` runs what makes sense on a CPU, very small; its results say so.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stages import Stage

sys.path.insert(0, str(Path(__file__).parent))

STAGE_LIMIT_S = 480
RESERVE_S = 25  # of the total limit, for the end of a stage's last command and for packing
_SHOWN = 120  # characters of a command in the summary
_DIGEST = 2500  # characters that are printed of a stage's results
_BEGAN = "CURVESCOPE_CAMPAIGN_BEGAN_S"  # monotonic time at which the campaign began, where it installed wheels first

RunStage = Callable[["Stage", Path, float], dict[str, Any]]  # stage, its folder and its seconds to what came of it


@dataclass
class Campaign:
    """Stages to run.

    Attributes:
        stages: stages, the most valuable first.
        output: folder of the campaign.
        run: runs a stage.
        stage_limit_s: largest number of seconds of one stage.
        total_limit_s: seconds from the begin of the campaign until the last stage must have ended.
        again: run stages that are done, too.
        clock_s: monotonic clock.
        began_s: time at which the campaign began.
        say: prints a line.
        show: prints the results of a stage that ended.
        started: names of the stages that were started.
    """

    stages: Sequence[Stage]
    output: Path
    run: RunStage
    stage_limit_s: float = STAGE_LIMIT_S
    total_limit_s: float = math.inf
    again: bool = False
    clock_s: Callable[[], float] = time.monotonic
    began_s: float = 0.0
    say: Callable[[str], None] = print
    show: Callable[[str], None] = lambda _: None
    started: list[str] = field(default_factory=list)

    def run_stages(self) -> list[str]:
        """Run what is not done yet and fits the time; returns the names of the stages left for a later call."""
        from packing import carry, done_before

        before = {str(done["stage"]): done for done in done_before(self.output)}
        left: list[str] = []
        for stage in self.stages:
            if stage.name in before and not self.again:
                self.say(f"{stage.name}: done before ({counted(before[stage.name])})")
                continue
            left_s = self.total_limit_s - RESERVE_S - (self.clock_s() - self.began_s)
            if min(stage.minutes * 60, self.stage_limit_s) > left_s:
                self.say(f"{stage.name}: left for a later call")
                left.append(stage.name)
                continue
            folder = self.output / stage.name
            if folder.exists():
                # What an interrupted or earlier run of the stage left stays, under another name.
                folder.rename(folder.with_name(f"{folder.name}.{time.time_ns()}"))
            self.started.append(stage.name)
            done = self.run(stage, folder, min(self.stage_limit_s, left_s))
            carry(self.output, stage.name)
            self.say(f"{stage.name}: {counted(done)}, {done['seconds']:.0f} s")
            self.show("\n".join(results_of(self.output, done))[:_DIGEST])
            write_summary(self.output)
        return left


def counted(done: dict[str, Any]) -> str:
    """How many commands of a stage ended in which way."""
    return ", ".join(f"{n} {what}" for what, n in done["outcomes"].items() if n)


def write_summary(output: Path) -> None:
    """`summary.md`: a row per stage of this call and earlier ones, then the tables that the stages wrote."""
    from packing import done_before

    stages_done: list[dict[str, Any]] = done_before(output)
    lines = ["# GPU campaign", ""]
    if any(done["rehearsal"] for done in stages_done):
        lines += ["**A rehearsal on a CPU: it shows that the stages run, and nothing about a GPU.**", ""]
    lines += ["| stage | shows | outcome | seconds |", "| --- | --- | --- | ---: |"]
    for done in stages_done:
        lines.append(f"| {done['stage']} | {done['says']} | {counted(done)} | {done['seconds']:.0f} |")
    for done in stages_done:
        if results := results_of(output, done):
            lines += ["", f"## {done['stage']}", *results]
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.md").write_text("\n".join(lines) + "\n")


def results_of(output: Path, done: dict[str, Any]) -> list[str]:
    """Lines of Markdown: the commands of a stage that did not end well, with the reasons, then its tables."""
    bad = [c for c in done["commands"] if c["outcome"] != "ok"]
    lines = ["", *(f"- `{_short(c['command'])}`: {c['outcome']}" for c in bad)] if bad else []
    for part in sorted((output / "carry" / done["stage"]).glob("*.md")):
        lines += ["", f"### {part.stem}", "", part.read_text().strip()]
    return lines


def _short(command: str) -> str:
    """A command without the folder of its script, and cut off where it is long."""
    text = command.replace(f"{Path(__file__).resolve().parent}/", "")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


def main() -> int:
    """Run what was asked for and is not done yet; the exit code is 1 if a stage of this call failed."""
    began_s = float(os.environ.pop(_BEGAN, time.monotonic()))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="*", help="stages to run (default: all)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("runs/gpu"), help="folder to leave (default: runs/gpu)"
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, very small")
    parser.add_argument("--again", action="store_true", help="run stages that are done, too")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    parser.add_argument(
        "--stage-limit", type=float, default=STAGE_LIMIT_S, metavar="S", help="seconds of one stage (default: 480)"
    )
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

    from stages import FULL, REHEARSAL, stages

    scale = REHEARSAL if args.rehearse else FULL
    chosen = [stage for stage in stages(scale) if not args.stage or stage.name in args.stage]
    if unknown := set(args.stage) - {stage.name for stage in chosen}:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in stages(scale))}")
    where = "a rehearsal on the CPU" if args.rehearse else f"about {sum(stage.minutes for stage in chosen)} minutes"
    print(f"{len(chosen)} stages, {where}, into {args.output}:")
    for stage in chosen:
        print(f"  {stage.name:<18} {'' if args.rehearse else f'{stage.minutes:>2} min  '}{stage.says}")
    if args.list:
        return 0
    if not args.rehearse and not _count_gpus():
        print("No GPU is usable here: `curvescope doctor` says what is missing; --rehearse needs none.")
        return 2
    return _run(args, chosen, began_s)


def _run(args: argparse.Namespace, chosen: Sequence[Stage], began_s: float) -> int:
    from packing import done_before, pack
    from running import run_stage

    def run(stage: Stage, folder: Path, limit_s: float) -> dict[str, Any]:
        return run_stage(stage, folder, args.output / "carry" / "data", limit_s, rehearsal=args.rehearse)

    campaign = Campaign(
        chosen, args.output, run, args.stage_limit, args.total_limit, args.again, began_s=began_s, show=print
    )
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
    failed = [done["stage"] for done in done_before(args.output) if done["outcomes"]["failed"]]  # type: ignore[index]
    return int(bool(set(failed) & set(campaign.started)))


def _count_gpus() -> int:
    from curvescope.profiling.hardware.cuda_driver import count_gpus

    return count_gpus()


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
