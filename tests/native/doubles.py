"""Builds the test doubles of libcupti and of the CUDA driver with the headers that the dev extra
brings.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX", "c++")
_HEADERS = ("cuda_cupti", "cuda_runtime", "cuda_nvcc")


def headers() -> list[str]:
    """Options of the compiler for the headers of CUDA and CUPTI."""
    site = Path(sysconfig.get_paths()["purelib"], "nvidia")
    return [f"-isystem{site / name / 'include'}" for name in _HEADERS]


def build_doubles(folder: Path, cupti: str = "libcupti.so.12") -> None:
    """Put libcuda.so.1 and a libcupti of that name into `folder`."""
    options = [COMPILER, "-std=c++17", "-O0", "-shared", "-fPIC", "-pthread", *headers()]
    for sources, library in (("fake_cupti*.cpp", cupti), ("fake_cuda.cpp", "libcuda.so.1")):
        # Together: most of the time to compile goes to headers, which they then read once.
        text = "".join(f'#include "{path}"\n' for path in sorted(HERE.glob(sources)))
        command = [
            *options,
            f"-Wl,-soname,{library}",
            "-x",
            "c++",
            "-",
            "-o",
            str(folder / library),
            "-ldl",
        ]
        subprocess.run(command, check=True, input=text, text=True)
