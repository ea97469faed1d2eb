"""What a path of scopes says that JAX or TensorFlow gives an operator: layer, phase and operator.

TensorFlow puts the backward pass of `conv1` under `gradients/conv1` or `gradient_tape/…/conv1`, JAX
writes it `transpose(jvp(conv1))`.

XLA also marks, on a GPU, what it does by ranges of the domain `TSL`, a kind and facts:
`XlaModule:#hlo_module=jit_update,program_id=7#` is one run of a compiled function, in it
`Thunk:#name=jit(update)/jvp(conv1)/conv_general_dilated,hlo_op=cudnn-conv.6,unique_hlo_op_id=3#`
one instruction. All other kinds, e.g. `XlaPass:#name=algsimp,module=jit_update#`, are of the
compiler, which also runs modules without a number, to find the fastest of several kernels.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .phase_names import phase_named

COMPILATION = "XLA compilation"  # the layer of what the compiler does
_JAX_WRAPPER = re.compile(
    r"^(?:jit|pjit|jvp|vmap|remat|checkpoint|custom_jvp|custom_vjp|transpose|while|body|scan)\b"
)
_INNER = re.compile(r"^\w+\((.*)\)$")
# Scopes of Keras's optimizers, whose operators are those of arithmetic.
_KERAS_NAMES = "sgd rmsprop adam adamw adadelta adagrad adamax adafactor nadam ftrl lion lamb muon"
KERAS_OPTIMIZERS = frozenset(_KERAS_NAMES.split())
_OPTIMIZER_OPS = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")
_XLA_RANGE = re.compile(r"(?P<kind>Xla\w+|Thunk):#(?P<facts>.*)#", re.DOTALL)
_GRAPH = "command_buffer"  # launches a CUDA graph of several instructions
# A value may have commas: it ends at the next key.
_FACT = re.compile(
    r"(?:^|,)(?P<key>name|prefix|hlo_module|hlo_op|program_id|unique_hlo_op_id|module)="
)


class Scopes(NamedTuple):
    """The layer, phase and operator that a path names; None for a missing part."""

    layer: str | None = None
    phase: str | None = None
    op: str | None = None


class XlaRange(NamedTuple):
    """The layer, phase and operator of a range of XLA."""

    scopes: Scopes
    whole_layer: bool  # whether the layer is the complete path, whatever is around it


def read_scopes(path: str, op: object = None) -> Scopes:
    """The meaning of a path of scopes, which ends with the operator; `op` is its name if that is
    known otherwise.
    """
    parts = []
    phase = None
    pieces = path.split("/")[:256] if len(path) < 1 << 16 else []
    for part in pieces[:-1]:
        while (inner := _INNER.match(part)) is not None and _JAX_WRAPPER.match(part):
            if part.startswith("transpose("):
                phase = "backward"
            elif part.startswith("jvp(") and phase is None:
                phase = "forward"
            part = "" if part.startswith(("jit(", "pjit(")) else inner[1]
        if part in ("gradients", "gradient_tape"):
            phase = "backward"
        elif part and not _JAX_WRAPPER.fullmatch(part):
            parts.append(part.removesuffix("_grad") if phase == "backward" else part)
    if (
        phase == "backward"
        and parts
        and (pieces[-2].endswith("_grad") or pieces[-1].startswith(pieces[-2]))
    ):
        # the forward operator of the layer: `conv1/Conv2D_grad/…`,
        # `conv1/Conv2D/Conv2DBackpropInput`
        parts.pop()
    if isinstance(op, str) and op:
        kind = op
    elif pieces:
        kind = pieces[-1]
    else:
        kind = None
    if kind is not None and kind.startswith(_OPTIMIZER_OPS):
        phase = "optimizer"
    if parts and phase_named(parts[0]) == "optimizer":  # a scope around the update, in JAX
        phase = "optimizer"
        parts = parts[1:]
    elif parts and parts[0] in KERAS_OPTIMIZERS:
        phase = "optimizer"
    return Scopes("/".join(parts) or None, phase, kind)


def read_xla_range(name: str) -> XlaRange | None:
    """The meaning of a range of the domain `TSL`; None for one that is not of XLA.

    An instruction without a scope has the layer around it, its module.
    """
    match = _XLA_RANGE.fullmatch(name)
    if match is None:
        return None
    facts = _facts(match["facts"])
    if match["kind"] == "Thunk":
        path = facts.get("name", "")
        op = facts.get("hlo_op")
        if op is not None and op.startswith(_GRAPH):
            op = None
        if "/" not in path:  # an argument of the function, or the function itself
            return XlaRange(Scopes(op=op), whole_layer=False)
        if _INNER.fullmatch(last := path.rpartition("/")[2]) and _JAX_WRAPPER.match(last):
            path += "/"  # no operator: the scopes of several that were fused
        scopes = read_scopes(path, op)
        return XlaRange(scopes, whole_layer=scopes.layer is not None)
    if match["kind"] == "XlaModule" and "program_id" in facts:
        return XlaRange(Scopes(facts.get("hlo_module")), whole_layer=False)
    return XlaRange(Scopes(COMPILATION), whole_layer=True)


def _facts(text: str) -> dict[str, str]:
    keys = list(_FACT.finditer(text))
    ends = [key.start() for key in keys[1:]]
    ends.append(len(text))
    return {key["key"]: text[key.end() : end] for key, end in zip(keys, ends, strict=True)}
