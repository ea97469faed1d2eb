"""Steps that are replays of a CUDA graph: the host's work for each kernel goes away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from ...base.errors import CurvescopeError
from ..frameworks import memory_ran_out
from ..workload.any_workload import AnyWorkload, Ranges

_STEPS_BEFORE_CAPTURE = 3  # on the side stream, as torch's documentation of CUDA graphs asks for


def capture(workload: Any) -> tuple[Any, object]:
    """Capture one step of the loaded batch size; returns the graph, and where each replay writes
    the step's result.
    """
    import torch

    device = workload.device
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_STEPS_BEFORE_CAPTURE):
            workload.run(lambda _: nullcontext())
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph):  # a capture is of the current device
        result = workload.submit()
    return graph, result


@contextmanager
def restore_values(workload: AnyWorkload) -> Iterator[None]:
    """Give what steps change its values back when the block ends, where it is: a graph has its
    addresses. New state then, as of an optimizer, is 0.
    """
    import torch

    with torch.inference_mode():
        before = {id(tensor): tensor.to("cpu", copy=True) for tensor in workload.trainables()}
    yield
    with torch.inference_mode():
        for tensor in workload.trainables():
            if id(tensor) in before:
                tensor.copy_(before[id(tensor)])
            else:
                tensor.zero_()


class GraphedSteps(AnyWorkload):
    """The steps of another workload, each the replay of a graph; loading a batch size captures it.

    A replay has no layers and no phases: it repeats kernels, and nothing that the step did on the
    host, e.g. loading data.
    """

    model = None  # its hooks do not run in a replay

    def __init__(self, workload: AnyWorkload, *, keeps: bool = False) -> None:
        """Wrap a workload; with `keeps`, the first replay is the first step of its weights: those
        before a capture change nothing.
        """
        self._workload = workload
        self._keeps = keeps
        self._graph: Any = None
        self._result: object = None
        self._batch: int | None = None
        self.device = workload.device
        self.mode = workload.mode
        self.precision = workload.precision
        self.compiled = workload.compiled
        self.clock_ns = workload.clock_ns
        self.first_profiled = {}
        self.is_users = workload.is_users
        self.errors_are_results = workload.errors_are_results
        self.compiled_before = workload.compiled_before

    @property
    def name(self) -> str:
        return self._workload.name

    @property
    def spec(self) -> Mapping[str, Any]:
        return {**self._workload.spec, "graphed": True}

    @property
    def loaded(self) -> int | None:
        return self._batch

    def load(self, batch: int) -> None:
        """Capture a step of this batch size; the graph of an earlier one is released."""
        if batch == self._batch:
            return
        self._drop()
        self._workload.load(batch)
        try:
            with restore_values(self._workload) if self._keeps else nullcontext():
                self._graph, self._result = capture(self._workload)
        except Exception as error:
            if isinstance(error, CurvescopeError) or memory_ran_out(error):
                raise
            raise CurvescopeError(
                f"The step of {self.name} cannot be captured ({type(error).__name__}: "
                f"{(str(error).strip() or 'no message').splitlines()[0]}). The step of a CUDA "
                "graph reads no result on the host (.item(), print, gradient scaling), and its "
                "optimizer has capturable=True. Change it, or measure it without --cuda-graph (in "
                "Python without cuda_graph=True)."
            ) from error
        self._batch = batch

    def try_step(self, batch: int) -> None:
        """Run one step as it is, capture it, and replay it."""
        self._workload.try_step(batch)
        self.device = self._workload.device
        check_device(self.device)
        self.load(batch)
        self.time_step()

    def release(self) -> None:
        self._drop()
        self._workload.release()

    def free_others(self, but: Sequence[int] = ()) -> bool:
        return self._workload.free_others(but)

    def describe_error(self, error: BaseException) -> str:
        return self._workload.describe_error(error)

    def _drop(self) -> None:
        self._graph = self._result = self._batch = None

    def _run(self, ranges: Ranges) -> object:
        del ranges  # a replay has no phases
        assert self._graph is not None, "load() a batch first"
        self._graph.replay()
        return self._result


def reads_result(precision: str | None, mode: str) -> bool:
    """Whether a step reads a result on the host, which a capture does not allow: the scaling of
    gradients does.
    """
    return precision == "fp16" and mode != "forward"


def check_device(device: str) -> None:
    """Refuse a device without CUDA graphs."""
    if not device.startswith("cuda"):
        raise CurvescopeError(
            "--cuda-graph: only steps on a CUDA device can be captured, and this runs on "
            f"{device}; omit it."
        )
