"""Counts the instructions in the code of a cubin's kernels by class, with an installed
disassembler.

nvdisasm drops old architectures together with CUDA. 13 begins at sm_75, 12 at sm_50, and 11.8
covers all up to sm_90.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from curvescope.base.errors import BackendMissingError
from curvescope.base.programs import find_program
from curvescope.kernels.compile import (
    SOURCE_FOLDER,
    compile_source,
    own_sources,
    toolkit_folders,
)

# Class of an instruction by its name without suffixes. The names are those of "CUDA Binary
# Utilities", tables of the instruction sets of Kepler to Hopper. A leading U marks an instruction
# that is uniform for a warp (since Turing).
_CLASSES = {
    "fp32": "FADD FADD32I FMUL FMUL32I FFMA FFMA32I FSETP FSET FMNMX FSEL FCMP FCHK FSWZADD RRO",
    "fp64": "DADD DMUL DFMA DSETP DSET DMNMX",
    "fp16": "HADD2 HADD2_32I HMUL2 HMUL2_32I HFMA2 HFMA2_32I HSETP2 HSET2 HMNMX2",
    "special": "MUFU",
    "integer": "IADD IADD3 IADD32I ISUB IMUL IMUL32I IMAD IMAD32I IMADSP XMAD ISCADD ISCADD32I LEA "
    "LOP LOP3 LOP32I "
    "SHF SHL SHR BFE BFI BMSK BREV FLO POPC IABS IMNMX ISETP ISET ICMP VIADD VIADDMNMX VIMNMX "
    "VABSDIFF IDP IDE SGXT",
    "convert": "F2F F2I I2F I2I FRND F2FP I2FP F2IP I2IP",
    "move": "MOV MOV32I SEL PRMT SHFL S2R S2UR CS2R R2UR P2R R2P PSETP PSET PLOP3 CSETP VOTE VOTEU "
    "R2B B2R",
    "global": "LD ST LDG STG ATOM ATOMG RED LDU CCTL LDGSTS",
    "shared": "LDS STS ATOMS LDSM STSM LDSLK STSCUL",
    "local": "LDL STL CCTLL",
    "constant": "LDC LDCU",
    "texture": "TEX TLD TLD4 TXQ TEXS TLDS SULD SUST SUATOM SURED",
    "control": "BRA BRX BRXU JMP JMX CALL CAL RET EXIT KILL SSY SYNC PBK BRK PCNT CONT PRET BSSY "
    "BSYNC BREAK BMOV "
    "WARPSYNC YIELD NANOSLEEP BPT BAR DEPBAR MEMBAR FENCE ERRBAR TEXDEPBAR ACQBULK RPCMOV LEPC",
}
_CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),", re.MULTILINE)
# Example: `/*0008*/ @!P0 FFMA.FTZ R1, ...`; a brace marks an instruction that is issued together
# with its neighbour.
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+[{}]?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE
)
_LABEL, _TARGET = re.compile(r"(\.L\w+):"), re.compile(r"`\((\.L\w+)\)")
GET_NVDISASM = (
    "for sm_75 and newer `pip install nvidia-cuda-nvdisasm`; for older ones the nvdisasm of CUDA "
    "11.8 (in Debian 12's nvidia-cuda-toolkit), on PATH"
)


def list_instructions(cubin: bytes, architecture: int) -> dict[str, list[str]]:
    """The instructions of each kernel in their order; without suffixes, and without NOP, which is
    padding.

    Raises:
        BackendMissingError: no installed disassembler supports this architecture.
    """
    return read_listing(disassemble(cubin, architecture))


def disassemble(cubin: bytes, architecture: int) -> str:
    """The listing of a cubin, as `nvdisasm -c` writes it; an error as of `list_instructions`."""
    refusals = []
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        for tool in find_disassemblers():
            command = [tool, "-c", file.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode == 0 and read_listing(done.stdout):
                return done.stdout
            errors = done.stderr.strip().splitlines() or ["no code in its listing"]
            refusals.append(f"{tool}: {errors[-1]}")
    why = "; ".join([f"sm_{architecture}", *refusals])
    raise BackendMissingError(
        f"No installed disassembler supports {why}. To get one: {GET_NVDISASM}."
    )


def read_listing(listing: str) -> dict[str, list[str]]:
    """The instructions of each kernel, from the text of `nvdisasm -c`."""
    by_kernel = {}
    for name, text in pair_sections(_SECTION, listing):
        instructions = _INSTRUCTION.findall(text)
        by_kernel[name] = [instruction for instruction in instructions if instruction != "NOP"]
    return by_kernel


def pair_sections(header: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """The name in each header, and the text until the next header."""
    _, *parts = header.split(text)
    return zip(parts[::2], parts[1::2], strict=True)


def compile_own(name: str, architecture: int, folder: Path) -> bytes:
    """The cubin of one of our sources, made by nvcc in the folder where no NVRTC here knows the
    architecture.

    Raises:
        BackendMissingError: nvcc does not know it either.
    """
    source = next(source for source in own_sources() if source.name == name)
    try:
        return compile_source(source, architecture)
    except BackendMissingError:
        compiler = find_program("nvcc")
        if compiler is None:
            raise
    made = folder / "made.cubin"
    command = [compiler, "-std=c++17", f"-arch=sm_{architecture}", "-cubin", "-o", made]
    path = SOURCE_FOLDER / f"{name}.cu"
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendMissingError(done.stderr)
    return made.read_bytes()


def longest_loop(listing: str, kernel: str) -> list[str]:
    """The instructions between a label and the last branch back to it."""
    (text,) = (text for name, text in pair_sections(_SECTION, listing) if name == kernel)
    labels: dict[str, int] = {}
    instructions: list[str] = []
    loops: list[list[str]] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif (found := _INSTRUCTION.match(line)) and found[1] != "NOP":
            instructions.append(found[1])
            target = _TARGET.search(line)
            if target and target[1] in labels:
                loops.append(instructions[labels[target[1]] :])
    return max(loops, key=len)


def instruction_mix(instructions: Mapping[str, int]) -> dict[str, int]:
    """Count per class: fp32, fp64, fp16, tensor, special, integer, convert, move, control, other,
    and each memory.
    """
    mix: Counter[str] = Counter()
    for name, count in instructions.items():
        mix[_class_of(name)] += count
    return dict(mix.most_common())


def _class_of(name: str) -> str:
    if name.endswith("MMA"):  # HMMA, IMMA, DMMA, HGMMA and similar
        return "tensor"
    return _CLASS_OF.get(name) or _CLASS_OF.get(name.removeprefix("U")) or "other"


@cache
def find_disassemblers() -> tuple[str, ...]:
    """Every installed nvdisasm, once: on PATH, in NVIDIA's and Triton's wheels, and in CUDA
    toolkits.
    """
    packages = [Path(entry) for entry in sys.path if os.path.isabs(entry)]
    candidates: list[Path] = []
    for package in packages:
        candidates += sorted(package.glob("nvidia/*/bin/nvdisasm"))
    candidates += [package / "triton/backends/nvidia/bin/nvdisasm" for package in packages]
    candidates += [toolkit / "bin/nvdisasm" for toolkit in toolkit_folders()]
    tools = {}
    if on_path := find_program("nvdisasm"):
        tools[os.path.realpath(on_path)] = on_path
    for tool in candidates:
        if tool.is_file() and os.access(tool, os.X_OK):
            tools.setdefault(os.path.realpath(tool), str(tool))
    return tuple(tools.values())
