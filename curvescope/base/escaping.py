"""Escapes control, bidirectional and invisible characters in names before they are displayed.

Names of kernels, layers, networks and devices come from third-party files. Recordings keep them
unchanged. An agent may read, and obey, characters that a person does not see.
"""

from __future__ import annotations

_KEPT = "\n\t"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# C0 and DEL have their own symbols in Unicode, one character wide.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
_PICTURES[0x7F] = "\u2421"
# C1 controls terminals too; the others are direction marks, embeddings, overrides, isolates, and
# line separators.
_TURNING = (0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
# Characters without a picture: joiners, fillers, tags, variation selectors, signs of mathematics,
# music and annotation.
_INVISIBLE = (
    *(0xAD, 0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x200E)),
    *(*range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFFC), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B)),
    *range(0xE0000, 0xE1000),
)
_REPLACED = (*range(0x80, 0xA0), *_TURNING, *_INVISIBLE, *range(0xD800, 0xE000))
_OTHERS = dict.fromkeys(_REPLACED, _REPLACEMENT)
_SIGNS = _PICTURES | _OTHERS


def escape_controls(text: str) -> str:
    """Replace each character that a terminal would interpret, or nobody would see, by a symbol.

    Line breaks and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_SIGNS)
