"""Parses the names of ranges: layer, phase, step, operator, sequence number, batch size.

Known conventions, most specific first:
- Curvescope's own: `curvescope.layer:conv1`, `curvescope.phase:forward`, `curvescope.step`; in the
  NVTX domain `curvescope` the module's path, with the suffix ` backward` in the backward pass.
- `layer:conv1`, as pyprof writes it.
- pyprof's call marks: `{'traceMarker': [...]}` is a layer with the name of the innermost line of
  the user's own code, `{'mod': ..., 'op': ...}` an operator.
- torch.autograd.profiler.emit_nvtx: `aten::conv2d, seq = 12, sizes = [[32, 3, 224, 224]]` is an
  operator.
- Steps: `ProfilerStep#7`, `step 7`, `iteration_7`, `iter=7`, `train_step`, `batch 7`, `token_7`,
  the marks of loops of Lightning, and marks of inference servers (see `served_steps`). Phases:
  `forward`, `backward`, `optimizer` and their usual forms.
- FSDP: `FSDP::pre_forward (model.layers.0)` is FSDP's own work before that module: the layer `FSDP`
  in it.
- What XLA marks on a GPU (`Thunk:#name=jit(update)/jvp(conv1)/dot,hlo_op=dot.6#`, see
  `framework_scopes`) is an operator in the layer of its scope, or a compiled function.
- A number that counts calls (`, op_id = 7`) is no part of a name, nor is one that counts the calls
  of ranges with hundreds of numbers (`Compute 30`).
- Every other push/pop range is a layer; its path is the names of such ranges around it and its own,
  joined by `/`.

A pattern replaces these conventions: a regular expression with groups named layer, phase, step, op
or batch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...base.errors import CurvescopeError
from .framework_scopes import read_xla_range
from .linear_patterns import LinearPattern
from .operation import BatchSource, batch_of
from .phase_names import PHASES, phase_named
from .served_steps import ServedStep, parse_served_step

GROUPS = ("layer", "phase", "step", "op", "batch")
# Domains in which libraries mark their own calls, which are not layers of the user.
LIBRARY_DOMAINS = frozenset(
    {
        "nccl",
        "cublas",
        "cublaslt",
        "cudnn",
        "cufft",
        "cusparse",
        "cusolver",
        "curand",
        "cccl",
        "nvshmem",
        "cutensor",
    }
)
# Roles of spans that a framework names.
OPERATOR = "operator"  # a framework's operator
# of a framework's profiler: it names no layer, unless Curvescope wrote it
ANNOTATION = "annotation"
MODULE_CALL = "module"  # forward if no span around it has a phase

STEP_RANGE = "curvescope.step"
PHASE_RANGE = "curvescope.phase:"
LAYER_RANGE = "curvescope.layer:"
INPUT_PHASE = "input"
MODULE = "nn.Module: "
OPTIMIZER = "Optimizer."
NODE_PREFIX = "autograd::engine::evaluate_function: "
# Collectives of torch's backends: recorded like annotations of the user, but they are work, on
# threads of the backend.
COLLECTIVES = ("gloo:", "nccl:")
# Calls of torch.distributed and of DDP's reducer, around collectives.
XLA_DOMAIN = "TSL"  # NVTX domain of XLA
OWN_DOMAIN = "curvescope"  # NVTX domain of Curvescope's own ranges
DISTRIBUTED = ("c10d::", "torch::distributed::", "torch.distributed.")
COMMUNICATION = (*DISTRIBUTED, *COLLECTIVES)
LONGEST_NAME = 4096  # characters of a range's name and of a path of layers that are kept
_MOST_LAYERS = 200  # of one kind; the deepest language models have 126
LONGEST_READ = 1 << 16  # characters that are parsed, and of a kernel's name that are kept

_STEP = re.compile(
    r"(?:profilerstep#|(?:(?:train|training|test|eval|global)[ "
    r"_.-]?)?(?:step|iteration|iter|minibatch|batch))"
    r"[ _#:=.-]*\d*(?:[ ,;(].*)?",
    re.IGNORECASE | re.DOTALL,
)
# Of programs that generate text token by token, e.g. `token_7_processing`.
_TOKEN = re.compile(
    r"(?:token|decode|decoding|generate)(?:[ _-]?(?:step|token))?[ _#:=.-]*\d+"
    r"(?:[ _.-](?:processing|generation|forward|decode|step))?",
    re.IGNORECASE,
)
_BATCH = re.compile(r"(?:batch[ _-]?size|\bbs|\bbatchsize)[ ]*[=:][ ]*(\d{1,9})\b", re.IGNORECASE)
_EMIT_NVTX = re.compile(
    r"(?P<op>[^,]+?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = \d+)?(?:, sizes = (?P<sizes>\[.*))?"
)
_LETTER = re.compile(r"[^\W\d_]")
_CALL_NUMBER = re.compile(r",? ?(?:op_id|seq) ?= ?\d+$")
# Lightning's profiler marks a step of its training or evaluation loop by the method that runs it.
_LIGHTNING_STEP = re.compile(
    r"(?:\[pl\]\[profile\])?(?:run_training_batch|(?:run_)?(?:evaluation|validation|test|predict)_step)"
)
_COMMUNICATION_CALLS = (
    "record_param_comms",
    "FSDP::all_gather",
    "FSDP::reduce_scatter",
    "FSDP::all_reduce",
)
_FSDP_MODULE = re.compile(r"FSDP::\w+ \(([^()]+)\)")
# Modules that checkpointing, FSDP and torch.compile put around one of the user's.
_AROUND = re.compile(r"(?:^|\.)_(?:checkpoint_wrapped_module|fsdp_wrapped_module|orig_mod)(?=\.|$)")
_OPERATOR = re.compile(
    r"(?:aten|torch|torch::autograd|prims|c10d|torchvision|xformers|flash_attn)::\w+.*"
)
_BACKWARD_NODE = re.compile(r"(?:torch::autograd::)?\w*Backwards?\d*")
_HOME = re.compile(
    r"(?:/home|/Users|/root|/global|/scratch|/mnt|/data|/workspace|[A-Za-z]:\\Users)[^\s'\":,;()]*[/\\]"
)


class RangeName(NamedTuple):
    """The meaning of one name; None for facts that it does not contain."""

    layer: str | None = None  # layer, or the last component of the layer's path
    # whether `layer` is the complete path, independent of the ranges around it
    whole_layer: bool = False
    phase: str | None = None  # forward, backward, optimizer or input
    step: bool = False  # whether it marks a step
    op: str | None = None  # operator
    # autograd's sequence number, which joins a backward node to its forward operator
    sequence: int | None = None
    backward: bool = False  # whether it is a backward node
    batch: int | None = None  # samples in the step
    batch_source: BatchSource = BatchSource.NAME  # what tells `batch`
    served: ServedStep | None = None  # facts of a step of an inference server
    role: str | None = None  # role of the span; None for a range that the program named


class RangeNames:
    """Parses names by the known conventions, or only by a pattern with groups out of `GROUPS`: the
    user's, or one that a file names (`stored`), see `LinearPattern`.
    """

    def __init__(self, pattern: str | None = None, *, stored: bool = False) -> None:
        self._search: Callable[[str], Mapping[str, str | None] | None] | None = None
        if pattern is None:
            return
        linear = LinearPattern(pattern) if stored else None
        try:
            compiled = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise CurvescopeError(
                f"--range-pattern {pattern}: this is no regular expression ({error})."
            ) from error
        self._search = linear.search if linear else partial(_groups_of, compiled)
        if set(compiled.groupindex).isdisjoint(GROUPS):
            raise CurvescopeError(
                f"--range-pattern {pattern}: name groups in it, e.g. '(?P<layer>conv\\d+)'; "
                f"groups are {', '.join(GROUPS)}."
            )

    def read(self, name: str, domain: str | None = None, role: str | None = None) -> RangeName:
        """Parse the name of a range or operator, by its NVTX domain and role (None: the program
        named the range).
        """
        name = name[:LONGEST_READ]
        if role == OPERATOR:
            return _operator(name)
        is_module = role == MODULE_CALL or (
            role == ANNOTATION and name.startswith(("curvescope.", OPTIMIZER))
        )
        if self._search is None or is_module:
            parsed = _by_convention(name, domain)
        else:
            parsed = self._by_pattern(name)
        layer = parsed.layer
        if layer is None or (role == ANNOTATION and not name.startswith(LAYER_RANGE)):
            return parsed._replace(role=role, layer=None)
        return parsed._replace(role=role, layer=scrub(layer, LONGEST_NAME))

    def _by_pattern(self, name: str) -> RangeName:
        assert self._search is not None
        match = self._search(name)
        if match is None:
            return RangeName()
        groups = {key: value for key, value in match.items() if value}
        phase = groups.get("phase")
        if phase is not None:
            phase = phase_named(phase)
        return RangeName(
            layer=groups.get("layer"),
            whole_layer=True,
            phase=phase,
            step="step" in groups,
            op=groups.get("op"),
            batch=_number(groups.get("batch")),
        )


_CONVENTIONS = RangeNames()


def find_step_names(names: Iterable[object]) -> list[object]:
    """The names of ranges that mark a step, by the known conventions."""
    return [name for name in names if _CONVENTIONS.read(str(name)).step]


def _groups_of(pattern: re.Pattern[str], name: str) -> Mapping[str, str | None] | None:
    match = pattern.search(name)
    return None if match is None else match.groupdict()


def name_forward(kernels: Sequence[dict[str, Any]]) -> None:
    """Name the forward pass of layers with a backward one; input pipelines, summaries and savers
    have none. Rows may lack unknown facts.
    """
    layers_back = {row.get("layer") for row in kernels if row.get("phase") == "backward"} - {None}
    for row in kernels:
        if row.get("phase") is None and row.get("layer") in layers_back:
            row["phase"] = "forward"


def scrub(name: str, longest: int = LONGEST_READ) -> str:
    """The name without folders that may contain a user's or a host's name, and no longer than so
    many characters.
    """
    # Templates of CUTLASS and PyTorch have names of thousands of characters, which differ at their
    # ends.
    name = name.replace("\x00", "")
    if "/" in name or "\\" in name:
        name = _HOME.sub("", name)
    if len(name) <= longest:
        return name
    return name[: longest - 1] + "…"


@lru_cache(maxsize=1 << 16)
def _by_convention(name: str, domain: str | None) -> RangeName:
    batch = _number(match.group(1)) if (match := _BATCH.search(name)) else None
    if domain == OWN_DOMAIN:
        path, backward, _ = name.partition(" backward")
        return RangeName(path, True, "backward" if backward else "forward", batch=batch)
    if domain is not None and domain.lower() in LIBRARY_DOMAINS:
        return RangeName(op=name)
    if domain == XLA_DOMAIN and (of_xla := read_xla_range(name)) is not None:
        layer, phase, op = of_xla.scopes
        return RangeName(layer, of_xla.whole_layer, phase, op=op)
    if name.startswith("curvescope."):
        kind, _, value = name.removeprefix("curvescope.").partition(":")
        path, backward, _ = value.partition(" backward")
        phase = value if kind == "phase" and value in {*PHASES, INPUT_PHASE} else None
        return RangeName(
            layer=path if kind == "layer" else None,
            whole_layer=True,
            phase="backward" if kind == "layer" and backward else phase,
            step=kind == "step",
            batch=batch,
        )
    if name.startswith(MODULE):
        return RangeName(name.removeprefix(MODULE), whole_layer=True)
    if name.startswith("layer:"):
        return RangeName(name.removeprefix("layer:"), batch=batch)
    if name.startswith("{'"):
        return _pyprof(name)
    if _BATCH.fullmatch(name):
        return RangeName(batch=batch)
    if served := parse_served_step(name):
        return RangeName(step=True, batch=served.batch, served=served)
    if any(form.fullmatch(name) for form in (_STEP, _TOKEN, _LIGHTNING_STEP)):
        return RangeName(step=True, batch=batch)
    if phase := phase_named(name):
        return RangeName(phase=phase, batch=batch)
    if (
        ", seq = " in name
        or name.startswith((NODE_PREFIX, *COMMUNICATION))
        or _OPERATOR.fullmatch(name)
    ):
        return _read_emitted(name)
    name = _CALL_NUMBER.sub("", name)
    if name.startswith(_COMMUNICATION_CALLS):
        return _operator(name)
    if module := _FSDP_MODULE.fullmatch(name):
        return RangeName(
            f"{_AROUND.sub('', module[1]).lstrip('.') or module[1]}.FSDP", whole_layer=True
        )
    return RangeName(layer=name, batch=batch)


def _read_emitted(name: str) -> RangeName:
    """An operator as emit_nvtx writes it."""
    match = _EMIT_NVTX.fullmatch(name)
    if match is None:
        return _operator(name)
    operator = _operator(match["op"])
    sequence = match["seq"]
    if sequence is not None and "AccumulateGrad" not in match["op"]:
        operator = operator._replace(sequence=int(sequence))
    else:
        operator = operator._replace(sequence=None)
    texts = re.findall(r"\[(\d{1,9}(?:, \d+)*)\]", match["sizes"] or "")
    shapes = [list(map(int, text.split(", "))) for text in texts]
    batch, source = batch_of(match["op"], shapes) or (None, BatchSource.NAME)
    return operator._replace(batch=batch, batch_source=source)


def _operator(name: str) -> RangeName:
    op = name.removeprefix(NODE_PREFIX)
    backward = (
        name.startswith(NODE_PREFIX)
        or "AccumulateGrad" in op
        or _BACKWARD_NODE.fullmatch(op) is not None
    )
    return RangeName(op=op, backward=backward, phase="backward" if backward else None)


def _pyprof(name: str) -> RangeName:
    try:
        facts: Any = ast.literal_eval(name)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return RangeName()
    if not isinstance(facts, dict):
        return RangeName()
    lines = facts.get("traceMarker")
    if isinstance(lines, list):
        own = [line for line in lines if isinstance(line, str) and "-packages" not in line]
        if own:
            return RangeName(layer=own[-1], whole_layer=True)
        return RangeName()
    if isinstance(facts.get("op"), str):
        return RangeName(op=f"{facts.get('mod')}.{facts['op']}")
    return RangeName()


def fold_counters(
    meanings: Sequence[RangeName], uses: Sequence[int] | npt.NDArray[np.int64]
) -> list[RangeName]:
    """The meanings, with one layer for ranges that a program numbers, e.g. `Compute 30`: the number
    counts calls.
    """
    # Such names occur once each (`uses`), and there are more of them than a model has layers of one
    # kind.
    folded = list(meanings)
    numbered: dict[str, list[int]] = {}
    for index, (meaning, count) in enumerate(zip(meanings, uses, strict=True)):
        named = meaning.layer is not None and not meaning.whole_layer and meaning.role is None
        if count == 1 and named and (stem := _before_number(meaning.layer or "")):
            numbered.setdefault(stem, []).append(index)
    for stem_text, numbers in numbered.items():
        if len(numbers) >= _MOST_LAYERS:
            for index in numbers:
                folded[index] = folded[index]._replace(layer=stem_text)
    return folded


def _before_number(name: str) -> str | None:
    """A name without the number at its end and what separates it; None without a number, or a
    letter before it.
    """
    end = len(name)
    while end and name[end - 1].isdecimal():
        end -= 1
    stem = name[:end].rstrip(" _#:=.-")
    if end < len(name) and _LETTER.search(stem):
        return stem
    return None


def _number(digits: str | None) -> int | None:
    if digits is not None and digits.isdecimal() and 0 < int(digits) < 1 << 31:
        return int(digits)
    return None
