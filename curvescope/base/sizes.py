"""Lists of sizes, as options have them: `1,2,4`, `1..32` or `1..32*2` (times 2), `1..16+1` or
`32..160:8` (steps), and such parts joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .errors import CurvescopeError

FORM = "sizes of at least 1, e.g. 1,2,4, 1..32 (doubling), 1..81*3 or 1..16+1"
_SIZE = re.compile(r"\d{1,18}")
_RANGE = re.compile(r"(\d{1,18})\.\.(\d{1,18})(?:([*+:])(\d{1,18}))?")
_MOST = 100_000  # sizes of a range
_LISTED = 12


def parse_sizes(option: str, text: str) -> tuple[int, ...]:
    """Parse a list of sizes, in the order that is written; `option` is for the message."""
    sizes: list[int] = []
    for part in map(str.strip, text.split(",")):
        if _SIZE.fullmatch(part):
            sizes.append(int(part))
        elif spread := parse_range(part):
            sizes += spread
        else:
            raise CurvescopeError(f"{option} {text}: write {FORM}.")
    if min(sizes) < 1:
        raise CurvescopeError(f"{option} {text}: write {FORM}.")
    return tuple(sizes)


def parse_range(text: str) -> Sequence[int]:
    """The sizes of a range, e.g. `1..32`, `1..81*3` or `1..16+1`; empty if it is none."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return ()
    first, last = int(match[1]), int(match[2])
    how, step = match[3] or "*", int(match[4] or 2)
    is_product = how == "*"
    if first < 1 or step < 1 + is_product:
        return ()
    if not is_product:
        return range(first, last + 1, step)[:_MOST]
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= step
    return sizes


def double(first: int, last: int) -> tuple[int, ...]:
    """`first`, doubled up to `last`."""
    return tuple(parse_range(f"{first}..{last}"))


def list_sizes(sizes: Sequence[int]) -> str:
    """The sizes in words; of many the first, the last and their number."""
    if len(sizes) <= _LISTED:
        return ", ".join(map(str, sizes))
    return f"{', '.join(map(str, sizes[:3]))}, … {sizes[-1]} ({len(sizes)} sizes)"
