"""The door that names pass on their way to a reader: what would steer a terminal, or turn text around, becomes a sign.

Names of kernels, layers, networks and devices come from files of strangers. Recordings keep them as they are.
"""

from __future__ import annotations

_KEPT = "\n\t"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# C0 and DEL have pictures of their own, as wide as a letter.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {0x7F: "\u2421"}
# C1 steers terminals too; the rest are marks, embeddings, overrides and isolates of direction, and line separators.
_TURNING = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_OTHERS = dict.fromkeys((*range(0x80, 0xA0), *_TURNING, *range(0xD800, 0xE000)), _REPLACEMENT)
_SIGNS = _PICTURES | _OTHERS


def visible(text: str) -> str:
    """The text with a sign in place of each character that a terminal or browser would obey; lines and tabs stay."""
    return text if text.isascii() and text.isprintable() else text.translate(_SIGNS)
