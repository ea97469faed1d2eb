import ctypes
import re
import time
from pathlib import Path

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.profiling import native

from ..tables import ask_each


def test_the_clock_is_pythons_monotonic_clock():
    before = time.monotonic_ns()
    read = native.clock_ns()
    assert before <= read <= time.monotonic_ns()


def test_an_installation_without_the_library_says_how_to_get_it():
    with pytest.raises(BackendMissingError, match="C\\+\\+17 compiler"):
        native.library_path("libnowhere.so")


def test_the_library_lies_beside_the_package():
    assert native.library_path().name == native.LIBRARY_NAME


@ask_each(
    ("name", "demangled"),
    [
        ("_ZN2at6kernelIfLi4EEEvPT_", "void at::kernel<float, 4>(float*)"),
        ("_ZN2at6kernelIfLi4EEEvPT_.kd", "void at::kernel<float, 4>(float*)"),  # ROCm
        (
            "_ZN5aiter4normIDF16bEEvPT_",
            "void aiter::norm<__bf16>(__bf16*)",
        ),  # a type that libraries learnt in 2023
        ("_Zno name", "_Zno name"),
        ("gemm", "gemm"),
    ],
)
def test_names_of_the_linker_are_demangled(name, demangled):
    assert native.demangle(name).replace("std::bfloat16_t", "__bf16") == demangled


HEADERS = Path(__file__).parents[2] / "native" / "include" / "curvescope"
FUNCTION = re.compile(r"CURVESCOPE_API ([\w:<>* ]+?[ *])(curvescope_\w+)\(([^)]*)\)")
WHOLE = {
    "int": ctypes.c_int,
    "std::uint8_t": ctypes.c_uint8,
    "std::int32_t": ctypes.c_int32,
    "void": None,
}
WHOLE["std::int64_t"] = ctypes.c_int64
POINTERS = {ctypes.c_void_p, ctypes.c_char_p}


def agrees(c_type, declared):
    """ctypes sees neither the header nor the library's types: an argument of the wrong width is
    silently cut.
    """
    if "*" in c_type:
        return declared in POINTERS or issubclass(declared, ctypes._Pointer)
    return declared is WHOLE[c_type.strip()]


def test_the_boundary_is_declared_as_the_header_has_it():
    functions = FUNCTION.findall((HEADERS / "collector.h").read_text())
    assert len(functions) >= 3
    for result, name, arguments in functions:
        declared = getattr(native.load(), name)
        assert agrees(result, declared.restype), name
        types = [re.sub(r"\w+$", "", part.strip()) for part in arguments.split(",") if part.strip()]
        assert len(types) == len(declared.argtypes), name
        assert all(
            agrees(c_type, one) for c_type, one in zip(types, declared.argtypes, strict=True)
        ), name
