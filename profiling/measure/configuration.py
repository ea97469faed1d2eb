"""What a recording's steps are, and how to build them again: in this process, in another, or on
another day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from ...base.errors import CurvescopeError
from ...base.torch_runtime import import_torch
from ..recording.axis import BATCH, TOKENS, Axis, axis_of
from ..recording.named_code import whole_code
from ..workload.any_workload import AnyWorkload
from ..workload.framework_step import FrameworkStep, check_framework
from ..workload.network_step import Workload
from ..workload.networks import Network, from_factory, get_network
from ..workload.networks.description import read_description
from ..workload.own_step import MODE as OWN
from ..workload.own_step import OwnStep, global_named, load_make_step
from ..workload.program import MODE as PROGRAM
from ..workload.program import Program
from .graphed_steps import GraphedSteps, check_device, reads_result


@dataclass(frozen=True)
class Configuration:
    """One network in one way to run it, or one step of the user; a sweep makes one recording of
    each.
    """

    network: str  # by name or `package.module:function`; of a user's step its name
    input_shape: tuple[int, ...] | None = None  # of one sample, for a function of the user
    # tokens per sample, for networks that take text; None for the published number
    sequence_length: int | None = None
    device: str = "cpu"  # `cpu` or `cuda:N`
    mode: str = "training"  # this and the next two as of `AnyWorkload`
    precision: str | None = "fp32"
    compiled: bool = False
    memory_limit_bytes: int | None = None  # of each visit
    step: str | None = None  # of a user's step, `package.module:make_step` or `file.py:make_step`
    axis: str = BATCH  # batch, tokens for a network that takes text, or any argument of `make_step`
    # other arguments of `make_step`; for a network the other of batch and tokens
    fixed: tuple[tuple[str, int], ...] = ()
    # variable of the step's file with the module whose layers are named; None to ask the step
    step_module: str | None = None
    graphed: bool = False  # each step is the replay of a CUDA graph
    # of a user's program: its command, and how its steps are found, see `Program`
    program: tuple[str, ...] | None = None
    step_range: str | None = None
    step_line: str | None = None
    workdir: str | None = None
    assign: tuple[str, ...] = ()
    runs_in: str | None = None  # framework other than PyTorch that runs a named network
    step_function: str | None = None  # of a user's program, see `Program`

    @classmethod
    def of_step(
        cls, step: str, device: str, axis: str = BATCH, fixed: Mapping[str, int] | None = None
    ) -> Configuration:
        """The configuration of a user's step."""
        values = tuple((fixed or {}).items())
        return cls(step, None, None, device, OWN, None, step=step, axis=axis, fixed=values)

    @classmethod
    def of_program(cls, program: Program, axis: str, fixed: Mapping[str, int]) -> Configuration:
        """The configuration of a user's program."""
        how = program.command, program.step_range, program.step_line, program.workdir
        assign = program.assign
        return cls(
            program.name,
            None,
            None,
            "cpu",
            PROGRAM,
            None,
            False,
            None,
            None,
            axis,
            tuple(fixed.items()),
            None,
            False,
            *how,
            assign,
            step_function=program.step_function,
        )

    @property
    def label(self) -> str:
        """Name of the folder of its recording."""
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.network)
        how = (
            self.runs_in,
            self.precision,
            "compiled" if self.compiled else None,
            "graphed" if self.graphed else None,
        )
        fixed = [f"{axis}{value}" for axis, value in self.fixed]
        return "_".join([name, self.mode, *(word for word in how if word is not None), *fixed])

    @property
    def entry(self) -> dict[str, Any]:
        """Its entries of `recording.json`; `configuration_of` reads them."""
        return {
            "network": self.network,
            "input_shape": None if self.input_shape is None else list(self.input_shape),
            "sequence_length": self.sequence_length,
            "mode": self.mode,
            "precision": self.precision,
            "compiled": self.compiled,
            "graphed": self.graphed,
            **({} if self.program is None else self.find_program().entry),
            "runs_in": self.runs_in,
            "memory_limit_bytes": self.memory_limit_bytes,
            "step": self.step,
            "step_module": self.step_module,
            "axis": Axis(self.axis).entry,
            "fixed": dict(self.fixed),
            "torch_device": self.device,
        }

    def find_network(self) -> Network:
        """Look up the network; an error for a user's step."""
        if self.step is not None:
            raise CurvescopeError(f"{self.network} is a step of your own, not a network.")
        if ":" in self.network:
            return from_factory(self.network, self.input_shape or ())
        return get_network(self.network, self.sequence_length)

    def check(self) -> None:
        """Find the network or the function of the step, its axes and whether it can be a CUDA
        graph; builds nothing.
        """
        if self.graphed:
            check_device(self.device)
            if reads_result(self.precision, self.mode):
                raise CurvescopeError(
                    "--cuda-graph: the scaling of gradients in fp16 reads a result on the host, "
                    "which a capture does not allow. Use --precision bf16, or omit --cuda-graph."
                )
        if self.step is not None:
            load_make_step(self.step)
            return
        if self.program is not None:
            self.find_program().check(self.axis, dict(self.fixed))
            return
        if self.runs_in is not None:
            check_framework(self.runs_in)
            read_description(self.network, self.sequence_length)
        network = self.find_network()
        axes = (BATCH, TOKENS) if network.reads_text else (BATCH,)
        for axis in (self.axis, *dict(self.fixed)):
            if axis not in axes:
                raise CurvescopeError(
                    f"--axis {axis}: the axes of {network.name} are {' and '.join(axes)}; others "
                    "need a step of your own (--step)."
                )

    def build(self, find_device: bool = False) -> AnyWorkload:
        """Build the workload on its device; with `find_device` a user's step on the device that it
        uses.
        """
        assert self.program is None, "a program is a site of its own, see sites/command.py"
        if self.runs_in is not None:
            self.check()
            precision = self.precision or "fp32"
            return FrameworkStep(
                self.network,
                self.runs_in,
                self.mode,
                precision,
                sequence_length=self.sequence_length,
                axis=Axis(self.axis),
                fixed=dict(self.fixed),
            )
        if self.step is None:
            import_torch()
            self.check()
            how = self.mode, self.precision or "fp32", self.compiled
            workload: AnyWorkload = Workload(
                self.find_network(), self.device, *how, axis=Axis(self.axis), fixed=dict(self.fixed)
            )
        else:
            make_step = load_make_step(self.step)
            workload = OwnStep(
                make_step,
                None if find_device else self.device,
                name=self.network,
                spec=self.step,
                module=global_named(make_step, self.step_module),
                axis=Axis(self.axis),
                fixed=dict(self.fixed),
            )
        return GraphedSteps(workload) if self.graphed else workload

    def find_program(self) -> Program:
        """The user's program."""
        assert self.program is not None
        how = self.step_range, self.step_line, self.workdir, self.assign, self.step_function
        return Program(self.program, *how)


def configuration_of(meta: Mapping[str, Any]) -> Configuration:
    """The configuration of a recording, by its `recording.json`; an error if its workload cannot be
    built again.
    """
    if (why := meta.get("step_not_importable")) is not None:
        raise CurvescopeError(
            f"The step {meta.get('network')} cannot be run again by another process: {why}. Define "
            "make_step in a file or module of its own."
        )
    if meta.get("network") is None or meta.get("torch_device") is None:
        raise CurvescopeError(
            "This recording does not say how to run its step again: only `diagnose` and `sweep` of "
            "this version record that. Measure it again."
        )
    meta = {**meta, **whole_code("This recording", meta)}
    names = {field.name for field in fields(Configuration)} - {"device", "axis", "fixed"}
    entries = {name: value for name, value in meta.items() if name in names}
    fixed = tuple((meta.get("fixed") or {}).items())
    more = {"device": meta["torch_device"], "axis": axis_of(meta).name, "fixed": fixed}
    return msgspec.convert({**entries, **more}, Configuration)
