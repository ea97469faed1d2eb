"""Starts the ranks of a scaling run on this machine, under torchrun, and ends them when one fails or the user stops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..errors import CurvescopeError
from ..recording.store import RecordingWriter
from .experiment import Progress
from .scaling_plan import ScalingPlan, rank_folder
from .visit_processes import end_with_parent

_POLL_S = 0.2
_GRACE_S = 15.0  # torchrun ends its ranks when it is told to stop
_SHOWN_LINES = 6
_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)")


def launch(
    folder: Path, plan: ScalingPlan, rank_module: str, report: Callable[[Progress], None] = lambda _: None
) -> None:
    """Run the plan of a folder with one process per device, and wait for its end.

    Args:
        folder: where the plan lies; what the ranks print goes to its `logs`.
        plan: what it says.
        rank_module: what a rank runs: a module that is given the folder.
        report: told a few times a second where the run stands.

    Raises:
        CurvescopeError: a rank failed; the others are ended, and the end of its log is told.
        KeyboardInterrupt: passed on, after the ranks are ended.
    """
    logs = _new_folder(folder / "logs")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={max(plan.devices)}", f"--log-dir={logs}", "--redirects=3"]
    command += ["-m", rank_module, str(folder)]
    environment = dict(os.environ)
    # torchrun hands these on; without a number of threads it sets one and says so at length.
    environment["OMP_NUM_THREADS"] = str(plan.threads or 1)
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(  # noqa: S603 - this Python, and our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends that one
            preexec_fn=lambda: end_with_parent(signal.SIGTERM),
        )
        try:
            while process.poll() is None:
                report(_standing(folder, plan, time.monotonic() - began))
                time.sleep(_POLL_S)
        finally:
            _end(process)
            _mark_interrupted(folder, plan)
        if process.returncode:
            said.seek(0)
            raise CurvescopeError(describe_failure(said.read().decode(errors="replace"), logs, folder))


def _mark_interrupted(folder: Path, plan: ScalingPlan) -> None:
    """Ranks that were ended had no time to say so."""
    for devices in plan.devices:
        for rank in range(devices):
            with suppress(CurvescopeError):  # not begun, or the disk is the reason
                RecordingWriter.mark_interrupted(rank_folder(folder, devices, rank))


def _new_folder(parent: Path) -> Path:
    """Logs of an earlier start stay."""
    number = 1 + len(list(parent.glob("*")))
    (path := parent / str(number)).mkdir(parents=True)
    return path


def _standing(folder: Path, plan: ScalingPlan, elapsed_s: float) -> Progress:
    """From the parts that rank 0 has written."""
    done = sum(len(list((rank_folder(folder, n, 0) / "steps").glob("*.parquet"))) for n in plan.devices)
    rounds, within = divmod(done, len(plan.points))
    doing = f"round {rounds + 1}, {within} of {len(plan.points)} points" if done else "starting the ranks"
    limit_s = plan.protocol.time_limit_s
    expected_s = elapsed_s * plan.protocol.rounds[0] * len(plan.points) / done if done else 0.0
    return Progress(elapsed_s, max(expected_s, limit_s or 0.0), doing)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the ranks end with it
        process.wait()


def describe_failure(said: str, logs: Path, folder: Path) -> str:
    """Which rank failed first, and what it said last.

    Args:
        said: what torchrun printed.
        logs: folder of the ranks' logs.
        folder: of the run.
    """
    failures = [(int(rank), int(code)) for rank, code in _FAILURE.findall(said)]
    ends = {rank: _log_end(logs, rank) for rank, _ in failures}
    if not failures:
        tail = "\n".join(said.strip().splitlines()[-_SHOWN_LINES:])
        return f"The ranks could not be started by torchrun, which said:\n{tail}"
    # One rank's end takes the others with it: they lose the connection, or torchrun ends them (SIGTERM).
    killed = [rank for rank, code in failures if code < 0 and code != -signal.SIGTERM]
    refused = [rank for rank, _ in failures if ends[rank].startswith("curvescope: ")]
    first = next(iter([*refused, *killed, failures[0][0]]))
    end = ends[first]
    if first in refused:
        return end.removeprefix("curvescope: ")
    code = dict(failures)[first]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", which the system sends when memory runs out"
    return (
        f"Rank {first} {how}; the others were ended with it, and what they had finished stays (`curvescope scale "
        f"--resume {folder}` goes on). Its log is under {logs}"
        + (f" and ends:\n{end}" if end else "; it said nothing.")
    )


def _log_end(logs: Path, rank: int) -> str:
    lines: list[str] = []
    for log in sorted(logs.glob(f"*/attempt_0/{rank}/stderr.log")):
        lines += log.read_text(errors="replace").strip().splitlines()
    said = next((line for line in reversed(lines) if line.startswith("curvescope: ")), None)
    return said or "\n".join(lines[-_SHOWN_LINES:])
