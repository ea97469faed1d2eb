"""Reads the resources of a cubin's kernels from the ELF file: registers, shared and local memory.

NVIDIA publishes no specification: the layout follows `readelf` and the listing of `nvdisasm`, which
names every attribute. Every value is tested against ptxas's report of the same kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..base.errors import CurvescopeError

_EM_CUDA = 190
_STT_FUNC = 2
_STO_CUDA_ENTRY = 0x10
# Attributes of .nv.info; nvdisasm prints these names.
_EIATTR_MAX_THREADS = 0x05
_EIATTR_FRAME_SIZE = 0x11
_EIATTR_CBANK_PARAM_SIZE = 0x19
_EIATTR_REGCOUNT = 0x2F
# In this format the last two bytes of the four-byte header are the length of the payload; in the
# others, the value.
_EIFMT_SVAL = 0x04
# From sm_90 on a kernel's shared section begins with the 1 KB of shared memory that the system
# reserves in every block (CUDA C++ Programming Guide, "Shared Memory" of compute capability 8.x and
# 9.0); sm_80 to sm_89 reserve it too, but their section does not contain it. Neither ptxas nor
# `shared_bytes` counts it.
_RESERVED_IN_SECTION_FROM = 90
_RESERVED_SHARED_BYTES = 1024


@dataclass(frozen=True)
class KernelResources:
    """Resource use of one kernel."""

    name: str  # of the entry; mangled unless the source declares it extern "C"
    registers_per_thread: int
    shared_bytes: int  # static, per block; the dynamic shared memory of a launch is not in a cubin
    local_bytes: int  # stack frame per thread: arrays indexed at run time, and spilled registers
    parameter_bytes: int
    max_threads: int | None  # largest block by `__launch_bounds__`; None without


class _Section(NamedTuple):
    size: int
    content: bytes


def read_cubin(data: bytes) -> tuple[KernelResources, ...]:
    """The kernels of a cubin by name.

    Raises:
        CurvescopeError: the data is no cubin, is truncated, or has an unknown layout.
    """
    try:
        return _read(data)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise CurvescopeError("This cubin is truncated or damaged: compile it again.") from error


def _read(data: bytes) -> tuple[KernelResources, ...]:
    if data[:5] != b"\x7fELF\x02" or struct.unpack_from("<H", data, 18)[0] != _EM_CUDA:
        raise CurvescopeError("This is not a cubin: an ELF64 file for NVIDIA GPUs was expected.")
    # The architecture is the lowest byte of e_flags up to CUDA 12 (ABI version 7), the second from
    # CUDA 13 on (8).
    abi_version, (flags,) = data[8], struct.unpack_from("<I", data, 48)
    if abi_version not in (7, 8):
        raise CurvescopeError(
            f"ABI version {abi_version} of cubins is unknown; known are 7 and 8 (CUDA 11 to 13)."
        )
    architecture = int(flags >> (8 * (abi_version - 7)) & 0xFF)
    sections = dict(_sections(data))
    by_symbol = _by_symbol(sections)
    entries = sorted(_entries(sections), key=lambda entry: entry[1])
    return tuple(
        _resources(name, by_symbol[symbol], sections, architecture) for symbol, name in entries
    )


def _size(sections: Mapping[str, _Section], name: str) -> int:
    return sections[name].size if name in sections else 0


def _sections(data: bytes) -> Iterator[tuple[str, _Section]]:
    segments, table = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, _, count, names_index = struct.unpack_from("<HHHHH", data, 54)
    if segments + segment_size * segment_count > len(
        data
    ):  # they come last, so a file cut there lacks only them
        raise IndexError
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index) for index in range(count)
    ]
    names_at = headers[names_index][4]
    for name, kind, _, _, offset, size, *_ in headers:
        in_file = 0 if kind == 8 else size  # SHT_NOBITS, as shared memory: a size, no content
        if offset + in_file > len(data):
            raise IndexError
        yield _string(data, names_at + name), _Section(size, data[offset : offset + in_file])


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _entries(sections: Mapping[str, _Section]) -> Iterator[tuple[int, str]]:
    """Symbol and name of each function that the host can launch."""
    strings = sections[".strtab"].content
    for symbol, fields in enumerate(struct.iter_unpack("<IBBHQQ", sections[".symtab"].content)):
        name, info, other = fields[:3]
        if info & 0xF == _STT_FUNC and other & _STO_CUDA_ENTRY:
            yield symbol, _string(strings, name)


def _attributes(section: _Section | None) -> Iterator[tuple[int, int, bytes]]:
    """Attribute, its two bytes, and what follows them."""
    content, at = section.content if section else b"", 0
    while at < len(content):
        form, attribute, value = struct.unpack_from("<BBH", content, at)
        length = value if form == _EIFMT_SVAL else 0
        yield attribute, value, content[at + 4 : at + 4 + length]
        at += 4 + length


def _by_symbol(sections: Mapping[str, _Section]) -> dict[int, dict[int, int]]:
    """Symbol to attribute to value, of those that stand in the module's own `.nv.info`."""
    attributes: dict[int, dict[int, int]] = {}
    for attribute, _, payload in _attributes(sections.get(".nv.info")):
        if attribute in (_EIATTR_REGCOUNT, _EIATTR_FRAME_SIZE):
            symbol, value = struct.unpack("<II", payload)
            attributes.setdefault(symbol, {})[attribute] = value
    return attributes


def _resources(
    name: str, by_symbol: Mapping[int, int], sections: Mapping[str, _Section], architecture: int
) -> KernelResources:
    max_threads, parameter_bytes = None, 0
    for attribute, value, payload in _attributes(sections.get(f".nv.info.{name}")):
        if attribute == _EIATTR_MAX_THREADS:
            x, y, z = struct.unpack("<III", payload)
            max_threads = x * y * z
        elif attribute == _EIATTR_CBANK_PARAM_SIZE:
            parameter_bytes = value
    shared_bytes = _size(sections, f".nv.shared.{name}")
    if shared_bytes and architecture >= _RESERVED_IN_SECTION_FROM:
        shared_bytes -= _RESERVED_SHARED_BYTES
    return KernelResources(
        name=name,
        registers_per_thread=by_symbol[_EIATTR_REGCOUNT],
        shared_bytes=shared_bytes,
        local_bytes=by_symbol[_EIATTR_FRAME_SIZE],
        parameter_bytes=parameter_bytes,
        max_threads=max_threads,
    )
