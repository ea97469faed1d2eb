"""Builds the virtual card, one library that is libcudart, libcuda, cuBLAS, cuDNN, CUPTI and NVML at
once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "src"
DOUBLES = HERE.parent / "native"  # of libcupti, whose rules of buffers hold here too
LIBRARY = "libvirtual_card.so"
# What programs open by name is the same file, so a process has one card.
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1", "libcupti.so.13")
COMPILER = os.environ.get("CXX", "c++")
_OPTIONS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Werror")
# Only the public functions of the libraries that it plays are seen from outside, and the C
# library's that know time.
_OF_HOST = (
    "clock_gettime; gettimeofday; time; nanosleep; clock_nanosleep; usleep; sleep; poll; "
    "epoll_wait; select; sem_clockwait; sem_timedwait; pthread_cond_clockwait; "
    "pthread_cond_timedwait; pthread_mutex_timedlock; pthread_exit; getrusage; open64; stat64; "
    "sigaction; signal; pthread_sigmask; sigprocmask; execve; execv; execvp; execvpe; "
    "posix_spawn; posix_spawnp"
)
_PUBLIC = f"{{ global: cu*; __cu*; nvml*; nccl*; virtual_card_*; {_OF_HOST}; local: *; }};\n"
# Of CUDA's headers Triton's wheel has those that NVIDIA's lack (crt/).
_HEADERS = ("nvidia/cu13/include", "nvidia/cudnn/include", "triton/backends/nvidia/include")


def headers(site: Path) -> list[Path]:
    """Folders of the public headers in the packages of a CUDA build of torch."""
    return [site / folder for folder in _HEADERS]


def list_calls(cupti_headers: Path) -> str:
    """The names of CUDA's calls by CUPTI's numbers, as C++."""
    lines = ["#pragma once", "struct NamedCall { unsigned int id; const char* name; };"]
    for api, title in (("runtime", "Runtime"), ("driver", "Driver")):
        text = (cupti_headers / f"cupti_{api}_cbid.h").read_text()
        found = re.findall(rf"CUPTI_{api.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
        calls = [
            f'{{{number}, "{name}"}},' for name, number in found if name not in ("INVALID", "SIZE")
        ]
        lines += [f"constexpr NamedCall k{title}Calls[] = {{", *calls, "};"]
    return "\n".join(lines) + "\n"


def build(folder: Path, site: Path | None = None) -> Path:
    """Put the library and its other names into `folder`, unless they are there; several processes
    may ask at once.

    Args:
        folder: where they are kept until a source changes.
        site: the site-packages with torch's CUDA build; None: those of this Python.
    """
    site = site or Path(sysconfig.get_paths()["purelib"])
    folder.mkdir(parents=True, exist_ok=True)
    library, built_of = folder / LIBRARY, folder / "built-of"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _made_of(site)
        if not built_of.exists() or built_of.read_text() != wanted:
            _compile(folder, site)
            built_of.write_text(wanted)
    return library


def _made_of(site: Path) -> str:
    """A number that changes with the sources, the compiler's options and the folders of the
    headers.
    """
    own = (path for room in (SOURCES, DOUBLES) for path in sorted(room.iterdir()))
    texts = [path.read_bytes() for path in own if path.suffix in (".cpp", ".h", ".inc")]
    options = " ".join([COMPILER, *_OPTIONS, _PUBLIC, *map(str, headers(site))])
    return hashlib.sha256(b"\0".join([options.encode(), *texts])).hexdigest()


def _compile(folder: Path, site: Path) -> None:
    (folder / "calls.inc").write_text(list_calls(site / "nvidia/cu13/include"))
    (folder / "public.map").write_text(_PUBLIC)
    # Together: most of the time to compile goes to headers, which they then read once.
    sources = [*sorted(DOUBLES.glob("fake_cupti*.cpp")), *sorted(SOURCES.glob("*.cpp"))]
    text = "".join(f'#include "{path}"\n' for path in sources)
    command = [COMPILER, *_OPTIONS, f"-I{folder}", *(f"-isystem{path}" for path in headers(site))]
    command += [
        "-static-libstdc++",
        "-static-libgcc",
        f"-Wl,--version-script={folder / 'public.map'}",
    ]
    # A program that has loaded the earlier library keeps it.
    partial = folder / f"{LIBRARY}.partial"
    subprocess.run(
        [*command, "-x", "c++", "-", "-o", str(partial), "-ldl"],
        check=True,
        input=text,
        text=True,
    )
    partial.replace(folder / LIBRARY)
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(LIBRARY)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
