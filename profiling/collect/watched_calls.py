"""Watches the calls of a step from inside: the page faults of each operator, and the line of the
program it comes from.

No profiler of torch shows a first write to fresh memory, and its stacks make a step many times as
long. But the dispatcher calls a mode around every operator below autograd, in
the thread that called it. Where no operator runs, samples of the stack say what does. All of it is
slow: the times of such a step are not used.
"""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...base.harmless import without_homes
from ...base.masking import mask_text
from ..attribution.source_lines import MOST_TEXT, SourceLine, Watched, WatchedCall
from ..hardware.host_usage import read_page_faults
from ..recording.operand_numbers import LEAST_DENORMAL, Numbers
from ..recording.operators import GROUPED
from .tensor_numbers import look_at_tensors, with_ends, with_order

_SAMPLE_S = 0.0003
# that a sample stands for: after a longer time, the sampling thread itself had to wait
_MOST_NS = 1_000_000
_SWITCH_S = 0.0001  # until a thread that computes gives way to the samples
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_OWN = ("torch", (__package__ or "").partition(".")[0])


@contextmanager
def watching_calls(
    parameters: Mapping[int, str] | None = None, *, samples: bool = True
) -> Iterator[Watched]:
    """Watch every operator that this thread, or a backward pass for it, calls until the block ends.

    With the names of the model's parameters, by the address of their memory, it looks at the
    numbers in all operands too; with `samples` it samples the stack where none runs. Its rows grow;
    their times are of the system clock.
    """
    mode = _Mode(parameters)
    end = threading.Event()
    switch_s = sys.getswitchinterval()
    if not samples:
        with mode:
            yield mode.watched
        return
    sampler = threading.Thread(target=_sample, args=(threading.get_ident(), mode, end), daemon=True)
    sys.setswitchinterval(_SWITCH_S)
    sampler.start()
    try:
        with mode:
            yield mode.watched
    finally:
        end.set()
        sampler.join()
        sys.setswitchinterval(switch_s)


def _sample(thread: int, mode: _Mode, end: threading.Event) -> None:
    before_ns = time.time_ns()
    while not end.wait(_SAMPLE_S):
        frame = sys._current_frames().get(thread)
        now_ns = time.time_ns()
        if (line := mode.lines.of(frame)) is not None:
            mode.watched.samples.append((now_ns, line, min(now_ns - before_ns, _MOST_NS)))
        before_ns = now_ns
        frame = None


class _Mode(TorchDispatchMode):
    def __init__(self, parameters: Mapping[int, str] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watched, self.lines, self._parameters = Watched(), _Lines(), parameters

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch keeps its compiler away, which it loads for that, for seconds."""
        return "torch._dynamo" in sys.modules

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        line = self.lines.of_operator(sys._getframe(1))
        looking_ns = time.time_ns()
        self.watched.used.update(_addresses((*args, *(kwargs or {}).values())))
        operands = self._look_at((*args, *(kwargs or {}).values()))
        if operands and isinstance(func, torch._ops.OpOverload) and func.name() in GROUPED:
            operands = with_ends(operands)
        began_ns = time.time_ns()
        before = read_page_faults()
        returned = None
        try:
            returned = func(*args, **(kwargs or {}))
            return returned
        finally:
            faults = read_page_faults() - before
            ended_ns = time.time_ns()
            denormal = max(
                (numbers.denormals for _, numbers in self._look_at(returned)), default=0.0
            )
            if max([denormal, *(numbers.denormals for _, numbers in operands)]) >= LEAST_DENORMAL:
                operands = with_order(operands)
            numbers_of_operands = tuple(numbers for _, numbers in operands)
            looked_ns = began_ns - looking_ns + time.time_ns() - ended_ns
            call = WatchedCall(
                (began_ns + ended_ns) // 2, faults, line, numbers_of_operands, denormal, looked_ns
            )
            self.watched.calls.append(call)
            # A sample may still hold this frame: if it held tensors, autograd would copy gradients
            # that it may keep.
            del args, kwargs, operands, returned

    def _look_at(self, values: Any) -> list[tuple[Any, Numbers]]:
        return [] if self._parameters is None else look_at_tensors(values, self._parameters)


def _addresses(values: Iterable[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _addresses(value)
        elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
            yield value.untyped_storage().data_ptr()


class _Lines:
    """Finds the line of the program that a call comes from: the innermost one outside installed
    packages.

    If there is none, it is the innermost one of a package that is neither torch nor this one.
    """

    def __init__(self) -> None:
        self._files: dict[CodeType, tuple[bool, str] | None] = {}
        self._named: dict[tuple[CodeType, int], SourceLine] = {}
        self._forward: dict[int, SourceLine | None] = {}  # by the number of an autograd node

    def of_operator(self, frame: FrameType) -> SourceLine | None:
        """The line of an operator; in a backward pass the line of the operator whose gradient it
        computes.
        """
        node: Any = torch._C._current_autograd_node()
        if node is None:
            line = self.of(frame)
            # The node of this operator, if it has one, is the newest; later operators without a
            # node see it too.
            self._forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, line)
            return line
        return self._forward.get(node._sequence_nr()) or self.of(frame)

    def of(self, frame: FrameType | None) -> SourceLine | None:
        of_package = None
        while frame is not None:
            code = frame.f_code
            if code not in self._files:
                self._files[code] = _file(code.co_filename)
            if (named := self._files[code]) is not None:
                is_package, file = named
                if not is_package:
                    return self._line(file, frame)
                of_package = of_package or self._line(file, frame)
            frame = frame.f_back
        return of_package

    def _line(self, file: str, frame: FrameType) -> SourceLine:
        key = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
        if key not in self._named:
            text = linecache.getline(key[0].co_filename, key[1]).strip()[:MOST_TEXT]
            self._named[key] = SourceLine(file, key[1], mask_text(text) or None)
        return self._named[key]


def _file(path: str) -> tuple[bool, str] | None:
    """Whether a file is of an installed package, and its name; None for torch, this package, Python
    and no file.
    """
    if path.startswith("<"):
        return None
    path = os.path.abspath(path)
    if (folder := _PACKAGES.match(path)) or path.startswith(_user_packages()):
        name = path[folder.end() if folder else len(_user_packages()) + 1 :]
        return None if name.partition("/")[0] in _OWN else (True, name)
    if path.startswith(_not_the_users()):
        return None
    inside = path.startswith(os.getcwd() + os.sep)
    return False, os.path.relpath(path) if inside else without_homes(path)


def _user_packages() -> str:
    return site.getusersitepackages()


def _not_the_users() -> tuple[str, ...]:
    """Folders of Python's library and of this package, where it is not installed with
    the others.
    """
    own = Path(sys.modules[_OWN[1]].__file__ or "").parent
    rooms = [folder.resolve() for folder in own.iterdir() if folder.is_dir()]
    scripts = sysconfig.get_path("scripts")  # that start commands, e.g. this package's
    return tuple(
        f"{folder}{os.sep}" for folder in (sysconfig.get_path("stdlib"), scripts, own, *rooms)
    )
