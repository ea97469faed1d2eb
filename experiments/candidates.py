"""Candidates of a library for a product or a convolution, timed beside its own choice.

A candidate is a setting of the whole process, as some are read only once. So each is measured as a
version of the same steps, visited in turn. Fresh processes are the unit of resampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..analysis.candidates import Checked
from ..base.errors import CurvescopeError
from ..base.torch_runtime import import_torch
from ..kernels.backends import Prepared
from ..kernels.backends.pytorch import TorchBackend
from ..kernels.backends.torch_operators import host_array
from ..kernels.conv import Conv
from ..kernels.gemm import Gemm
from ..kernels.method import TIMED, BenchMeasurement, BenchOutcome, Method
from ..kernels.problem import Array, Problem
from ..kernels.sweeps import Sweep
from ..profiling.hardware.host import cpu_features
from ..profiling.measure.configuration import Configuration
from ..profiling.measure.loop import SEED, Progress
from ..profiling.measure.processes import Interpreter
from ..profiling.measure.protocol import Protocol
from ..profiling.measure.versions import PROTOCOL, Version, measure_versions
from ..profiling.measure.visits import Empty, StepRow
from ..profiling.recording.axis import Axis
from ..profiling.workload.own_step import MODE, OwnStep
from .factor import Factor
from .factors.cpu_libraries import NO_ONEDNN, ONEDNN
from .factors.gpu_libraries import (
    CUBLASLT,
    CUBLASLT_LIST,
    CUDNN_BENCHMARK,
    NO_CUDNN,
    SMALL_WORKSPACE,
    why_no_list,
)

DEFAULT = "default"
_STEPS_PER_VISIT = (1, 200)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A setting, or an order of the operands, under which the library takes another implementation,
    or may do so.

    Attributes:
        name: name in tables and of its recording's folder.
        device: `cpu` or `cuda`; empty for both.
        beyond: by precision of the problems that it can change, the feature of the CPU, as
            /proc/cpuinfo names it, without which the limit changes nothing; None needs none.
        variables: of the environment of its processes.
        factor: experiment that makes the same change to a process.
        change: the problem with its operands in another order; None leaves it.
        change_how: how a user makes that change, as a clause.
        why_not: why it cannot be set here, as a clause; None if it can.
    """

    name: str
    device: str
    beyond: Mapping[str, str | None]
    variables: tuple[tuple[str, str], ...] = ()
    factor: Factor | None = None
    change: Callable[[Any], Any] | None = None
    change_how: str = ""
    why_not: Callable[[], str | None] = lambda: None

    @property
    def how(self) -> str:
        """How a user sets it, as a clause."""
        if self.variables:
            return " ".join("=".join(pair) for pair in self.variables) + " in the environment"
        if self.change is not None:
            return self.change_how
        assert self.factor is not None
        assert self.factor.term is not None
        return str(self.factor.term.how)

    def around(self) -> AbstractContextManager[object]:
        """The context of its steps; it stays for the life of the process."""
        changed = None if self.factor is None else self.factor.term
        return nullcontext() if changed is None else changed.around()


_BY_MKL = ("fp64", "fp32")  # what PyTorch's products on a CPU run through
_BY_ONEDNN = ("bf16", "fp16", "int8")
_BY_CUBLAS = ("fp64", "fp32", "tf32", "fp16", "bf16")  # fp8 and int8 are cuBLASLt's


def _limit(variable: str, level: str, beyond: Mapping[str, str | None]) -> Candidate:
    """A limit of the instructions that a library uses."""
    name = f"{variable.partition('_')[0]}-{level}".lower()
    return Candidate(name=name, device="cpu", beyond=beyond, variables=((variable, level),))


def _factor(
    name: str, device: str, factor: Factor, precisions: Sequence[str], **others: Any
) -> Candidate:
    """The change of a factor, whatever the device's features."""
    beyond = dict.fromkeys(precisions)
    return Candidate(name=name, device=device, beyond=beyond, factor=factor, **others)


def _store_other_way(product: Gemm) -> Gemm:
    """The product with its matrix of weights, A, stored in the other order."""
    first = "N" if product.transpose[0] == "T" else "T"
    return replace(product, transpose=first + product.transpose[1])


def _swap(product: Gemm) -> Gemm:
    """The transposed product: Cᵀ = op(B)ᵀ · op(A)ᵀ."""
    other = {"N": "T", "T": "N"}
    transpose = other[product.transpose[1]] + other[product.transpose[0]]
    return replace(product, m=product.n, n=product.m, transpose=transpose)


def _store_channels_otherwise(convolution: Conv) -> Conv:
    return replace(convolution, layout="nchw" if convolution.layout == "nhwc" else "nhwc")


# The values of the limits: oneDNN's "CPU Dispatcher Control", and oneMKL's "Instruction Set
# Specific Dispatching on Intel Architectures".
_ISA = "ONEDNN_MAX_CPU_ISA"
_OF_PRODUCTS = (
    _limit(_ISA, "AVX2", dict.fromkeys(_BY_ONEDNN, "avx512f")),
    _limit(
        _ISA,
        "AVX512_CORE",
        {"bf16": "avx512_bf16", "fp16": "avx512_fp16", "int8": "avx512_vnni"},
    ),
    _limit(_ISA, "AVX512_CORE_VNNI", {"int8": "amx_int8"}),
    _limit(_ISA, "AVX512_CORE_BF16", {"bf16": "amx_bf16"}),
    _limit(_ISA, "AVX512_CORE_FP16", {"fp16": "amx_fp16"}),
    _limit("MKL_ENABLE_INSTRUCTIONS", "AVX2", dict.fromkeys(_BY_MKL, "avx512f")),
    _factor("onednn", "cpu", ONEDNN, ("fp32",)),
    _factor("no-onednn", "cpu", NO_ONEDNN, _BY_ONEDNN),
    _factor("cublaslt", "cuda", CUBLASLT, _BY_CUBLAS),
    _factor("cublaslt-list", "cuda", CUBLASLT_LIST, _BY_CUBLAS, why_not=why_no_list),
    _factor("small-workspace", "cuda", SMALL_WORKSPACE, _BY_CUBLAS),
    Candidate(
        name="stored-otherwise",
        device="",
        beyond=dict.fromkeys(_BY_CUBLAS),
        change=_store_other_way,
        change_how="weight.data = weight.data.t().contiguous().t()",
    ),
    Candidate(
        name="swapped",
        device="",
        beyond=dict.fromkeys(_BY_CUBLAS),
        change=_swap,
        change_how="(weight @ x.t()).t() for x @ weight.t(), whose result has its rows in columns",
    ),
)
_OF_CONVOLUTIONS = (
    _factor("no-onednn", "cpu", NO_ONEDNN, ("fp32", "bf16", "fp16")),
    _factor("cudnn-benchmark", "cuda", CUDNN_BENCHMARK, _BY_CUBLAS),
    _factor("no-cudnn", "cuda", NO_CUDNN, _BY_CUBLAS),
    Candidate(
        name="channels-otherwise",
        device="",
        beyond=dict.fromkeys(_BY_CUBLAS),
        change=_store_channels_otherwise,
        change_how="another memory_format of the layer and its input, torch.channels_last or "
        "torch.contiguous_format",
    ),
)
CANDIDATES: dict[type, dict[str, Candidate]] = {
    Gemm: {candidate.name: candidate for candidate in _OF_PRODUCTS},
    Conv: {candidate.name: candidate for candidate in _OF_CONVOLUTIONS},
}


def candidates_for(
    precision: str, device: str, features: frozenset[str] | None = None, kind: type = Gemm
) -> list[Candidate]:
    """The candidates for problems of a kind and a precision on a device, `cpu` or `cuda:N`.

    `features` are the CPU's; None asks this machine.
    """
    usable = {None, *(cpu_features() if features is None else features)}
    candidates = []
    for candidate in CANDIDATES[kind].values():
        fits = precision in candidate.beyond and device.startswith(candidate.device)
        if fits and candidate.beyond[precision] in usable:
            candidates.append(candidate)
    return candidates


class _ThroughOneDnn(TorchBackend):
    """Products in fp32 as oneDNN's linear layer, as the factor `onednn` runs them."""

    def prepare(self, problem: Problem, operands: tuple[Array, ...]) -> Prepared:
        assert isinstance(problem, Gemm)
        views = problem.views(operands)
        weight, rows = (self._torch.from_numpy(array) for array in views)
        linear = self._torch.ops.mkldnn._linear_pointwise.default
        run = partial(linear, rows, weight.t(), None, "none", [], "")
        return Prepared(run, lambda: host_array(run()), "mkldnn._linear_pointwise")


@dataclass(frozen=True)
class ProductConfiguration(Configuration):
    """Steps that each make one product or convolution, under a candidate or by default."""

    problems: tuple[tuple[int, Gemm | Conv], ...] = ()  # by value on the axis
    candidate: str = DEFAULT

    @classmethod
    def of(cls, sweep: Sweep, device: str, candidate: str = DEFAULT) -> ProductConfiguration:
        """The configuration of a sweep of products or convolutions."""
        problems = tuple(sweep.problems.items())
        precision = problems[0][1].precision
        return cls(
            sweep.label,
            device=device,
            mode=MODE,
            precision=precision,
            axis=sweep.axis,
            problems=problems,  # type: ignore[arg-type]
            candidate=candidate,
        )

    @property
    def entry(self) -> dict[str, Any]:
        """As of `Configuration`; only this command builds it again."""
        kind = type(self.problems[0][1]).__name__.lower()
        why = f"it is under the candidate {self.candidate} of `bench {kind} --candidates`"
        return {**super().entry, "step_not_importable": why}

    def build(self, find_device: bool = False) -> OwnStep:  # noqa: ARG002 - the device is given
        """Build the steps; the candidate's setting holds in this process from now on."""
        products = _Products(self)
        named = {"name": self.network, "axis": Axis(self.axis)}
        return OwnStep(products.make_step, self.device, **named)  # type: ignore[arg-type]


class _Products:
    """In a process of a candidate: its products or convolutions."""

    def __init__(self, configuration: ProductConfiguration) -> None:
        torch = import_torch()
        problems = dict(configuration.problems)
        (kind,) = {type(problem) for problem in problems.values()}
        candidate = CANDIDATES[kind].get(configuration.candidate)
        self._setting = ExitStack()
        if candidate is not None:
            self._setting.enter_context(candidate.around())
        through = _ThroughOneDnn if candidate and candidate.factor is ONEDNN else TorchBackend
        self._backend = through(torch, configuration.device)
        if candidate is not None and candidate.change is not None:
            problems = {value: candidate.change(each) for value, each in problems.items()}
        self._problems = problems

    def make_step(self, *batch: int, **values: int) -> Callable[[], object]:
        """The product of one value."""
        (value,) = (*batch, *values.values())
        measurement, prepared = self._prepare(value, Method(verify=False))
        if prepared is None:
            raise CurvescopeError(str(measurement.verification))
        return prepared.run

    def check(self, verify: bool) -> tuple[str, str]:
        """The worst outcome of all products, see `BenchOutcome`, with a sentence about it."""
        outcomes = []
        for value in self._problems:
            measurement, _ = self._prepare(value, Method(verify=verify))
            assert measurement.verification is not None
            outcome, detail, _ = measurement.verification
            if outcome not in TIMED:
                return outcome, detail
            outcomes.append((outcome, detail))
        return outcomes[0]

    def _prepare(self, value: int, method: Method) -> tuple[BenchMeasurement, Prepared | None]:
        measurement = BenchMeasurement(self._problems[value], SEED)
        return measurement, measurement.prepare(self._backend, method)


def check_candidates(
    sweep: Sweep,
    device: str,
    chosen: Sequence[Candidate],
    verify: bool = True,
    start: Callable[..., Any] = Interpreter,
) -> list[Checked]:
    """Check the results of the default and of candidates, each in a process of its own."""
    checked = []
    against = {candidate.name: candidate.why_not() for candidate in chosen}
    for name, variables in _settings(chosen).items():
        if why := against.get(name):
            checked.append(Checked(name, BenchOutcome.UNSUPPORTED, why, timed=False))
            continue
        process = start(variables, _Products, ProductConfiguration.of(sweep, device, name))
        try:
            result = process.call("check", verify)
        finally:
            process.end()
        if isinstance(result, Empty):
            result = (BenchOutcome.FAILED, f"{result.why} ({result.detail})")
        outcome, detail = result
        checked.append(Checked(name, outcome, detail, outcome in TIMED))
    return checked


def _settings(chosen: Sequence[Candidate]) -> dict[str, dict[str, str]]:
    """The variables of the default and of candidates, by name."""
    return {DEFAULT: {}, **{candidate.name: dict(candidate.variables) for candidate in chosen}}


def protocol_of(method: Method, problems: int) -> Protocol:
    """How so many products, each under each candidate, are measured by the settings of `bench`."""
    return replace(
        PROTOCOL,
        name="candidates",
        discarded_steps=1,
        steps_per_visit=_STEPS_PER_VISIT,
        visit_s=method.visit_s,
        profiled_steps=1,
        time_limit_s=method.time_limit_s * problems,
    )


def measure_candidates(
    sweep: Sweep,
    device: str,
    chosen: Sequence[Candidate],
    protocol: Protocol,
    folder: Path,
    decided: Callable[[Sequence[StepRow], int], bool] = lambda _, __: False,
    report: Callable[[Progress], object] = lambda _: None,
) -> list[Path]:
    """Time the default and candidates together; each gets a recording in the new folder, by its
    name, the default first.
    """
    versions = []
    for name, variables in _settings(chosen).items():
        configuration = ProductConfiguration.of(sweep, device, name)
        settings = tuple(variables.items())
        version = Version(
            name, ".", variables=settings, folder=Path.cwd(), configuration=configuration
        )
        versions.append(version)
    return measure_versions(versions, None, list(sweep.problems), protocol, folder, decided, report)
