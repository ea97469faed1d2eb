"""Starts the ranks of a scaling run on this machine, and ends them if one fails or the user stops
the run.

They meet in a private file and connect on loopback: torchrun's rendezvous and stores listen on
every address.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.own_process import end_with_parent, python_command
from ..hardware.register import register
from ..recording.inside import open_folder
from ..recording.rank_info import RENDEZVOUS_FILE
from ..recording.store import RecordingWriter
from .loop import Progress
from .scaling_plan import ScalingPlan, rank_folder, rank_folder_to_write

_POLL_S = 0.2
_GRACE_S = 15.0  # of the ranks after SIGTERM
_SHOWN_LINES = 6
_PREFIX = "curvescope: "  # of a rank's message for the user


def launch(
    folder: Path,
    plan: ScalingPlan,
    rank_module: str,
    report: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Run the plan of a folder with one process per device, and wait for its end.

    `rank_module.main` runs one rank; its argument is the folder, to whose `logs` the ranks write.
    If one fails, the others are ended, and the error contains the end of its log.
    """
    # those of earlier starts are kept
    start = str(len(list((folder / "logs").glob("*"))) + 1)
    logs = folder / "logs" / start
    began_s = time.monotonic()
    with (
        register(f"scaling run into {folder}"),
        tempfile.TemporaryDirectory(prefix="curvescope-") as private,
        ExitStack() as ended,
    ):
        ranks: list[subprocess.Popen[bytes]] = []
        ended.callback(_mark_interrupted, folder, plan)
        ended.callback(_end, ranks)
        for rank in range(max(plan.devices)):
            with (
                open_folder(folder, "logs", start, make=True) as there,
                there.create(f"rank{rank}.log") as log,
            ):
                process = subprocess.Popen(  # noqa: S603 - this Python, and our own module
                    python_command(rank_module, "main", folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **_variables(plan, rank, Path(private))},
                    # Ctrl-C reaches this process alone, which then ends the ranks
                    start_new_session=True,
                    preexec_fn=end_with_parent,
                )
            ranks.append(process)
        while not any(process.poll() for process in ranks) and None in [p.poll() for p in ranks]:
            report(_progress(folder, plan, time.monotonic() - began_s))
            time.sleep(_POLL_S)
        codes = {rank: process.poll() for rank, process in enumerate(ranks)}
    failed = {rank: code for rank, code in codes.items() if code}
    if failed:
        raise CurvescopeError(describe_failure(failed, logs, folder))


def _variables(plan: ScalingPlan, rank: int, private: Path) -> dict[str, str]:
    """The environment of one rank: as torchrun sets it, but the ranks meet in a file, and connect
    on loopback.
    """
    numbers = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": max(plan.devices),
        "LOCAL_WORLD_SIZE": max(plan.devices),
        "GROUP_RANK": 0,
        "OMP_NUM_THREADS": plan.threads or 1,
    }
    loopback = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    meeting = {RENDEZVOUS_FILE: str(private / "ranks")}
    return loopback | meeting | {name: str(number) for name, number in numbers.items()}


def _mark_interrupted(folder: Path, plan: ScalingPlan) -> None:
    """Mark recordings interrupted whose ranks were ended before they could do so."""
    for devices in plan.devices:
        for rank in range(devices):
            with suppress(CurvescopeError):  # the recording does not exist, or the disk fails
                RecordingWriter.mark_interrupted(rank_folder_to_write(folder, devices, rank))


def _progress(folder: Path, plan: ScalingPlan, elapsed_s: float) -> Progress:
    """Progress by the part files that rank 0 has written."""
    done = sum(
        len(list((rank_folder(folder, n, 0) / "steps").glob("*.parquet"))) for n in plan.devices
    )
    rounds, within = divmod(done, len(plan.points))
    if done:
        doing = f"round {rounds + 1}, {within} of {counted(len(plan.points), 'point')}"
    else:
        doing = "starting the ranks"
    expected_s = elapsed_s * plan.protocol.rounds[0] * len(plan.points) / done if done else 0.0
    return Progress(elapsed_s, max(expected_s, plan.protocol.time_limit_s or 0.0), doing)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the ranks that still run."""
    running = [process for process in ranks if process.poll() is None]
    for process in running:
        process.terminate()
    deadline_s = time.monotonic() + _GRACE_S
    for process in running:
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # ends what it started, too
            process.wait()


def describe_failure(codes: Mapping[int, int], logs: Path, folder: Path) -> str:
    """Describe which rank failed first, by the exit codes of those that failed, with the end of its
    log.
    """
    ends = {rank: _log_end(logs / f"rank{rank}.log") for rank in codes}
    # When one rank ends, the others lose their connection.
    refused = [rank for rank in codes if ends[rank].startswith(_PREFIX)]
    first = next(iter([*refused, *(rank for rank, code in codes.items() if code < 0), *codes]))
    if first in refused:
        return ends[first].removeprefix(_PREFIX)
    code = codes[first]
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    if code == -signal.SIGKILL:
        how += ", which the system sends when memory runs out"
    return (
        f"Rank {first} {how}. The other ranks were ended; their finished visits are kept, and "
        f"`curvescope scale measure --resume {folder}` resumes the run. The log of the rank is "
        f"under {logs}" + (f" and ends:\n{ends[first]}" if ends[first] else "; it is empty.")
    )


def _log_end(log: Path) -> str:
    """The rank's message for the user, or the last lines of its log."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    message = next((line for line in reversed(lines) if line.startswith(_PREFIX)), None)
    return message or "\n".join(lines[-_SHOWN_LINES:])
