"""What the numbers in the operands of a recorded call were like: the JSON text in the column
`operators.numbers`.

Kernels take longer for some, e.g. denormal ones or indices that are far apart. A replay fills its
operands alike.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

LEAST_DENORMAL = 0.005  # share of a tensor; below it, no step is slower for them


class Numbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of one tensor, or of a sample of it."""

    elements: int  # elements of the tensor
    dtype: str  # their type, as PyTorch's profiler names it
    # name of the model's parameter that is the tensor, or a view of it; None for others
    parameter: str | None = None
    # name of the parameter of which it is one of several parts, e.g. of one expert; else None
    part_of: str | None = None
    parts: int = 0  # number of such parts, as many as are of its size; 0 for others
    zeros: float = 0.0  # share of zeros
    denormals: float = 0.0  # share of denormal numbers
    # equally distant order statistics; empty unless the call has denormal numbers
    order: tuple[float, ...] = ()
    distinct: float | None = None  # share of distinct numbers; None unless they are whole
    ascending: bool = False  # whether they never decrease
    values: tuple[int, ...] = ()  # the numbers themselves, of the ends of groups of rows only


class CallNumbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of one call."""

    # by index of the argument; of a list of tensors, those of its first tensor
    operands: dict[int, Numbers] = msgspec.field(default_factory=dict)
    denormal_results: float = 0.0  # largest share of denormal numbers in a result

    @property
    def denormals(self) -> float:
        """Largest share of denormal numbers in an operand or a result."""
        return max(
            [self.denormal_results, *(operand.denormals for operand in self.operands.values())]
        )

    @property
    def distinct(self) -> float | None:
        """Smallest share of distinct numbers in an operand of whole numbers; None without one."""
        return min(
            (
                operand.distinct
                for operand in self.operands.values()
                if operand.distinct is not None
            ),
            default=None,
        )

    def at_another_size(self) -> CallNumbers:
        """The same without the numbers themselves, which belong to one batch size."""
        operands = {index: replace(operand, values=()) for index, operand in self.operands.items()}
        return replace(self, operands=operands)


def encode_numbers(numbers: CallNumbers) -> str:
    """The numbers of a call as JSON text."""
    return msgspec.json.encode(numbers).decode()


def decode_numbers(text: str | None) -> CallNumbers:
    """The numbers of a call from their JSON text; none without one.

    ValueError: the text is damaged.
    """
    try:
        return CallNumbers() if text is None else msgspec.json.decode(text, type=CallNumbers)
    except msgspec.DecodeError as error:
        raise ValueError(f"no numbers of operands: {str(text)[:80]}") from error
