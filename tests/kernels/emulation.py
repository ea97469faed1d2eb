"""Our CUDA sources, built for the CPU by the C++ compiler and run by fibers (`cuda_shim.h`)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np

from curvescope.kernels.catalog import KERNELS
from curvescope.kernels.compile import SOURCE_FOLDER

SHIM_FOLDER = Path(__file__).parent
PAD = 4096  # NaNs around every array: a read beyond its end makes the result NaN, a write is seen


def compile_source(source: str, folder: Path, names=None, edit=lambda text: text):
    """Build SOURCE.so from kernels/cuda/SOURCE.cu in a folder; `edit` plants an error in the texts
    first.
    """
    for path in SOURCE_FOLDER.glob("*.cu*"):
        (folder / path.name).write_text(edit(path.read_text()))
    names = names or [
        kernel.name for kernel in KERNELS if kernel.source == source and kernel.since == 35
    ]
    assert all(re.search(rf"\b{name}\(", (folder / f"{source}.cu").read_text()) for name in names)
    entries = "\n".join(
        f'extern "C" bool emulate_{name}(const unsigned* grid, unsigned threads, bool falling, '
        f"void** arguments) {{"
        f" return emulation::launch<{name}>(grid, threads, falling, arguments); }}"
        for name in names
    )
    (folder / "entries.cpp").write_text(
        f'#include "cuda_shim.h"\n#include "{source}.cu"\n{entries}\n'
    )
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    command += ["-shared", "-fPIC", f"-I{SHIM_FOLDER}", str(folder / "entries.cpp")]
    subprocess.run([*command, "-o", str(folder / f"{source}.so")], check=True, timeout=600)


class Emulated:
    """The kernels of one source. `launch` is what cuLaunchKernel would do."""

    def __init__(self, source: str, folder: Path):
        self._library = ctypes.CDLL(str(folder / f"{source}.so"))
        self._threads = {kernel.name: kernel.block_threads for kernel in KERNELS}

    def launch(self, name, grid, *arguments, falling=False):
        """Run a kernel on guarded arrays and numpy scalars; False if only some threads of a block
        came to a barrier.
        """
        pointers = []
        for argument in arguments:
            if isinstance(argument, Guarded):
                pointers.append(ctypes.pointer(ctypes.c_void_p(argument.array.ctypes.data)))
            else:
                array = np.ascontiguousarray(argument)
                pointers.append(
                    ctypes.cast(ctypes.create_string_buffer(array.tobytes()), ctypes.c_void_p)
                )
        call = getattr(self._library, f"emulate_{name}")
        call.restype = ctypes.c_bool
        table = (ctypes.c_void_p * len(pointers))(
            *(ctypes.cast(p, ctypes.c_void_p) for p in pointers)
        )
        whole = call((ctypes.c_uint * 3)(*grid), self._threads[name], ctypes.c_bool(falling), table)
        for argument in arguments:
            if isinstance(argument, Guarded):
                assert argument.untouched_around(), f"{name} wrote outside of an array"
        return whole


class Guarded:
    """An array in the middle of NaNs, aligned to 16 bytes as device memory is."""

    def __init__(self, values):
        values = np.asarray(values)
        self._whole = np.frombuffer(
            bytearray(b"\xff" * (2 * PAD * 8 + values.nbytes + 16)), np.uint8
        )
        start = PAD * 8 + (-self._whole.ctypes.data) % 16
        self._inside = slice(start, start + values.nbytes)
        self.array = self._whole[self._inside].view(values.dtype).reshape(values.shape)
        self.array[...] = values

    def untouched_around(self):
        around = self._whole[: self._inside.start], self._whole[self._inside.stop :]
        return all((part == 255).all() for part in around)
