"""Records steps of this process under torch.profiler: on a CPU with oneDNN and MKL calls, on CUDA
with its kernels.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..attribution.cupti_names import GPU_COPIES
from ..attribution.events import DeviceEvent, HostEvent, StepRows, kernel_rows
from ..attribution.library_calls import MklCall, VerboseLog
from ..attribution.memory_peak import MEMORY_EVENT
from ..attribution.operator_calls import CountWork
from ..attribution.outermost_operators import join_types
from ..attribution.range_names import COLLECTIVES, INPUT_PHASE, LAYER_RANGE, PHASE_RANGE, STEP_RANGE
from ..attribution.source_lines import Watched
from ..recording.operators import PROFILER_DTYPES
from . import onednn
from .allocations import Tensors, allocations_of, without_notes
from .inductor import COMPILED
from .kineto_metadata import geometries
from .marks import around_batches
from .startup.kineto import USER_SCOPE, exposing_config, is_api_call, take_buffers

_TENSOR_LIST = "TensorList"
# The call of a TorchDispatchMode overlaps the ranges that begin or end inside it.
_NO_WORK = ("PythonDispatchMode", MEMORY_EVENT)


@contextlib.contextmanager
def layer_ranges(layers: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Mark the forward pass of modules, given by path, with profiler ranges until the
    block ends.
    """
    from torch.autograd.profiler import record_function
    from torch.compiler import is_compiling

    open_ranges: list[Any] = []
    handles = []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if is_compiling():  # of a function around the module, whose graph it would divide
                return
            mark = record_function(LAYER_RANGE + path)
            mark.__enter__()
            open_ranges.append(mark)

        return hook

    def leave(*_: Any) -> None:
        if is_compiling():
            return
        open_ranges.pop().__exit__(None, None, None)

    for path, module in layers:
        if path:  # the root is the step itself
            handles.append(module.register_forward_pre_hook(enter(path), prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def record_step(
    step: Callable[[Callable[[str], contextlib.AbstractContextManager[Any]]], None],
    layers: Iterable[tuple[str, Any]],
    *,
    device: str = "cpu",
    count_work: CountWork | None = None,
    before: Callable[[], object] = lambda: None,
    watch: bool = False,
    samples: bool = True,
    memory: bool = False,
    look_at_numbers: bool = False,
    mkl_calls: Sequence[MklCall] | None = None,
) -> StepRows:
    """Run one step under the profiler and return its rows.

    Args:
        step: runs the step; its argument `ranges(name)` marks phases.
        layers: modules to mark, by path; the root, which has an empty path, is not marked.
        device: `cpu` or `cuda:N`; of a GPU its kernels are recorded instead of host operators, and
            the step must end synchronised.
        count_work: see `events.kernel_rows`.
        before: runs under the profiler right before the step and is not recorded: ranks meet in it,
            because their profilers start at different times. Its lost data counts with the step's.
        watch: whether to count the page faults inside the operators, and find the lines of the
            program that they come from, which makes a step slower.
        samples: whether to sample the stack of a watched step where no operator runs; that keeps
            its tensors longer.
        memory: whether allocations are reported, and without samples also what holds the memory at
            its peak. On a CPU such a step ran before: else nothing tells when this one frees what
            is older.
        look_at_numbers: whether to look at the numbers in the operands of a watched step too.
        mkl_calls: calls of another such step, which name the operators' MKL calls; None to have MKL
            print them, which makes a step slower.
    """
    from torch.autograd.profiler import profile, record_function

    cuda = device != "cpu"
    verbose = contextlib.nullcontext(VerboseLog()) if cuda else onednn.capture(mkl_calls is None)
    config = exposing_config() if cuda else None
    watching: contextlib.AbstractContextManager[Watched | None] = contextlib.nullcontext()
    layers = list(layers)
    if watch:
        from .watched_calls import watching_calls

        watching = watching_calls(_parameters(layers) if look_at_numbers else None, samples=samples)
    tensors = Tensors(layers, device) if memory and not samples else None
    with (
        layer_ranges(layers),
        without_notes() if memory and not cuda else contextlib.nullcontext(),
        verbose as log,
        # torch.profiler.profile would build a Python object of every event, but only the raw events
        # are read. Without Kineto, torch times operators on a GPU by events and records no kernel.
        profile(
            use_device="cuda" if cuda else None,
            use_kineto=True,
            record_shapes=True,
            profile_memory=memory,
            experimental_config=config,
        ) as profiler,
        tensors.note_tensors() if tensors else contextlib.nullcontext(),
    ):
        if cuda:
            take_buffers(device)
        before()
        waits = around_batches(lambda: record_function(PHASE_RANGE + INPUT_PHASE))
        with record_function(STEP_RANGE), waits, watching as watched:
            step(record_function)
    # Kineto and oneDNN use the system clock, recordings the monotonic clock.
    offset_ns = time.time_ns() - time.monotonic_ns()
    if mkl_calls is not None:
        log.mkl_calls = list(mkl_calls)
    results = profiler.kineto_results
    events = split_events(results, exposed=config is not None)
    used = watched.used if watched else None
    rows = kernel_rows(
        events.host,
        events.device,
        log,
        count_work,
        host_rows=not cuda,
        compiled=COMPILED,
        watched=watched,
        allocations=allocations_of(results, tensors, used) if tensors else None,
    )
    (start_ns, duration_ns), *_ = rows.windows
    rows.kernels = [row for row in rows.kernels if _overlaps(row, start_ns, start_ns + duration_ns)]
    rows.api_calls = [
        row for row in events.api_calls if _overlaps(row, start_ns, start_ns + duration_ns)
    ]
    if cuda and (without := count_without_geometry(rows.kernels)):
        rows.lost["kernels_without_geometry"] = without
    for row in (*rows.kernels, *rows.api_calls):
        row["start_ns"] -= offset_ns
    rows.windows = [(start - offset_ns, duration) for start, duration in rows.windows]
    rows.inputs = [
        (start - offset_ns, duration) for start, duration in rows.inputs if start >= start_ns
    ]
    return rows


def _parameters(layers: Sequence[tuple[str, Any]]) -> dict[int, str]:
    """The names of parameters by the address of their memory; of one that layers share, the first
    name.
    """
    return {
        parameter.data_ptr(): f"{path}.{name}"
        for path, module in reversed(layers)
        for name, parameter in module.named_parameters(recurse=False)
    }


def _overlaps(row: dict[str, Any], start_ns: int, end_ns: int) -> bool:
    return bool(row["start_ns"] < end_ns and row["start_ns"] + row["duration_ns"] > start_ns)


def count_without_geometry(kernels: Iterable[dict[str, Any]]) -> int:
    """Number of kernels, without memcpys and memsets, of which the profiler gave no grid."""
    return sum("grid_x" not in row and not row["name"].startswith(GPU_COPIES) for row in kernels)


class SplitEvents(NamedTuple):
    """Events of torch's profiler by kind; times of Kineto's clock."""

    host: list[HostEvent]  # operators, autograd nodes and ranges
    device: list[DeviceEvent]  # kernels, memcpys and memsets
    api_calls: list[dict[str, Any]]  # rows of the `api_calls` table, without `step`


def split_events(results: Any, *, exposed: bool = True) -> SplitEvents:
    """Convert Kineto's events, without the host ranges that it mirrors onto the device's timeline;
    see `geometries`.
    """
    host = []
    device = []
    api_calls = []
    list_types: dict[int, dict[int, str]] | None = None
    raw: Sequence[Any] = results.events()
    # not in old versions of torch
    has_strides = bool(raw) and hasattr(raw[0], "structured_input_strides")
    for event in raw:
        if event.device_type().name != "CPU":
            if not event.is_user_annotation():
                device.append(event)
        elif is_api_call(event):
            api_calls.append(_api_call(event))
        elif event.name() not in _NO_WORK:
            dtypes = event.dtypes()
            if _TENSOR_LIST in dtypes:
                if list_types is None:  # only the tree of events has the types of lists
                    list_types = _list_types(results.experimental_event_tree())
                types = list_types.get(event.correlation_id(), {})
                dtypes = [types.get(index, dtype) for index, dtype in enumerate(dtypes)]
            host.append(
                HostEvent(
                    event.name(),
                    event.start_ns(),
                    event.duration_ns(),
                    event.start_thread_id(),
                    # Collectives look like user annotations, but are work.
                    event.scope() == USER_SCOPE and not event.name().startswith(COLLECTIVES),
                    event.sequence_nr(),
                    event.fwd_thread_id(),
                    event.correlation_id(),
                    event.structured_input_shapes() if has_strides else event.shapes(),
                    event.concrete_inputs(),
                    dtypes,
                    event.structured_input_strides() if has_strides else (),
                )
            )
    launches = geometries(results, device, exposed)
    return SplitEvents(
        host, [_on_device(*pair) for pair in zip(device, launches, strict=True)], api_calls
    )


def _api_call(event: Any) -> dict[str, Any]:
    return {
        "name": event.name(),
        "start_ns": event.start_ns(),
        "duration_ns": event.duration_ns(),
        "thread": event.device_resource_id(),  # for events of the host the system's thread id
        "correlation_id": event.correlation_id(),
        "source": "torch",
    }


def _on_device(event: Any, columns: dict[str, Any]) -> DeviceEvent:
    return DeviceEvent(
        event.name(),
        event.start_ns(),
        event.duration_ns(),
        event.device_index(),
        event.device_resource_id(),
        event.correlation_id(),
        event.linked_correlation_id(),
        columns,
    )


def _list_types(roots: Iterable[Any]) -> dict[int, dict[int, str]]:
    """By correlation id and index of an argument, the entry of `dtypes` of each list of tensors."""
    types: dict[int, dict[int, str]] = {}
    events = list(roots)
    while events:
        event = events.pop()
        events += event.children
        for index, value in enumerate(getattr(event.extra_fields, "inputs", ())):
            if isinstance(value, list) and all(hasattr(tensor, "dtype") for tensor in value):
                names = [
                    PROFILER_DTYPES.get(str(tensor.dtype).removeprefix("torch."), "")
                    for tensor in value
                ]
                types.setdefault(event.correlation_id, {})[index] = join_types(names)
    return types
