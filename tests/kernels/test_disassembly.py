"""Instructions of a cubin: read from listings, and counted in our own kernels where a disassembler
is here.
"""

import stat
from collections import Counter

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.kernels import compile as nvrtc
from curvescope.kernels.cubin import read_cubin

from ..tables import grade
from . import disassembly
from .disassembly import (
    compile_own,
    disassemble,
    instruction_mix,
    list_instructions,
    longest_loop,
    read_listing,
)

# Lines as nvdisasm writes them: dual issue on Maxwell, predicates, uniform instructions on Turing,
# padding at the end.
LISTING = """\t.headerflags\t@"EF_CUDA_SM52"

//--------------------- .text.first --------------------------
\t.section\t.text.first,"ax",@progbits
\t.sectioninfo\t@"SHI_REGISTERS=30"
.text.first:
        /*0008*/         {         MOV R1, c[0x0][0x20] ;
        /*0010*/                   S2R R0, SR_CTAID.X         }
        /*0018*/              @!P0 FFMA.FTZ R3, R0, R0, R2 ;
        /*0020*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*0028*/                   LDG.E.128 R4, [R2] ;
        /*0030*/               @P1 BRA `(.L_1) ;
.L_1:
        /*0038*/                   EXIT ;
.L_2:
        /*0040*/                   BRA `(.L_2) ;
        /*0048*/                   NOP ;
        /*0050*/                   NOP ;
//--------------------- .text.second --------------------------
\t.section\t.text.second,"ax",@progbits
.text.second:
        /*0000*/                   HMMA.16816.F32 R4, R2, R3, R4 ;
        /*0010*/                   MUFU.RCP R5, R6 ;
        /*0020*/                   NOVELTY R5, R6 ;
"""


def test_a_listing_is_read_per_kernel_and_its_instructions_are_told_by_what_they_do():
    first, second = read_listing(LISTING).values()
    assert first == ["MOV", "S2R", "FFMA", "UIADD3", "LDG", "BRA", "EXIT", "BRA"]
    assert second == ["HMMA", "MUFU", "NOVELTY"]
    assert read_listing("") == {}
    mixes = [instruction_mix(Counter(instructions)) for instructions in (first, second)]
    assert mixes[0] == {"control": 3, "move": 2, "fp32": 1, "integer": 1, "global": 1}
    assert mixes[1] == {"tensor": 1, "special": 1, "other": 1}  # what is not known is not guessed


def test_no_instruction_is_in_two_classes():
    names = [name for names in disassembly._CLASSES.values() for name in names.split()]
    assert len(names) == len(set(names))


def test_a_disassembler_that_refuses_is_quoted(tmp_path, monkeypatch):
    """The words of nvdisasm 13 for a cubin of Kepler; a guess from another architecture's tables
    would be worse.
    """
    tool = tmp_path / "nvdisasm"
    tool.write_text(
        '#!/bin/sh\necho "nvdisasm fatal   : CUDA architecture \\"SM35\\" is deprecated." '
        ">&2\nexit 1\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(disassembly, "find_disassemblers", lambda: (str(tool),))
    with pytest.raises(
        BackendMissingError, match=r'supports sm_35; .*"SM35" is deprecated.*CUDA 11\.8'
    ):
        list_instructions(b"", 35)
    monkeypatch.setattr(disassembly, "find_disassemblers", tuple)
    with pytest.raises(BackendMissingError, match="pip install nvidia-cuda-nvdisasm"):
        list_instructions(b"", 80)


# One of each set of instructions that the tests tell apart: CI lists these.
QUICK = (52, 60, 70, 75, 90)
EVERY_ARCHITECTURE = grade(nvrtc.ARCHITECTURES, quick=QUICK, in_ci=QUICK)


def listed(name, architecture):
    source = next(source for source in nvrtc.own_sources() if source.name == name)
    try:
        cubin = nvrtc.compile_source(source, architecture)
        return cubin, list_instructions(cubin, architecture)
    except BackendMissingError as error:
        pytest.skip(str(error))


@pytest.mark.first_rows(1)
@pytest.mark.usefixtures("kept_cubins")
@pytest.mark.parametrize("architecture", EVERY_ARCHITECTURE)
def test_the_peak_kernels_are_chains_of_their_instruction(architecture):
    """A round is 64 steps on 8 chains, of tensor cores 16: none is merged, and none added."""
    listed("launch", architecture)  # tells in no time whether it can be done
    found = {
        name: Counter(instructions)
        for name, instructions in listed("peak", architecture)[1].items()
    }
    assert found["peak_fp32"]["FFMA"] == 512
    assert found["peak_fp64"]["DFMA"] == 512
    if architecture >= 60:
        # from sm_80 on it also moves constants
        assert found["peak_fp16x2"]["HFMA2"] in range(512, 518)
    # 16 x 8 x 16 is one instruction from sm_80 on, two on sm_75, and on sm_70 two of four steps on
    # four quarters each.
    if architecture in (70, 75):
        assert found["peak_fp16_tensor"]["HMMA"] == {70: 1024, 75: 256}[architecture]
    if architecture >= 80:
        assert found["peak_fp64_tensor"]["DMMA"] == 128
        assert found["peak_bf16_tensor"]["HMMA"] == found["peak_tf32_tensor"]["HMMA"] == 128
        assert found["peak_fp16_tensor"]["HMMA"] == 128
    assert all("other" not in instruction_mix(counts) for counts in found.values())


def test_a_loop_goes_from_its_label_to_the_branch_back():
    """The endless one behind the end of a kernel is shorter."""
    lines = [
        ".L_1:",
        "        /*0000*/                   FFMA R0, R0, R1, R2 ;",
        "        /*0010*/               @P0 BRA `(.L_1) ;",
        ".L_2:",
        "        /*0020*/                   BRA `(.L_2) ;",
    ]
    listing = "\n".join(['\t.section\t.text.k,"ax",@progbits', *lines])
    assert longest_loop(listing, "k") == ["FFMA", "BRA"]


@pytest.mark.slow
@pytest.mark.usefixtures("kept_cubins")
@pytest.mark.parametrize("architecture", [80, 90, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_of_100_issue_slots_of_a_peak_99_are_its_own(architecture, tmp_path):
    """A scheduler issues one instruction a clock, so those of the loop take from the peak; but of
    fp64, whose instructions take two clocks or more.
    """
    try:
        listing = disassemble(compile_own("peak", architecture, tmp_path), architecture)
    except BackendMissingError as error:
        pytest.skip(str(error))
    for kernel, instruction in (
        ("peak_fp32", "FFMA"),
        ("peak_fp16x2", "HFMA2"),
        ("peak_bf16x2", "HFMA2"),
    ):
        loop = longest_loop(listing, kernel)
        assert loop.count(instruction) >= 512
        assert loop.count(instruction) >= 0.99 * len(loop), (kernel, Counter(loop))


@pytest.mark.first_rows(1)
@pytest.mark.usefixtures("kept_cubins")
@pytest.mark.parametrize("architecture", EVERY_ARCHITECTURE)
def test_the_memory_kernels_load_four_times_before_they_store(architecture):
    """One load in flight for each of an SM's 2048 threads is 32 KB; 8 TB/s over 148 SMs and 800 ns
    take 43 KB.
    """
    cubin, kernels = listed("memory", architecture)
    for name in ("copy", "scale", "add", "triad"):
        accesses = [one for one in kernels[f"memory_{name}"] if one in ("LDG", "STG")]
        stores = 4 if name in ("copy", "scale") else 2
        assert accesses == ["LDG"] * 4 + ["STG"] * stores, name
    # Of the unrolled loop, behind what is left over by four: four loads of four numbers, then their
    # sums.
    read = [one for one in kernels["memory_read"] if one in ("LDG", "FADD")]
    assert read[-20:] == ["LDG"] * 4 + ["FADD"] * 16
    assert all(kernel.local_bytes == 0 for kernel in read_cubin(cubin))  # no register is spilled
