"""Counts what each kernel of a function does, in this process, by CUPTI's range profiler (CUDA 12.6
and newer).

The function runs once for each pass that the metrics need, so that every pass counts a complete
step: kernels run one at a time, find in the caches what the kernel before left there, and nothing
is saved, restored or flushed between them. Each kernel is a range of its own, in the order of the
launches. The structures follow `cupti_target.h`, `cupti_profiler_target.h`, `cupti_profiler_host.h`
and `cupti_range_profiler.h`. On an H100 it counted all 159 kernels of a step of VGG-A.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...base.counted import counted
from ...base.errors import BackendMissingError, CurvescopeError
from ..readers.metrics import choose_metrics, parts, to_columns
from .nvidia_tools import NO_PERMISSION

_TYPES = {
    "N": ctypes.c_size_t,
    "P": ctypes.c_void_p,
    "s": ctypes.c_char_p,
    "S": ctypes.POINTER(ctypes.c_char_p),
    "i": ctypes.c_int,
    "I": ctypes.c_uint32,
    "H": ctypes.c_uint16,
    "B": ctypes.c_uint8,
}
# Parameters of each function, after the two that all have, `structSize` and `pPriv`: the headers'
# name and the type.
_PARAMETERS = """
cuptiProfilerInitialize
cuptiDeviceGetChipName deviceIndex:N pChipName:s
cuptiProfilerGetCounterAvailability ctx:P counterAvailabilityImageSize:N pCounterAvailabilityImage:P
cuptiProfilerHostInitialize profilerType:i pChipName:s pCounterAvailabilityImage:P pHostObject:P
cuptiProfilerHostDeinitialize pHostObject:P
cuptiProfilerHostConfigAddMetrics pHostObject:P ppMetricNames:S numMetrics:N
cuptiProfilerHostGetConfigImageSize pHostObject:P configImageSize:N
cuptiProfilerHostGetConfigImage pHostObject:P configImageSize:N pConfigImage:P
cuptiProfilerHostGetNumOfPasses configImageSize:N pConfigImage:P numOfPasses:N
cuptiProfilerHostEvaluateToGpuValues pHostObject:P pCounterDataImage:P counterDataImageSize:N rangeIndex:N
    ppMetricNames:S numMetrics:N pMetricValues:P
cuptiRangeProfilerEnable ctx:P pRangeProfilerObject:P
cuptiRangeProfilerDisable pRangeProfilerObject:P
cuptiRangeProfilerGetCounterDataSize pRangeProfilerObject:P pMetricNames:S numMetrics:N maxNumOfRanges:N
    maxNumRangeTreeNodes:I counterDataSize:N
cuptiRangeProfilerCounterDataImageInitialize pRangeProfilerObject:P counterDataSize:N pCounterData:P
cuptiRangeProfilerSetConfig pRangeProfilerObject:P configSize:N pConfig:P counterDataImageSize:N pCounterDataImage:P
    range:i replayMode:i maxRangesPerPass:N numNestingLevels:H minNestingLevel:H passIndex:N targetNestingLevel:H
cuptiRangeProfilerStart pRangeProfilerObject:P
cuptiRangeProfilerStop pRangeProfilerObject:P passIndex:N targetNestingLevel:N isAllPassSubmitted:B
cuptiRangeProfilerDecodeData pRangeProfilerObject:P numOfRangeDropped:N
cuptiRangeProfilerGetCounterDataInfo pCounterDataImage:P counterDataImageSize:N numTotalRanges:N
"""
FUNCTIONS: dict[str, list[tuple[str, Any]]] = {}
for _word in _PARAMETERS.split():
    _name, _, _type = _word.partition(":")
    if _type:
        FUNCTIONS[next(reversed(FUNCTIONS))].append((_name, _TYPES[_type]))
    else:
        FUNCTIONS[_name] = []
_RANGE_PROFILER = 0  # CUPTI_PROFILER_TYPE_RANGE_PROFILER
_AUTO_RANGE = 1  # CUPTI_AutoRange: a range around each kernel
_USER_REPLAY = 3  # CUPTI_UserReplay: the caller repeats the work
_REFUSALS = (35, 40)  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, and the same of a virtual GPU
_MOST_PASSES = 100
_MOST_RANGES = 1 << 20


@cache
def structure(function: str) -> type[ctypes.Structure]:
    """The type of a function's parameters."""
    fields = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p), *FUNCTIONS[function]]
    return type(f"{function}_Params", (ctypes.Structure,), {"_fields_": fields})


def structure_bytes(kind: type[ctypes.Structure]) -> int:
    """Its size as CUPTI wants it, `CUPTI_PROFILER_STRUCT_SIZE`: without the padding behind its last
    field.
    """
    last = getattr(kind, str(kind._fields_[-1][0]))
    return int(last.offset + last.size)


@dataclass(frozen=True)
class KernelCounts:
    """The counters of kernels, in the order of their launches."""

    columns: list[dict[str, float]]  # for each kernel the counted columns of the table `kernels`
    flops_counted: list[str]  # precisions in the counted FLOPs


class RangeProfiler:
    """The functions of one libcupti: by default that which this process has loaded, as torch does.

    BackendMissingError: it cannot be loaded, or is older than CUDA 12.6.
    """

    def __init__(self, path: str | None = None) -> None:
        path = path or os.environ.get("CURVESCOPE_CUPTI") or _find_loaded_library()
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise BackendMissingError(f"libcupti cannot be loaded ({error}).") from error
        if missing := [name for name in FUNCTIONS if not hasattr(self._library, name)]:
            raise BackendMissingError(
                f"{path} has no {missing[-1]}: the range profiler is in CUDA 12.6 and newer."
            )
        self.path = path

    def count_kernels(
        self, capability: str | None, device: int, context: int, run: Callable[[], object]
    ) -> KernelCounts:
        """Count what the columns of the table `kernels` need; arguments and errors are as for
        `count`.

        The compute capability, e.g. 9.0, names the metrics of a device; None if unknown.
        """
        # `launch__` names what Nsight Compute itself knows of a launch.
        names = [
            name for name in choose_metrics("ncu", capability) if not name.startswith("launch__")
        ]
        columns = [
            to_columns("ncu", values, capability)
            for values in self.count(names, device, context, run)
        ]
        return KernelCounts(columns, parts("ncu", names, capability))

    def count(
        self,
        metrics: Sequence[str],
        device: int,
        context: int,
        run: Callable[[], object],
        ranges: int = 4096,
    ) -> list[dict[str, float]]:
        """Count the kernels of a function, which runs once per pass, the same each time, and waits
        for the device.

        With more kernels than ranges, all passes run again with more room.

        Returns:
            For each kernel in the order of the launches the values by metric, in bytes, nanoseconds
            and 1. What CUPTI could not evaluate is missing.

        Raises:
            CurvescopeError: a metric is not one of this GPU, the user may not read counters, or
                CUPTI refuses.
        """
        self._call("cuptiProfilerInitialize")
        chip = self._call("cuptiDeviceGetChipName", device).pChipName
        available = self._availability(context)
        host = self._host(chip, available)
        try:
            config, passes = self.configure(host, metrics)
            if passes > _MOST_PASSES:
                raise CurvescopeError(
                    f"CUPTI needs {passes} passes for {counted(len(metrics), 'metric')}."
                )
            while True:
                dropped, image = self._count(metrics, context, config, run, ranges)
                if not dropped:
                    return self._evaluate(host, metrics, image)
                ranges = 2 * (ranges + dropped)
                if ranges > _MOST_RANGES:
                    raise CurvescopeError(
                        f"CUPTI lacks memory: it dropped {counted(dropped, 'kernel')} of a step."
                    )
        finally:
            self._call("cuptiProfilerHostDeinitialize", host)

    def host(self, chip: str) -> int:
        """Make the host half for a chip, e.g. GH100, which needs no GPU; CUPTI keeps it until the
        process ends.
        """
        return self._host(chip.encode(), None)

    def configure(self, host: int, metrics: Sequence[str]) -> tuple[Any, int]:
        """The configuration, a buffer, of a GPU's counters for metrics, and the number of passes
        that it needs.
        """
        names = _texts(metrics)
        self._call("cuptiProfilerHostConfigAddMetrics", host, names, len(metrics))
        size = self._call("cuptiProfilerHostGetConfigImageSize", host).configImageSize
        config, address = _buffer(size)
        self._call("cuptiProfilerHostGetConfigImage", host, size, address)
        passes = self._call("cuptiProfilerHostGetNumOfPasses", size, address).numOfPasses
        return config, int(passes)

    def _host(self, chip: bytes, available: Any) -> int:
        address = None if available is None else ctypes.addressof(available)
        return int(
            self._call("cuptiProfilerHostInitialize", _RANGE_PROFILER, chip, address).pHostObject
        )

    def _availability(self, context: int) -> Any:
        """The counters that the context may use, as CUPTI says it to its host half."""
        size = self._call(
            "cuptiProfilerGetCounterAvailability", context
        ).counterAvailabilityImageSize
        image, address = _buffer(size)
        self._call("cuptiProfilerGetCounterAvailability", context, size, address)
        return image

    def _count(
        self,
        metrics: Sequence[str],
        context: int,
        config: Any,
        run: Callable[[], object],
        ranges: int,
    ) -> tuple[int, Any]:
        """Run all passes; returns the number of kernels without room and the image of
        the counters.
        """
        profiler = self._call("cuptiRangeProfilerEnable", context).pRangeProfilerObject
        try:
            sizes = profiler, _texts(metrics), len(metrics), ranges, ranges
            size = self._call("cuptiRangeProfilerGetCounterDataSize", *sizes).counterDataSize
            image, address = _buffer(size)
            self._call("cuptiRangeProfilerCounterDataImageInitialize", profiler, size, address)
            self._call(
                "cuptiRangeProfilerSetConfig",
                *(profiler, len(config), ctypes.addressof(config), size, address),
                range=_AUTO_RANGE,
                replayMode=_USER_REPLAY,
                maxRangesPerPass=ranges,
                numNestingLevels=1,
                minNestingLevel=1,
                passIndex=0,
                targetNestingLevel=1,
            )
            for _ in range(_MOST_PASSES):
                self._call("cuptiRangeProfilerStart", profiler)
                run()
                if self._call("cuptiRangeProfilerStop", profiler).isAllPassSubmitted:
                    break
            else:
                raise CurvescopeError(f"CUPTI was not done after {_MOST_PASSES} passes.")
            decoded = self._call("cuptiRangeProfilerDecodeData", profiler)
            return int(decoded.numOfRangeDropped), image
        finally:
            self._call("cuptiRangeProfilerDisable", profiler)

    def _evaluate(self, host: int, metrics: Sequence[str], image: Any) -> list[dict[str, float]]:
        where = ctypes.addressof(image), len(image)
        count = self._call("cuptiRangeProfilerGetCounterDataInfo", *where).numTotalRanges
        names = _texts(metrics)
        values = (ctypes.c_double * len(metrics))()
        # Percentages are of 100, everything else is in its own unit: bytes, nanoseconds, cycles,
        # instructions.
        factors = [0.01 if ".pct" in name else 1.0 for name in metrics]
        counted = []
        for index in range(count):
            results = names, len(metrics), ctypes.addressof(values)
            self._call("cuptiProfilerHostEvaluateToGpuValues", host, *where, index, *results)
            evaluated = zip(metrics, values, factors, strict=True)
            counted.append(
                {name: value * factor for name, value, factor in evaluated if math.isfinite(value)}
            )
        return counted

    def _call(self, function: str, *values: Any, **named: Any) -> Any:
        """Call a function; returns its parameters, in which it answers."""
        kind = structure(function)
        parameters = kind(structure_bytes(kind), None, *values, **named)
        code = getattr(self._library, function)(ctypes.byref(parameters))
        if code in _REFUSALS:
            raise CurvescopeError(f"{function}: {NO_PERMISSION}")
        if code:
            text = ctypes.c_char_p()
            self._library.cuptiGetResultString(code, ctypes.byref(text))
            raise CurvescopeError(
                f"{function} answered {(text.value or b'an error').decode()} ({code})."
            )
        return parameters


def _texts(names: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names))


def _buffer(size: int) -> tuple[Any, int]:
    buffer = (ctypes.c_uint8 * size)()
    return buffer, ctypes.addressof(buffer)


def _find_loaded_library() -> str:
    """The path of the libcupti that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        lines = []
    paths = (line.split(maxsplit=5)[-1] for line in lines)
    library = next((path for path in paths if Path(path).name.startswith("libcupti.so")), None)
    if library is None:
        raise BackendMissingError(
            "This process has loaded no libcupti: give the path of one in CURVESCOPE_CUPTI."
        )
    return library
