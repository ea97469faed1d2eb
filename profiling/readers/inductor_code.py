"""Reads what torch.compile (Inductor) wrote while it compiled: its cache folder, or the folder of
TORCH_COMPILE_DEBUG.

A comment before each generated Triton kernel names the operators as the program called them
(`Original ATen`), their nodes, and, since PyTorch 2.9, the shapes of these: so an operator's part
follows the bytes that it would move alone, and the FLOPs of all nodes are the kernel's. The files
name no modules, and C++ kernels have no such comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...base.errors import CurvescopeError
from ..attribution.fused_kernels import VIEWS, FusedOperator, encode_shares, shares_of
from ..attribution.node_work import Elements, node_flops

_MOST_FILES = 50_000
_LARGEST_BYTES = 64 << 20
_MARK = b"Original ATen: ["
_ORIGINAL = re.compile(r"Source Nodes: \[.*?\], Original ATen: \[(.*?)\]")
_SOURCE = re.compile(r"(\S+) => (.+)")
_NODE = re.compile(
    r"%(?P<name>\w+) : (?:Tensor \"(?P<type>\w+)\[(?P<shape>[^\]]*)\][^\"]*\" "
    r"?)?(?:\[num_users=\d+\])? ?= "
    r"(?:PlaceHolder|call_function)\[target=(?:torch\.ops\.(?P<space>\w+)\.(?P<op>\w+))?[\w.]*\]"
    r"(?:\(args = (?P<arguments>.*), kwargs = )?"
)
_KERNEL = re.compile(r"(?P<name>triton\w*) = async_compile\.triton\(")
_COMMENT = re.compile(r"\s*(?:#|//)\s*(.*)")
_RETURN = re.compile(r"return (%.*)")
_OPERAND = re.compile(r"%(\w+)")
_BITS = re.compile(r"[a-z]+(\d+)")


_Value = TypeVar("_Value")


class _Node(NamedTuple):
    """A node of a graph: its operator (None for an input), bytes and elements of its result, and
    its operands.
    """

    op: str | None
    bytes: int
    elements: Elements | None
    operands: tuple[str, ...]


class GeneratedKernels(NamedTuple):
    """Column `fused` and FLOPs of a launch of generated kernels by name; those with several
    contents are left out.
    """

    fused: dict[str, str]
    flops: dict[str, int]


def read_generated(folder: Path) -> GeneratedKernels:
    """The kernels in a folder of TORCHINDUCTOR_CACHE_DIR or TORCH_COMPILE_DEBUG, or one
    inside it.
    """
    if not folder.is_dir():
        raise CurvescopeError(
            f"--inductor {folder}: no folder; give that of TORCHINDUCTOR_CACHE_DIR."
        )
    shares: dict[str, set[str]] = {}
    work: dict[str, set[int | None]] = {}
    try:
        for number, file in enumerate(folder.rglob("*.py")):
            if number == _MOST_FILES:
                raise CurvescopeError(
                    f"--inductor {folder}: over {_MOST_FILES} files; give a folder inside it."
                )
            if not file.is_file() or file.stat().st_size > _LARGEST_BYTES:
                continue
            code = file.read_bytes()
            if _MARK not in code:
                continue
            for name, operators, flops in _kernels(code.decode(errors="replace").splitlines()):
                text = encode_shares(shares_of(operators))
                if text is not None:
                    shares.setdefault(name, set()).add(text)
                    work.setdefault(name, set()).add(flops)
    except OSError as error:
        raise CurvescopeError(f"--inductor {folder}: {error.strerror or error}.") from error
    if not shares:
        raise CurvescopeError(
            f"--inductor {folder}: no Triton kernel of Inductor in it. Set TORCHINDUCTOR_CACHE_DIR "
            "when the program runs on a GPU, and give that folder."
        )
    work_of_kernel = {}
    for name, flops in _find_certain(work).items():
        if flops is not None:
            work_of_kernel[name] = flops
    return GeneratedKernels(_find_certain(shares), work_of_kernel)


def _find_certain(values: Mapping[str, set[_Value]]) -> dict[str, _Value]:
    """The value of each name that has only one."""
    return {name: next(iter(distinct)) for name, distinct in values.items() if len(distinct) == 1}


def _kernels(lines: Iterable[str]) -> Iterator[tuple[str, list[FusedOperator], int | None]]:
    """The generated kernels of a file, each with the operators that the comment before it names,
    and its FLOPs.
    """
    comments: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            comments.append(comment[1])
            continue
        if kernel := _KERNEL.match(line):
            nodes = _nodes(comments)
            if operators := _operators(comments, nodes):
                yield kernel["name"], operators, _flops(comments, nodes)
        if line.strip():
            comments = []


def _operators(comments: Sequence[str], nodes: Mapping[str, _Node]) -> list[FusedOperator]:
    """The operators in one comment, with the bytes of their nodes; without bytes where these are
    not certain.
    """
    match = next(filter(None, map(_ORIGINAL.search, comments)), None)
    if match is None:
        return []
    # as profiles write them
    originals = [name.replace(".", "::", 1) for name in match[1].split(", ") if name]
    moving = [op for op in originals if op not in VIEWS] or originals
    own = _attribute_bytes(comments, nodes, moving)
    return [FusedOperator(None, op, own.get(op, 0)) for op in moving]


def _nodes(comments: Iterable[str]) -> dict[str, _Node]:
    nodes = {}
    for match in filter(None, map(_NODE.match, comments)):
        op = f"{match['space']}::{match['op']}" if match["op"] else None
        elements = _elements(match)
        bits = _BITS.match(match["type"] or "")
        size = 0
        if elements is not None and bits is not None:
            size = elements.number * int(bits[1]) // 8
        operands = tuple(_OPERAND.findall(match["arguments"] or ""))
        nodes[match["name"]] = _Node(op, size, elements, operands)
    return nodes


def _elements(match: re.Match[str]) -> Elements | None:
    """Elements of a node's result; None if its shape or type is unknown."""
    extents = []
    for part in (match["shape"] or "").split(","):
        if part.strip():
            extents.append(part.strip())
    if not match["type"] or not all(extent.isdecimal() for extent in extents):
        return None
    return Elements(prod(map(int, extents)), match["type"].startswith(("f", "bf")))


def _flops(comments: Sequence[str], nodes: Mapping[str, _Node]) -> int | None:
    """FLOPs of all nodes in one comment; None if a node's are unknown, or if no node computes."""
    named = set()
    for source in filter(None, map(_SOURCE.fullmatch, comments)):
        for name in source[2].split(", "):
            named.add(name)
    total = 0
    computing = [node for node in nodes.values() if node.op is not None]
    for op, _, result, operands in computing:
        first = nodes.get(operands[0]) if operands else None
        flops = node_flops(str(op), result, None if first is None else first.elements)
        if flops is None:
            return None
        total += flops
    if computing and named <= nodes.keys():
        return total
    return None


def _attribute_bytes(
    comments: Sequence[str], nodes: Mapping[str, _Node], originals: list[str]
) -> dict[str, int]:
    """The bytes that each operator moves alone; empty where it is not certain which nodes are
    whose.

    A call that became one node of its own name is that operator; calls of several nodes are the one
    that then is left.
    """
    own: dict[str, set[str]] = {}
    rest: set[str] = set()
    for source in filter(None, map(_SOURCE.fullmatch, comments)):
        names = [name for name in source[2].split(", ") if name in nodes]
        computing = {name for name in names if nodes[name].op not in VIEWS}
        op = nodes[next(iter(computing))].op if len(computing) == 1 else None
        if op in originals and op is not None:
            own.setdefault(op, set()).update(computing)
        else:
            rest |= computing
    left = [op for op in originals if op not in own]
    if len(left) > 1 or (rest and not left):
        return {}
    own |= dict.fromkeys(left, rest)
    returned: set[str] = set()
    for match in filter(None, map(_RETURN.fullmatch, comments)):
        returned.update(_OPERAND.findall(match[1]))
    moved = {op: _count_moved_bytes(names, nodes, returned) for op, names in own.items()}
    return moved if all(moved.values()) else {}


def _count_moved_bytes(inside: set[str], nodes: Mapping[str, _Node], returned: set[str]) -> int:
    """Bytes that some nodes read from others and give to others, each tensor once."""
    read: set[str] = set()
    used = set(returned)
    for name, node in nodes.items():
        if name in inside:
            read.update(node.operands)
        else:
            used.update(node.operands)
    moved = (read - inside) | (used & inside)
    return sum(nodes[name].bytes for name in moved if name in nodes)
