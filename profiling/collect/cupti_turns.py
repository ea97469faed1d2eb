"""Lets torch.profiler and the collector take turns with CUPTI, which serves one of them at a time.

Kineto, under torch.profiler, subscribes to CUPTI at its first use (also for a profile of the CPU
alone) and stays subscribed. While it records CUDA it takes CUPTI's buffers and kinds of records;
where another client is subscribed first, it records no CUDA for the life of the process. So the
collector pauses while the program's profiler records CUDA, and resumes after it, beside Kineto's
idle subscription; its facts count the pauses.

The program's own Python loads this file by path under `curvescope record`, so it needs only the
standard library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

_HOOKED = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")
_LIBRARY_VARIABLE = "CUDA_INJECTION64_PATH"


def find_loaded_collector(path: str | None = None) -> Any:
    """The collector, by default `curvescope record`'s, if loaded in this process, else None."""
    path = path or os.environ.get(_LIBRARY_VARIABLE)
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW) if path else None
    except OSError:
        return None
    return library if hasattr(library, "curvescope_cupti_pause") else None


def take_turns(
    profiler: Any, collector: Callable[[], Any] = find_loaded_collector
) -> Callable[[], None]:
    """Let the collector, if there is one yet, pause while torch's profiler uses CUPTI; returns what
    undoes it.
    """
    prepare, enable, disable = (getattr(profiler, name) for name in _HOOKED)

    def pause() -> None:
        if (library := collector()) is not None:
            library.curvescope_cupti_share(0)
            library.curvescope_cupti_pause()

    def resume() -> None:
        if (library := collector()) is not None:
            library.curvescope_cupti_share(1)
            library.curvescope_cupti_resume()

    def hook_call(begin: Any) -> Any:
        def call(config: Any, activities: Any, *arguments: Any, **named: Any) -> Any:
            if not activities:  # ranges of NVTX or ITT, not Kineto
                return begin(config, activities, *arguments, **named)
            pause()
            records_gpu = False
            try:
                result = begin(config, activities, *arguments, **named)
                records_gpu = any(activity.name != "CPU" for activity in activities)
                return result
            finally:
                if not records_gpu:
                    resume()

        return call

    def disable_and_resume(*arguments: Any, **named: Any) -> Any:
        try:
            return disable(*arguments, **named)
        finally:
            resume()

    def undo() -> None:
        for name, call in zip(_HOOKED, (prepare, enable, disable), strict=True):
            setattr(profiler, name, call)

    for name, call in zip(
        _HOOKED, (hook_call(prepare), hook_call(enable), disable_and_resume), strict=True
    ):
        setattr(profiler, name, call)
    return undo


def profiles_now(torch: Any) -> bool:
    """Whether torch's profiler, of a torch for CUDA, records now."""
    try:
        active = torch._C._autograd._profiler_type()
    except AttributeError:  # an older torch
        return False
    return torch.version.cuda is not None and active.name == "KINETO"
