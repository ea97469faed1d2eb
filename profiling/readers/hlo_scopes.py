"""Which scope of the program an instruction of XLA belongs to, by the modules that its profiler
stores with a profile.

An event on a CPU names its module and instruction only. The plane `/host:metadata` holds every
module as an `HloProto` (openxla/xla, xla/service/hlo.proto), whose instructions have the path of
the program's scopes, `op_name`. A fusion without one has the commonest of its parts; a copy, the
one of the instruction that uses it.

A function that was compiled for several shapes has as many modules of one name, which number their
instructions alike: the number of the program, which modules and events have, tells them apart.
Events of a program that JAX loaded from its cache have another number, that of the process which
compiled it: they have the scopes on which all modules of the name agree.

XLA names a fusion by its contents, e.g. `multiply_subtract_fusion`, except the kind `kCustom`,
which a library or another compiler computes: `ynn_fusion` may be a product or a reduction, and so
may `block_fusion`. Nor does `custom-call` name the called function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PLANE = "/host:metadata"
STAT = "Hlo Proto"
# As of `xspace_pb._MESSAGES`.
MESSAGES = {
    "HloProto": "1 hlo_module HloModule",
    "HloModule": "1 name string, 3 computations HloComputation*",
    "HloComputation": "2 instructions HloInstruction*, 5 id int64",
    "HloInstruction": "1 name string, 2 opcode string, 7 metadata OpMetadata, 11 fusion_kind "
    "string, 28 custom_call_target string, 35 id int64, 36 operand_ids int64*, "
    "38 called_computation_ids int64*",
    "OpMetadata": "2 op_name string",
}
# Opcodes that a custom fusion is named after, the first that is in it.
_WORK = ("convolution", "dot", "reduce-window", "reduce")
_NO_WORK = len(_WORK)
_CUSTOM_FUSION = "kCustom"
_CUSTOM_CALL = "custom-call"
_MOST_USES = 4  # from an instruction to the one that uses its result, and so on


@dataclass(frozen=True)
class Instructions:
    """Facts on instructions, by a program (`jit_train_step(18)`, or the name alone) and the
    instruction's name.
    """

    programs: frozenset[str]  # those that are stored
    paths: Mapping[tuple[str, str], str]  # scopes of the program
    # what a custom fusion computes, one of `_WORK`, or a custom call calls, e.g. `TopK`
    custom: Mapping[tuple[str, str], str]

    def key(self, facts: Mapping[str, Any]) -> tuple[str, str]:
        """Where the instruction of an event stands in the tables, by the event's facts."""
        name = str(facts.get("hlo_module", ""))
        numbered = f"{name}({facts.get('program_id')})"
        return numbered if numbered in self.programs else name, str(facts.get("hlo_op", ""))


def instructions_of(modules: Mapping[str, Any]) -> Instructions:
    """The scopes and contents of the modules' instructions, each by its stored name."""
    paths = {}
    custom = {}
    names = {}
    for module_name, module in modules.items():
        names[module_name] = str(module.name)
        for name, path in _paths(module):
            paths[module_name, name] = path.partition(";")[0]
        for name, what in _custom(module):
            custom[module_name, name] = what
    paths |= _find_agreed(paths, names)
    custom |= _find_agreed(custom, names)
    return Instructions(frozenset(modules), paths, custom)


def _find_agreed(
    of_programs: Mapping[tuple[str, str], str], names: Mapping[str, str]
) -> dict[Any, str]:
    """The text that all programs of a name have for an instruction, by this name."""
    by_name: dict[tuple[str, str], set[str]] = {}
    for (program, instruction), what in of_programs.items():
        by_name.setdefault((names[program], instruction), set()).add(what)
    return {key: texts.pop() for key, texts in by_name.items() if len(texts) == 1}


def _custom(module: Any) -> Iterator[tuple[str, str]]:
    ranks = {computation.id: _rank_of_work(computation) for computation in module.computations}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == _CUSTOM_CALL and instruction.custom_call_target:
                yield instruction.name, instruction.custom_call_target
            if instruction.fusion_kind != _CUSTOM_FUSION:
                continue
            called = instruction.called_computation_ids
            rank = min((ranks[each] for each in called if each in ranks), default=_NO_WORK)
            if rank != _NO_WORK:
                yield instruction.name, _WORK[rank]


def _rank_of_work(computation: Any) -> int:
    """The place in `_WORK` of the first opcode of it that a computation has; `_NO_WORK` without."""
    opcodes = {instruction.opcode for instruction in computation.instructions}
    return next((rank for rank, work in enumerate(_WORK) if work in opcodes), _NO_WORK)


def _paths(module: Any) -> Iterator[tuple[str, str]]:
    inside = {computation.id: _commonest(computation) for computation in module.computations}
    for computation in module.computations:
        users: dict[int, Any] = {}
        for instruction in computation.instructions:
            for operand in instruction.operand_ids:
                users.setdefault(operand, instruction)
        for instruction in computation.instructions:
            path = _own_path(instruction, inside)
            used = instruction
            for _ in range(_MOST_USES):
                if path or (used := users.get(used.id)) is None:
                    break
                path = _own_path(used, inside)
            if path:
                yield instruction.name, path


def _commonest(computation: Any) -> str:
    """The path that most instructions of a computation have; empty if none has one."""
    paths = Counter(
        instruction.metadata.op_name
        for instruction in computation.instructions
        if instruction.metadata.op_name
    )
    if paths:
        return str(paths.most_common(1)[0][0])
    return ""


def _own_path(instruction: Any, inside: dict[int, str]) -> str:
    """The path of an instruction, or of the first that it calls, e.g. one fused into it."""
    if path := str(instruction.metadata.op_name):
        return path
    called = instruction.called_computation_ids
    if called:
        return inside.get(called[0], "")
    return ""
