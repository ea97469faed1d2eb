"""Which scope of the program an instruction of XLA belongs to, by the modules that its profiler
stores with a profile.

An event on a CPU names its module and instruction only. The plane `/host:metadata` holds every
module as an `HloProto` (openxla/xla, xla/service/hlo.proto), whose instructions have the path of
the program's scopes, `op_name`. A fusion without one has the commonest of what was fused; a copy,
that of the instruction that uses it.

A function that was compiled for several shapes has as many modules of one name, which number their
instructions alike: the number of the program, which modules and events have, tells them apart.

XLA names a fusion by what is in it, e.g. `multiply_subtract_fusion`, but for those that it gives to
a library: `ynn_fusion` may be a product or a convolution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

PLANE = "/host:metadata"
STAT = "Hlo Proto"
# As of `xspace_pb._MESSAGES`.
MESSAGES = {
    "HloProto": "1 hlo_module HloModule",
    "HloModule": "1 name string, 3 computations HloComputation*",
    "HloComputation": "2 instructions HloInstruction*, 5 id int64",
    "HloInstruction": "1 name string, 2 opcode string, 7 metadata OpMetadata, 35 id int64, 36 "
    "operand_ids int64*, "
    "38 called_computation_ids int64*",
    "OpMetadata": "2 op_name string",
}
_PRODUCTS = ("convolution", "dot")  # opcodes
_OF_LIBRARY = "ynn_fusion"  # how a fusion is named that YNNPACK computes
_MOST_USES = 4  # from an instruction to the one that uses its result, and so on


def program(module: str, number: object) -> str:
    """How a module is stored, as `jit_train_step(18)`; its name alone if its number is unknown."""
    return module if number is None else f"{module}({number})"


def scopes_of(modules: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The path of each instruction that has one, by its program and its name; for `modules` see
    `by_program`.
    """
    return {
        (of, name): path.partition(";")[0]
        for of, module in modules.items()
        for name, path in _paths(module)
    }


def products_of(modules: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The product in each fusion of a library, `convolution` or `dot`, by its program and its
    name; for `modules` see `by_program`.
    """
    return {
        (of, name): product for of, module in modules.items() for name, product in _products(module)
    }


def by_program(stored: Iterator[tuple[str, Any]]) -> dict[str, Any]:
    """Modules by the name that each is stored under, see `program`, and, for events that have no
    number, the only one of a name by this.
    """
    modules = dict(stored)
    named = Counter(module.name for module in modules.values())
    alone = {one.name: one for one in modules.values() if named[one.name] == 1}
    return alone | modules


def _products(module: Any) -> Iterator[tuple[str, str]]:
    inside = {computation.id: computation for computation in module.computations}
    for computation in module.computations:
        for one in computation.instructions:
            if not one.name.startswith(_OF_LIBRARY):
                continue
            opcodes = {
                each.opcode
                for called in one.called_computation_ids
                if called in inside
                for each in inside[called].instructions
            }
            if found := opcodes.intersection(_PRODUCTS):
                yield one.name, min(found)


def _paths(module: Any) -> Iterator[tuple[str, str]]:
    inside = {computation.id: _commonest(computation) for computation in module.computations}
    for computation in module.computations:
        users: dict[int, Any] = {}
        for instruction in computation.instructions:
            for operand in instruction.operand_ids:
                users.setdefault(operand, instruction)
        for instruction in computation.instructions:
            path, used = _own_path(instruction, inside), instruction
            for _ in range(_MOST_USES):
                if path or (used := users.get(used.id)) is None:
                    break
                path = _own_path(used, inside)
            if path:
                yield instruction.name, path


def _commonest(computation: Any) -> str:
    """The path that most instructions of a computation have; empty if none has one."""
    found = Counter(
        one.metadata.op_name for one in computation.instructions if one.metadata.op_name
    )
    return str(found.most_common(1)[0][0]) if found else ""


def _own_path(instruction: Any, inside: dict[int, str]) -> str:
    """The path of an instruction, or the one of what it calls first, e.g. of what was fused into
    it.
    """
    if path := str(instruction.metadata.op_name):
        return path
    called = instruction.called_computation_ids
    return inside.get(called[0], "") if called else ""
