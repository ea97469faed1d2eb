"""Types of tensors' elements in torch's records, each with its two names: of the scalar type, and of the C++ type."""

from __future__ import annotations

# Number and name of the scalar type (c10/core/ScalarType.h), name of the C++ type, bytes of an element.
_TYPES = (
    (0, "Byte", "unsigned char", 1),
    (1, "Char", "signed char", 1),
    (2, "Short", "short", 2),
    (3, "Int", "int", 4),
    (4, "Long", "long", 8),
    (4, "Long", "long int", 8),  # as some compilers spell it
    (5, "Half", "c10::Half", 2),
    (6, "Float", "float", 4),
    (7, "Double", "double", 8),
    (9, "ComplexFloat", "c10::complex<float>", 8),
    (10, "ComplexDouble", "c10::complex<double>", 16),
    (11, "Bool", "bool", 1),
    (15, "BFloat16", "c10::BFloat16", 2),
    (27, "UInt16", "unsigned short", 2),
    (28, "UInt32", "unsigned int", 4),
    (29, "UInt64", "unsigned long", 8),
)
_BYTES = {**{scalar: size for _, scalar, _, size in _TYPES}, **{name: size for _, _, name, size in _TYPES}}
BYTES_BY_NUMBER = {number: size for number, _, _, size in _TYPES}


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of this type, by either of its names; None for unknown types."""
    if (dtype or "").removeprefix("c10::").startswith("Float8"):
        return 1
    return _BYTES.get(dtype or "")
