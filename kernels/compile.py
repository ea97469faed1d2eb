"""Compile CUDA C++ to cubins with NVRTC, without GPU or CUDA toolkit, and with a cache.

Each architecture is compiled by the oldest installed NVRTC that supports it, so the same source
gives the same cubin on every machine. Linux x86-64 installs 11.8 by default: the last with Kepler
and the first with Hopper.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import site
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..base.errors import BackendMissingError, CurvescopeError
from ..profiling.recording.atomic_files import atomic_file

# Kepler to Hopper, the data centre and desktop parts.
ARCHITECTURES = (35, 37, 50, 52, 60, 61, 70, 75, 80, 86, 89, 90)
SOURCE_FOLDER = Path(__file__).parent / "cuda"
# wgmma is of this target alone, which NVRTC knows from 12.0 on.
HOPPER, HOPPER_NVRTC = "sm_90a", (12, 0)
CACHE_VARIABLE = "CURVESCOPE_CACHE"
_GET_NVRTC = (
    "NVRTC, NVIDIA's runtime compiler, is missing: `pip install nvidia-cuda-nvrtc-cu11` (Kepler to "
    "Hopper, 23 MB; Linux x86-64; the extra nvrtc), or put the lib folder of a CUDA toolkit on "
    "LD_LIBRARY_PATH."
)


@dataclass(frozen=True)
class CudaSource:
    """A CUDA C++ source with the headers beside it; both determine the cubin."""

    name: str  # of the file, without `.cu`
    text: str
    # name and text of every `.cuh` and `.h` in its folder
    headers: tuple[tuple[str, str], ...] = ()
    # the only one, e.g. sm_90a, for instructions that one architecture alone has
    target: str | None = None


def own_sources() -> tuple[CudaSource, ...]:
    """The sources of kernels/cuda, sorted by name."""
    return tuple(read_source(path) for path in sorted(SOURCE_FOLDER.glob("*.cu")))


def hopper_source(name: str) -> CudaSource:
    """A source for Hopper alone, from kernels/cuda/sm_90a."""
    return replace(read_source(SOURCE_FOLDER / HOPPER / f"{name}.cu"), target=HOPPER)


def read_source(path: Path) -> CudaSource:
    """Read a source and its headers from a file."""
    try:
        headers = sorted(p for p in path.parent.iterdir() if p.suffix in (".cuh", ".h"))
        texts = tuple((header.name, header.read_text(encoding="utf-8")) for header in headers)
        return CudaSource(path.stem, path.read_text(encoding="utf-8"), texts)
    except (OSError, UnicodeDecodeError) as error:
        raise CurvescopeError(f"{path} cannot be read as CUDA C++: {error}.") from error


def compile_source(source: CudaSource, architecture: int) -> bytes:
    """The cubin of a source for one architecture, e.g. 80 for sm_80, from the cache if it is there;
    a source includes no other headers than its own.
    """
    compiler = _compiler_of(source, architecture)
    path = _cache_path(source, architecture, compiler)
    with contextlib.suppress(OSError):
        return path.read_bytes()
    cubin, _ = compiler.compile(source, _options(source, architecture))
    _write_atomically(path, cubin)
    return cubin


def _options(source: CudaSource, architecture: int) -> tuple[str, ...]:
    target = source.target or f"sm_{architecture}"
    return (f"--gpu-architecture={target}", "--std=c++17")


def _compiler_of(source: CudaSource, architecture: int) -> Nvrtc:
    return compiler_for(architecture, HOPPER_NVRTC if source.target == HOPPER else (0, 0))


def _cache_path(source: CudaSource, architecture: int, compiler: Nvrtc) -> Path:
    """Path of the cubin, named by a hash of sources, headers, options and compiler version."""
    content = repr((source, _options(source, architecture), compiler.version_text))
    digest = hashlib.sha256(content.encode()).hexdigest()
    return cache_folder() / f"{source.name}-sm_{architecture}-{digest[:32]}.cubin"


def cache_folder() -> Path:
    """Folder of cached cubins: $CURVESCOPE_CACHE/cubins, or curvescope/cubins in the user's cache
    folder.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser() / "cubins"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "curvescope" / "cubins"


def _write_atomically(path: Path, content: bytes) -> None:
    """Write through a temporary name: other processes may write the same file or be killed while
    writing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(content)
    except (CurvescopeError, OSError) as error:
        cause = error.__cause__ or error
        why = getattr(cause, "strerror", cause)
        raise CurvescopeError(
            f"Compiled kernels cannot be cached in {path.parent}: {why}. "
            f"Set {CACHE_VARIABLE} to a writable folder."
        ) from error


class Nvrtc:
    """One NVRTC library, called through ctypes; `architectures` are its targets, e.g.
    80 for sm_80.
    """

    def __init__(self, path: Path) -> None:
        # NVRTC opens its builtins by name, which works once the file beside it is loaded; newer
        # wheels need this.
        for builtins in path.parent.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(builtins))
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        architectures = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", architectures)
        self.version = (major.value, minor.value)
        self.architectures = tuple(architectures)

    @property
    def version_text(self) -> str:
        """Version as text, e.g. 11.8."""
        return f"{self.version[0]}.{self.version[1]}"

    def compile(self, source: CudaSource, options: tuple[str, ...]) -> tuple[bytes, str]:
        """Compile a source; returns the cubin and the log, which is the message if the source does
        not compile.
        """
        names = _strings([name for name, _ in source.headers])
        texts = _strings([text for _, text in source.headers])
        code = (source.text.encode(), f"{source.name}.cu".encode())
        program = ctypes.c_void_p()
        reference = ctypes.byref(program)
        self._call("nvrtcCreateProgram", reference, *code, len(source.headers), texts, names)
        arguments = (len(options), _strings(options))
        try:
            with _restore_locale():
                status = self._library.nvrtcCompileProgram(program, *arguments)
            output = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0")
            log = output.decode(errors="replace")
            if status != 0:
                how = " ".join(options)
                raise CurvescopeError(
                    f"{source.name}.cu does not compile with {how}:\n{log.strip()}"
                )
            return self._bytes("nvrtcGetCUBIN", program), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, getter: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{getter}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(getter, program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            text = self._library.nvrtcGetErrorString(status).decode()
            raise CurvescopeError(f"{name} failed: {text} ({self.path}).")


def _strings(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*map(str.encode, texts))


@contextlib.contextmanager
def _restore_locale() -> Iterator[None]:
    """Restore the locale: NVRTC 11.8 leaves the thread in the C locale, in which Python opens files
    as ASCII.
    """
    c_library = ctypes.CDLL(None)
    c_library.uselocale.restype, c_library.uselocale.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    before = c_library.uselocale(None)
    try:
        yield
    finally:
        c_library.uselocale(before)


def compiler_for(architecture: int, least: tuple[int, int] = (0, 0)) -> Nvrtc:
    """The oldest installed NVRTC of at least a version that supports the architecture; an error
    says what there is.
    """
    supported: list[str] = []
    for compiler in map(_open, _library_paths()):
        if isinstance(compiler, str):
            supported.append(compiler)
        elif architecture in compiler.architectures and compiler.version >= least:
            return compiler
        else:
            first, *_, last = compiler.architectures
            supported.append(f"NVRTC {compiler.version_text} supports sm_{first} to sm_{last}")
    if not supported:
        raise BackendMissingError(_GET_NVRTC)
    here = "; ".join(supported)
    raise BackendMissingError(
        f"No installed NVRTC compiles for sm_{architecture}: {here}. Beyond sm_90: "
        "`pip install nvidia-cuda-nvrtc-cu12`; for Kepler: `pip install nvidia-cuda-nvrtc-cu11`."
    )


def can_compile_wgmma() -> bool:
    """Whether an installed NVRTC compiles for Hopper's own target."""
    return any(
        90 in compiler.architectures and compiler.version >= HOPPER_NVRTC
        for compiler in compilers()
    )


def compilers() -> tuple[Nvrtc, ...]:
    """Every installed NVRTC, oldest first."""
    libraries = map(_open, _library_paths())
    return tuple(library for library in libraries if isinstance(library, Nvrtc))


@cache
def _open(path: Path) -> Nvrtc | str:
    """The library, or why it is unusable (e.g. built for another platform, or older than 11.2 with
    calls missing).
    """
    try:
        return Nvrtc(path)
    except (OSError, AttributeError) as error:
        return f"{path} cannot be used ({error})"


def _library_paths() -> list[Path]:
    """Every NVRTC of NVIDIA's wheels and of CUDA toolkits, oldest version first; one path per
    version.
    """
    folders = []
    for entry in dict.fromkeys([*sys.path, *site.getsitepackages()]):
        # nvidia/cuda_nvrtc/lib up to CUDA 12, nvidia/cu13/lib from CUDA 13 on.
        folders += sorted(Path(entry or ".").glob("nvidia/*/lib"))
    listed = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders += map(Path, filter(None, listed))
    folders += [toolkit / "lib64" for toolkit in toolkit_folders()]
    folders.append(Path("/usr/lib/x86_64-linux-gnu"))
    by_version: dict[tuple[int, ...], Path] = {}
    for folder in folders:
        for path in folder.glob("libnvrtc.so.*"):
            parts = path.name.removeprefix("libnvrtc.so.").split(".")
            numbers = [int(part) for part in parts if part.isdigit()]
            # libnvrtc.so.11.8.89 is the file behind libnvrtc.so.11.2; either works.
            by_version.setdefault(tuple(numbers[:1]), path)
    return [by_version[version] for version in sorted(by_version)]


def toolkit_folders() -> list[Path]:
    """Possible folders of installed CUDA toolkits."""
    named = map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))
    installed = sorted(Path("/usr/local").glob("cuda*"))
    return [*map(Path, filter(None, named)), *installed]
