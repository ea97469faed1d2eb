"""Single values of profiles, which may be of any type."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

MOST_I32 = (1 << 31) - 1
MOST_U64 = (1 << 64) - 1
LATEST_NS = 1 << 62
REPEATS_ALIKE = 4 / 3  # largest ratio of times that are repeats of one another


def whole(value: Any, most: int = MOST_I32) -> int | None:
    """A whole number from 0 to `most`, or its digits; None for others."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    return None


def read_extents(what: str, texts: Iterable[Any]) -> dict[str, int | None]:
    """Columns of a launch's extents in x, y and z; `what` is grid or block."""
    return {f"{what}_{axis}": whole(text) for axis, text in zip("xyz", texts, strict=True)}


def signed(number: int) -> int:
    """The signed number with the same 64 bits: ids stay distinct, and all bits set are
    −1, no id.
    """
    if not -(1 << 63) <= number <= MOST_U64:
        raise OverflowError(number)
    if number >= 1 << 63:
        return number - (1 << 64)
    return number


def nanoseconds(microseconds: Any) -> int:
    """Time of an event in nanoseconds, exact to the last digit if given as text; raises for
    anything else.
    """
    if isinstance(microseconds, bool):
        raise TypeError(microseconds)
    if isinstance(microseconds, str):
        try:
            number = Decimal(microseconds)
        except InvalidOperation as error:
            raise ValueError(microseconds) from error
        if not number.is_finite() or abs(number) > LATEST_NS:  # before Decimal expands its digits
            raise OverflowError(microseconds)
        time = round(number * 1000)
    else:
        # separate from the fraction: the product of a large float would be rounded
        integer = int(microseconds)
        time = integer * 1000 + round((microseconds - integer) * 1000)
    if not -LATEST_NS < time < LATEST_NS:
        raise OverflowError(microseconds)
    return time
