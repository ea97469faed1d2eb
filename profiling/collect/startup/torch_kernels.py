"""Records a window of what torch runs on a GPU, by its own profiler: operators and ranges as on the
CPU (see `torch_windows.py`), calls of CUDA, and the work of the device.

The host runs ahead of the device, and does not where a window begins, as the device has ended all
work then. So the first step of a window is no step of it. The program's own Python loads this file
by path, so it needs only the standard library and torch.
"""

from __future__ import annotations

import time
from typing import Any

from _curvescope_kineto import (  # type: ignore[import-not-found]
    exposing_config,
    is_api_call,
    take_buffers,
)
from _curvescope_torch_windows import Recorder, columns  # type: ignore[import-not-found]


class KernelRecorder(Recorder):  # type: ignore[misc]
    """Records the window from `open_window` to `close_window` on a GPU."""

    # A device's times differ little from step to step, and to write a step of 5,000 events takes a
    # program a tenth of a second or two.
    discarded = 1
    most = 4

    def open_window(self) -> None:
        """Begin a window here; its first step ends with the second call of `end_step`."""
        self._discards = self.discarded
        super().open_window()

    def end_step(self) -> None:
        """Note that a step ended, the first discarded ones aside."""
        if not self._discards:
            super().end_step()
            return
        self._discards -= 1
        self._begin_ns = time.monotonic_ns()

    def _options(self) -> dict[str, Any]:
        on_gpu = {"use_device": "cuda", "experimental_config": exposing_config()}
        return {**super()._options(), **on_gpu}

    def _begin_profile(self) -> Any:
        profile = super()._begin_profile()
        take_buffers(f"cuda:{self._torch.cuda.current_device()}")
        return profile

    def _contents_of(self, profile: Any) -> dict[str, Any]:
        host = []
        calls = []
        device = []
        for event in profile.kineto_results.events():
            if event.device_type().name != "CPU":
                if not event.is_user_annotation():
                    device.append(_of_device(event))
            elif is_api_call(event):
                calls.append(_of_call(event))
            else:
                host.append(columns(event))
        return {"events": host, "api_calls": calls, "device_work": device}


def _of_call(event: Any) -> tuple[Any, ...]:
    """The entry of a call of CUDA in a file."""
    times = event.name(), event.start_ns(), event.duration_ns()
    return (*times, event.device_resource_id(), event.correlation_id())


def _of_device(event: Any) -> tuple[Any, ...]:
    """The entry of a kernel, memcpy or memset in a file, with Kineto's text about it."""
    times = event.name(), event.start_ns(), event.duration_ns()
    place = event.device_index(), event.device_resource_id(), event.correlation_id()
    about = event.metadata_json() if hasattr(event, "metadata_json") else ""
    return (*times, *place, about)
