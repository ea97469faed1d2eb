"""Everything that only a GPU can show, as one campaign: `make gpu`, or `python benchmarks/gpu/campaign.py`.

Runs in stages that stand alone and fit ten minutes each; one that fails does not stop the others, and one that is done
is not run again (`--again` does). What it leaves is one folder: a folder per stage with its log and results, and
`summary.md`. Without a GPU, `--rehearse` runs what makes sense on a CPU, very small; what it leaves says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from stages import FULL, REHEARSAL, Command, Stage, stages

# Ten minutes with what stopping a command takes.
STAGE_LIMIT_S = 570
GRACE_S = 20
_SKIPPED_CODE = 2  # bad input, or a backend that is not here: its message is in the log


def main() -> int:
    """Run what was asked for and is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="*", help="stages to run (default: all)")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("runs/gpu"), help="folder to leave (default: runs/gpu)"
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, very small")
    parser.add_argument("--again", action="store_true", help="run stages that are done, too")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    args = parser.parse_args()
    scale = REHEARSAL if args.rehearse else FULL
    chosen = [stage for stage in stages(scale) if not args.stage or stage.name in args.stage]
    if unknown := set(args.stage) - {stage.name for stage in chosen}:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in stages(scale))}")
    where = "a rehearsal on the CPU" if args.rehearse else f"about {sum(stage.minutes for stage in chosen)} minutes"
    print(f"{len(chosen)} stages, {where}, into {args.output}:")
    for stage in chosen:
        print(f"  {stage.name:<16} {'' if args.rehearse else f'{stage.minutes:>2} min  '}{stage.says}")
    if args.list:
        return 0
    if not args.rehearse and not _has_gpu():
        print("No CUDA device is usable here: `curvescope doctor` says what is missing; --rehearse needs none.")
        return 2
    for stage in chosen:
        folder = args.output / stage.name
        if (folder / "done.json").is_file() and not args.again:
            print(f"{stage.name}: done before")
            continue
        if folder.exists():
            # A stage that was cut off, or is wanted again: what it left stays, under another name.
            folder.rename(folder.with_name(f"{folder.name}.{time.time_ns()}"))
        done = run_stage(stage, folder, args.rehearse)
        counts = ", ".join(f"{n} {what}" for what, n in done["outcomes"].items() if n)
        print(f"{stage.name}: {counts}, {done['seconds']:.0f} s")
        write_summary(args.output, args.rehearse)
    write_summary(args.output, args.rehearse)
    print(f"Summary in {args.output / 'summary.md'}.")
    return 0


def run_stage(stage: Stage, folder: Path, rehearsal: bool) -> dict[str, Any]:
    """Run the commands of a stage in its folder; `done.json` says what came of each."""
    folder.mkdir(parents=True)
    began = time.monotonic()
    results = []
    with (folder / "log.txt").open("w") as log:
        for command in stage.commands:
            left_s = STAGE_LIMIT_S - (time.monotonic() - began)
            started = time.monotonic()
            outcome = run_command(command, folder, log, left_s, rehearsal)
            results.append(
                {
                    "command": command.line,
                    "environment": dict(command.environment),
                    "outcome": outcome,
                    "seconds": round(time.monotonic() - started, 1),
                }
            )
    outcomes = [result["outcome"].split(":")[0] for result in results]
    done = {
        "stage": stage.name,
        "says": stage.says,
        "rehearsal": rehearsal,
        "utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "outcomes": {what: outcomes.count(what) for what in ("ok", "failed", "skipped", "timed out")},
        "commands": results,
    }
    (folder / "done.json").write_text(json.dumps(done, indent=1))
    return done


def run_command(command: Command, folder: Path, log: Any, left_s: float, rehearsal: bool) -> str:
    """Run one command; returns ok, or failed, skipped or timed out with the reason after a colon."""
    print(f"$ {command.line}", file=log, flush=True)
    if command.cuda and rehearsal:
        return "skipped: needs a GPU"
    if command.needs and shutil.which(command.needs) is None:
        return f"skipped: {command.needs} is not on PATH"
    if left_s <= 0:
        return "timed out: the stage's ten minutes were over"
    with (folder / command.output).open("w") if command.output else os.fdopen(os.dup(log.fileno()), "w") as out:
        process = subprocess.Popen(
            command.argv,
            cwd=folder,
            stdout=out,
            stderr=log,
            # Ceilings are kept with the results, for the stages after them, and nothing in the user's own folder.
            env={**os.environ, "CURVESCOPE_DATA": str(folder.parent.resolve() / "data"), **command.environment},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=left_s)
        except BaseException as error:
            stop(process)
            if isinstance(error, subprocess.TimeoutExpired):
                return "timed out: the stage's ten minutes were over"
            raise
    if code == 0:
        return "ok"
    return (
        f"skipped: not to be had here (exit code {code}, see log.txt)" if code == _SKIPPED_CODE else f"failed: {code}"
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a command and its children: interrupted first, so that what it recorded stays readable."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write_summary(output: Path, rehearsal: bool) -> None:
    """`summary.md`: a row per stage, then what the stages wrote as Markdown."""
    stages_done = [json.loads(path.read_text()) for path in output.glob("*/done.json") if "." not in path.parent.name]
    stages_done.sort(key=lambda done: done["utc"])
    lines = ["# GPU campaign", ""]
    if rehearsal:
        lines += ["**A rehearsal on a CPU: it shows that the stages run, and nothing about a GPU.**", ""]
    lines += ["| stage | shows | outcome | seconds |", "| --- | --- | --- | ---: |"]
    for done in stages_done:
        outcome = ", ".join(f"{n} {what}" for what, n in done["outcomes"].items() if n)
        lines.append(f"| {done['stage']} | {done['says']} | {outcome} | {done['seconds']:.0f} |")
    for done in stages_done:
        parts = sorted((output / done["stage"]).glob("*.md"))
        bad = [c for c in done["commands"] if c["outcome"] != "ok"]
        if parts or bad:
            lines += ["", f"## {done['stage']}"]
        lines += ["", *(f"- `{c['command']}`: {c['outcome']}" for c in bad)] if bad else []
        for part in parts:
            lines += ["", f"### {part.stem}", "", part.read_text().strip()]
    output.mkdir(parents=True, exist_ok=True)
    (output / "summary.md").write_text("\n".join(lines) + "\n")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


if __name__ == "__main__":
    sys.exit(main())
