"""Escapes control and bidirectional characters in names before they are displayed.

Names of kernels, layers, networks and devices come from third-party files. Recordings keep them
unchanged.
"""

from __future__ import annotations

_KEPT = "\n\t"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# C0 and DEL have their own symbols in Unicode, one character wide.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {
    0x7F: "\u2421"
}
# C1 controls terminals too; the others are direction marks, embeddings, overrides, isolates, and
# line separators.
_TURNING = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_OTHERS = dict.fromkeys((*range(0x80, 0xA0), *_TURNING, *range(0xD800, 0xE000)), _REPLACEMENT)
_SIGNS = _PICTURES | _OTHERS


def escape_controls(text: str) -> str:
    """Replace each character that a terminal or browser would interpret by a symbol; line breaks
    and tabs stay.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_SIGNS)
