"""Starts the ranks of a scaling run on this machine with torchrun; ends them if one fails or the user stops the run."""

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

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ..recording.store import RecordingWriter
from .loop import Progress
from .processes import end_with_parent
from .scaling_plan import ScalingPlan, rank_folder

_POLL_S = 0.2
_GRACE_S = 15.0  # time for torchrun to end its ranks after SIGTERM
_SHOWN_LINES = 6
_PREFIX = "curvescope: "  # of a rank's message for the user
_FAILURE = re.compile(r"rank\s*: (\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*: (-?\d+)")


def launch(
    folder: Path, plan: ScalingPlan, rank_module: str, report: Callable[[Progress], None] = lambda _: None
) -> None:
    """Run the plan of a folder with one process per device, and wait for its end.

    `rank_module` runs one rank; its argument is the folder, to whose `logs` the ranks write. If one fails, the others
    are ended, and the error contains the end of its log.
    """
    logs = folder / "logs" / str(len(list((folder / "logs").glob("*"))) + 1)  # those of earlier starts are kept
    logs.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    command += [f"--nproc-per-node={max(plan.devices)}", f"--log-dir={logs}", "--redirects=3"]
    command += ["-m", rank_module, str(folder)]
    # Without a number of threads torchrun sets one and prints a long warning.
    environment = {**os.environ, "OMP_NUM_THREADS": str(plan.threads or 1)}
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603 - this Python, and our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends torchrun
            preexec_fn=lambda: end_with_parent(signal.SIGTERM),
        )
        try:
            while process.poll() is None:
                report(_progress(folder, plan, time.monotonic() - began))
                time.sleep(_POLL_S)
        finally:
            _end(process)
            _mark_interrupted(folder, plan)
        if process.returncode:
            output.seek(0)
            raise CurvescopeError(describe_failure(output.read().decode(errors="replace"), logs, folder))


def _mark_interrupted(folder: Path, plan: ScalingPlan) -> None:
    """Mark recordings interrupted whose ranks were ended before they could do so."""
    for devices in plan.devices:
        for rank in range(devices):
            with suppress(CurvescopeError):  # the recording does not exist, or the disk fails
                RecordingWriter.mark_interrupted(rank_folder(folder, devices, rank))


def _progress(folder: Path, plan: ScalingPlan, elapsed_s: float) -> Progress:
    """Progress by the part files that rank 0 has written."""
    done = sum(len(list((rank_folder(folder, n, 0) / "steps").glob("*.parquet"))) for n in plan.devices)
    rounds, within = divmod(done, len(plan.points))
    doing = f"round {rounds + 1}, {within} of {counted(len(plan.points), 'point')}" if done else "starting the ranks"
    expected_s = elapsed_s * plan.protocol.rounds[0] * len(plan.points) / done if done else 0.0
    return Progress(elapsed_s, max(expected_s, plan.protocol.time_limit_s or 0.0), doing)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # ends the ranks too
        process.wait()


def describe_failure(output: str, logs: Path, folder: Path) -> str:
    """Describe which rank failed first, by the output of torchrun, with the end of its log."""
    codes = {int(rank): int(code) for rank, code in _FAILURE.findall(output)}
    if not codes:
        tail = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
        return f"torchrun could not start the ranks; its output ends:\n{tail}"
    ends = {rank: _log_end(logs, rank) for rank in codes}
    # When one rank ends, the others lose their connection or get SIGTERM from torchrun.
    killed = [rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM]
    refused = [rank for rank in codes if ends[rank].startswith(_PREFIX)]
    first = next(iter([*refused, *killed, *codes]))
    if first in refused:
        return ends[first].removeprefix(_PREFIX)
    code = codes[first]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", which the system sends when memory runs out"
    return (
        f"Rank {first} {how}. The other ranks were ended; their finished visits are kept, and `curvescope scale "
        f"--resume {folder}` resumes the run. The log of the rank is under {logs}"
        + (f" and ends:\n{ends[first]}" if ends[first] else "; it is empty.")
    )


def _log_end(logs: Path, rank: int) -> str:
    """The rank's message for the user, or the last lines of its log."""
    lines: list[str] = []
    for log in sorted(logs.glob(f"*/attempt_0/{rank}/stderr.log")):
        lines += log.read_text(errors="replace").strip().splitlines()
    message = next((line for line in reversed(lines) if line.startswith(_PREFIX)), None)
    return message or "\n".join(lines[-_SHOWN_LINES:])
