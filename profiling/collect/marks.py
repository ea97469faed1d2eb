"""Times the layers and phases of a step without a profiler: clock values at the borders between
them.

A border is crossed where a layer's forward pass begins or ends, where the backward pass reaches the
operators of another layer, and where a phase begins or ends. Marks are made in the thread of the
step, so a device's work meanwhile is not seen. The time between a mark's two readings of the clock
belongs to no layer; the call of its function is left of its cost.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from ..attribution.range_names import LAYER_RANGE, PHASE_RANGE
from ..recording.schema import BACKWARD, FORWARD, INPUT, OPTIMIZER

_BACKWARD = "_engine_run_backward"
Ranges = Callable[[str], contextlib.AbstractContextManager[Any]]


class Place(NamedTuple):
    """Where the time of a step goes: a layer (None outside layers) in a phase."""

    layer: str | None
    phase: str


class Marks:
    """Borders of layers and phases in the steps of one thread; `installed` makes modules cross
    borders.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock_ns = clock_ns
        self._thread = get_ident()
        self._codes: dict[Place, int] = {}
        # The time before the work of each mark, the time after it, and the code of the place that
        # begins.
        self._borders: list[tuple[int, int, int]] = []
        self._layer: str | None = None
        self._phase = FORWARD
        self._nodes: set[Any] = set()  # autograd nodes with a mark

    def run(self, step: Callable[[Ranges], object]) -> list[dict[str, Any]]:
        """Run and time one step, which gets `range_`; a row of the table `marks` for each place,
        but its condition.
        """
        self._borders = []
        self._layer = None
        self._phase = FORWARD
        self._cross(self._clock_ns())
        step(self.range_)
        self._cross(self._clock_ns())
        self._nodes.clear()
        before, after, place = np.array(self._borders, np.int64).T
        time_ns = np.bincount(place[:-1], before[1:] - after[:-1], len(self._codes))
        # Each time lies between two marks, each of which has another time on its other side.
        marks = np.bincount(place[:-1], minlength=len(self._codes))
        return [
            {**where._asdict(), "duration_ns": int(time_ns[code]), "marks": int(marks[code])}
            for where, code in self._codes.items()
            if marks[code]
        ]

    def range_(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A range of a phase, or of a layer that is no module."""
        if name.startswith(PHASE_RANGE):
            return self._inside(self._layer, name.removeprefix(PHASE_RANGE))
        return self._inside(name.removeprefix(LAYER_RANGE), self._phase)

    @contextlib.contextmanager
    def install(self, layers: Iterable[tuple[str, Any]]) -> Iterator[Marks]:
        """Mark these modules, given by path, autograd's backward passes and torch's optimizers
        until the block ends.
        """
        with contextlib.ExitStack() as undo:
            for path, module in layers:
                self._wrap_forward(path, module, undo)
            if "torch" in sys.modules:
                self._wrap_backward(undo)
                self._hook_optimizers(undo)
                undo.enter_context(around_batches(self._in_input))
            yield self

    def _wrap_forward(self, path: str, module: Any, undo: contextlib.ExitStack) -> None:
        """Give a module a forward that marks it: torch calls hooks in a tenfold time."""
        forward = module.forward
        before = module.__dict__.get("forward")

        def run_marked(*arguments: Any, **named: Any) -> Any:
            before_ns = self._clock_ns()
            if get_ident() != self._thread:
                return forward(*arguments, **named)
            outer = self._layer
            place = self._place
            self._own(arguments, outer)
            self._layer = path
            self._cross(before_ns)
            result: Any = None
            try:
                result = forward(*arguments, **named)
            finally:
                before_ns = self._clock_ns()
                self._own(result, path)
                self._layer = outer
                self._cross(before_ns, place)
            return result

        try:
            module.forward = run_marked
        except Exception:  # e.g. of a scripted module
            return
        if before is None:
            undo.callback(module.__dict__.pop, "forward", None)
        else:
            undo.callback(module.__dict__.__setitem__, "forward", before)

    def _wrap_backward(self, undo: contextlib.ExitStack) -> None:
        """Mark the phase of backward passes, all of which begin in one function; torch has no hook
        there.
        """
        from torch import autograd

        run: Any = getattr(autograd, _BACKWARD, None)
        if run is None:
            return

        def run_marked(*arguments: Any, **named: Any) -> Any:
            if get_ident() != self._thread:
                return run(*arguments, **named)
            with self._inside(self._layer, BACKWARD):
                return run(*arguments, **named)

        setattr(autograd, _BACKWARD, run_marked)
        undo.callback(setattr, autograd, _BACKWARD, run)

    def _hook_optimizers(self, undo: contextlib.ExitStack) -> None:
        phases: list[Any] = []

        def begin(*_: Any) -> None:
            phases.append(self._inside(self._layer, OPTIMIZER))
            phases[-1].__enter__()

        def end(*_: Any) -> None:
            phases.pop().__exit__(None, None, None)

        undo.enter_context(optimizer_hooks(begin, end))

    def _in_input(self) -> contextlib.AbstractContextManager[None]:
        if get_ident() == self._thread:
            return self._inside(self._layer, INPUT)
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _inside(self, layer: str | None, phase: str) -> Iterator[None]:
        before_ns = self._clock_ns()
        outer = (self._layer, self._phase)
        place = self._place
        self._layer = layer
        self._phase = phase
        self._cross(before_ns)
        try:
            yield
        finally:
            before_ns = self._clock_ns()
            self._layer, self._phase = outer
            self._cross(before_ns, place)

    @property
    def _place(self) -> int:
        return self._borders[-1][2]

    def _cross(self, before_ns: int, place: int | None = None) -> None:
        code = self._code(self._layer, self._phase) if place is None else place
        self._borders.append((before_ns, self._clock_ns(), code))

    def _code(self, layer: str | None, phase: str) -> int:
        return self._codes.setdefault(Place(layer, phase), len(self._codes))

    def _own(self, value: Any, layer: str | None) -> None:
        """Mark the backward of the operators that made these tensors as a layer's, unless one
        inside it has them.
        """
        if isinstance(value, (tuple, list)):
            for item in value:
                self._own(item, layer)
        elif isinstance(value, dict):
            for item in value.values():
                self._own(item, layer)
        elif (node := getattr(value, "grad_fn", None)) is not None and node not in self._nodes:
            self._nodes.add(node)
            node.register_prehook(self._make_hook(self._code(layer, BACKWARD)))

    def _make_hook(self, code: int) -> Callable[[Any], None]:
        borders = self._borders
        clock_ns = self._clock_ns
        thread = self._thread

        def note_border(_: Any) -> None:
            before_ns = clock_ns()
            if get_ident() == thread:
                borders.append((before_ns, clock_ns(), code))

        return note_border


@contextlib.contextmanager
def around_batches(range_: Callable[[], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter a context while a DataLoader makes a batch, or waits for one, until the block ends."""
    iterator = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
    following = getattr(iterator, "__next__", None)
    if iterator is None or following is None:
        yield
        return

    def run_marked(self: Any) -> Any:
        with range_():
            return following(self)

    iterator.__next__ = run_marked
    try:
        yield
    finally:
        iterator.__next__ = following


@contextlib.contextmanager
def optimizer_hooks(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    """Call functions before and after each step of an optimizer of torch, which they get, until the
    block ends.
    """
    from torch.optim import optimizer

    with contextlib.ExitStack() as undo:
        undo.callback(optimizer.register_optimizer_step_pre_hook(before).remove)
        undo.callback(optimizer.register_optimizer_step_post_hook(after).remove)
        yield
