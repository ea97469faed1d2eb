"""On import, MKL measures the clock of the CPU, so that processes forked afterwards need not.

MKL does so before its first verbose line, until its readings agree: 0.05 to 1 s of CPU, more on a
busy machine.
"""

import contextlib
import ctypes
from pathlib import Path

import torch

# A torch without MKL, or with one of its own library file, has no such function there.
with contextlib.suppress(OSError, AttributeError):
    ctypes.CDLL(
        str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so")
    ).mkl_serv_get_clocks_frequency()
