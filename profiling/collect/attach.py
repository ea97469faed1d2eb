"""Records the next steps of a running program, on a signal or when a file appears:
`curvescope.attach()`.

Nothing is hooked until then. The hooks of `startup/torch_windows.py` record each step as a window
of its own, since torch's profiler holds Python while it ends, in proportion to its events: the
program waits for one step's at a time. After the last of them a thread writes the events, a few at
a time, so that the steps beside it have Python, and a process of its own makes the recording, whose
fact `attached` has the waits.
"""

from __future__ import annotations

import json
import os
import signal as signals
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from ...base.counted import counted
from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ...base.own_process import python_command
from ...base.torch_runtime import import_torch
from ..recording.store import RecordingWriter, new_recording_path
from .startup import torch_windows

_POLL_S = 0.5
# of a model in training before an optimizer is seen, e.g. with accumulated gradients
_MOST_CALLS = 64
_SLICE_EVENTS = 50
_PAUSE_S = 0.01  # between two slices, which take some half a millisecond each
_META = "meta"
_MISSING = {
    "between_steps": "a step begins with the model's call: what runs before, e.g. the loader, is "
    "not in it"
}
_Window = tuple[dict[str, Any], Any]  # what a file has of it, and the profile with its events


class Attached:
    """Waits in a program for a request to record steps; made by `attach`."""

    def __init__(self, folder: Path, steps: int) -> None:
        self._steps, self._recorder = steps, _NextSteps(import_torch(), folder)
        self._recorder.attach()

    def start(self, steps: int | None = None) -> None:
        """Record the next steps, by default as many as `attach` said; while it records, end with
        the step that runs.
        """
        self._recorder.request(steps or self._steps)

    def wait(self) -> list[Path]:
        """The recordings that were made, after that which is being written; one that waits for
        steps ends.
        """
        self._recorder.end()
        return list(self._recorder.made)

    def watch(self, file: Path) -> None:
        """Start to record whenever the file appears, as many steps as it says; it is removed."""
        while True:
            if file.exists():
                text = file.read_text().strip()
                file.unlink()
                self.start(int(text) if text.isdecimal() else None)
            time.sleep(_POLL_S)


class _NextSteps(torch_windows.Recorder):
    """Records steps when asked to, each as a window."""

    def __init__(self, torch: Any, folder: Path) -> None:
        super().__init__(torch, folder)
        self.made: list[Path] = []
        self._writer: threading.Thread | None = None
        self._wanted = 0
        self._ended: list[_Window] = []
        self._waits: dict[str, list[int]] = {}

    def attach(self) -> None:
        """Watch the program's own use of the profiler; calls are hooked later."""
        super().attach()
        self._unhook_calls()

    def request(self, steps: int) -> None:
        """Record so many steps from the next call of the model on; if some are recorded, end after
        the current one.
        """
        if self._handles:
            self._wanted = 1
            if self._profile is None and self._ended:
                self._finish()
            return
        self._reset()
        self._wanted, self._ended, self._waits = steps, [], {"begin_wait_ns": [], "end_wait_ns": []}
        self._hook_calls()

    def end(self) -> None:
        super().end()
        self._finish()
        if self._writer is not None:
            self._writer.join()

    def give_up(self, why: Any) -> None:
        super().give_up(why)
        self._finish()

    def _finish(self) -> None:
        self._unhook_calls()
        if self._ended:
            self._writer = threading.Thread(
                target=self._save, args=(self._ended, self._waits), daemon=True
            )
            self._ended = []
            self._writer.start()

    def _note_call(self, module: Any, arguments: Any) -> None:
        # A request may come inside the model's call, whose hooks torch has already passed: its
        # parts are no models.
        if self._model is None and _is_in_module():
            return
        super()._note_call(module, arguments)

    def _begun(self) -> Any:
        before_ns = time.monotonic_ns()
        profile = super()._begun()
        self._waits["begin_wait_ns"].append(time.monotonic_ns() - before_ns)
        return profile

    def _is_long(self) -> bool:
        if self._profile is None:
            return False
        kinds = [kind for _, kind, _ in self._boundaries]
        return self._optimizer is not None or "training" not in kinds or len(kinds) >= _MOST_CALLS

    def _write_window(self, profile: Any) -> None:
        before_ns = time.monotonic_ns()
        window = self._window()
        self._end_profile(profile)
        self._waits["end_wait_ns"].append(time.monotonic_ns() - before_ns)
        self._ended.append((window, profile))
        if len(self._ended) >= self._wanted:
            self._finish()

    def _write(self, name: Any, document: Any) -> None:  # noqa: ARG002 - windows are kept
        print(f"curvescope: {document['status']}", file=sys.stderr)

    def _save(self, windows: list[_Window], waits: dict[str, list[int]]) -> None:
        with tempfile.TemporaryDirectory(prefix="curvescope-") as scratch:
            for number in range(len(windows)):
                # torch holds Python while it frees the events of one
                window, profile = windows.pop(0)
                _write_window(
                    Path(scratch, f"{window['process']}-{number:06d}.window.json"), window, profile
                )
            Path(scratch, _META).write_text(
                json.dumps(
                    {"argv": without_secrets(sys.argv), "attached": waits, "missing": _MISSING}
                )
            )
            target = new_recording_path("attached", self._folder)
            done = subprocess.run(  # noqa: S603 - this Python
                python_command(__name__, "make_recording", scratch, target),
                env={**os.environ, "CURVESCOPE_TORCH": "off"},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            print(
                f"curvescope: the steps were not recorded: {done.stderr.strip()[-500:]}",
                file=sys.stderr,
            )
            return
        self.made.append(target)
        print(
            f"curvescope: {counted(len(waits['end_wait_ns']), 'step')} recorded in {target}",
            file=sys.stderr,
        )


def _is_in_module() -> bool:
    """Whether the module whose hook runs was called inside another module's call."""
    frame: FrameType | None = sys._getframe()
    calls = 0
    while frame is not None:
        calls += frame.f_code.co_name == "_call_impl"
        frame = frame.f_back
    return calls > 1


def _write_window(path: Path, window: dict[str, Any], profile: Any) -> None:
    """Write a window as `torch_windows` does, but some events at a time: the steps have Python most
    of the time.
    """
    events = (
        event for event in profile.kineto_results.events() if event.device_type().name == "CPU"
    )
    with path.open("w") as file:
        file.write(f'{json.dumps(window)[:-1]}, "events": [')
        separator = ""
        while some := [torch_windows.columns(event) for event in islice(events, _SLICE_EVENTS)]:
            file.write(separator + json.dumps(some, default=str)[1:-1])
            separator = ", "
            time.sleep(_PAUSE_S)
        file.write("]}")


def make_recording(folder: str, target: str) -> None:
    """Make a recording of windows, at low priority; called in a process of its own."""
    from .inject import _meta
    from .merge import merge_chunks

    if hasattr(os, "nice"):
        os.nice(10)
    with RecordingWriter(
        Path(target), {**_meta(), **json.loads(Path(folder, _META).read_text())}
    ) as writer:
        merge_chunks(Path(folder), writer)


def attach(
    folder: str | os.PathLike[str] = "runs",
    *,
    steps: int = 10,
    signal: int | None = getattr(signals, "SIGUSR1", None),
    file: str | os.PathLike[str] | None = None,
) -> Attached:
    """Let a signal, or a file that appears, record the next steps of this program on the CPU.

    Steps end as under `curvescope record`: with the optimizer's step, or where nothing trains with
    the next call of the model. A second signal ends the recording after the step that runs. Until
    the first, nothing is hooked.

    Args:
        folder: folder of the recordings, which are named by time.
        steps: number of steps of a recording.
        signal: number of the signal, e.g. `kill -USR1 PID`; None for none. Needs the main thread.
        file: path that starts a recording when it appears, e.g. by `touch`; it is removed, and may
            hold the number of steps.

    Raises:
        CurvescopeError: torch runs on a GPU, nothing could start a recording, or the signal has a
            handler already.
    """
    torch = import_torch()
    if torch_windows.runs_on_gpu(torch):
        raise CurvescopeError(
            "attach() records the CPU; on a GPU start the program under `curvescope record`, or "
            "import what dynolog or torch.profiler writes."
        )
    if steps < 1:
        raise CurvescopeError(f"steps={steps}: record at least one.")
    if signal is None and file is None:
        raise CurvescopeError("Nothing could start a recording: give a signal or a file.")
    if signal is not None:
        if threading.current_thread() is not threading.main_thread():
            raise CurvescopeError(
                "A signal needs the main thread: call attach() there, or give file= and "
                "signal=None."
            )
        if signals.getsignal(signal) not in (signals.SIG_DFL, signals.SIG_IGN):
            raise CurvescopeError(
                f"{signals.Signals(signal).name} has a handler: give another signal=, or file=."
            )
    attached = Attached(Path(folder), steps)
    if signal is not None:
        signals.signal(signal, lambda *_: attached.start())
    if file is not None:
        threading.Thread(
            target=attached.watch, args=(Path(file),), daemon=True, name="curvescope-watch"
        ).start()
    return attached
