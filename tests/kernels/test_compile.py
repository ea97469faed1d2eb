"""CUDA C++ to cubins with no GPU: what is kept, what is compiled again, and what is said when it
cannot be done.
"""

import dataclasses
import locale
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.kernels import compile as nvrtc
from curvescope.kernels.catalog import HOPPER_KERNELS, KERNELS
from curvescope.kernels.cubin import read_cubin

SMALL = nvrtc.CudaSource(
    "small",
    '#include "step.h"\nextern "C" __global__ void small(int* a) { *a += STEP; }',
    (("step.h", "#define STEP 1"),),
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(tmp_path))
    try:
        nvrtc.compiler_for(35)
    except BackendMissingError as error:
        pytest.skip(str(error))
    return tmp_path / "cubins"


def test_what_was_compiled_is_kept_by_content(cache):
    first = nvrtc.compile_source(SMALL, 60)
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == first
    kept.write_bytes(b"kept")
    assert nvrtc.compile_source(SMALL, 60) == b"kept"
    other_header = dataclasses.replace(SMALL, headers=(("step.h", "#define STEP 2"),))
    other_text = dataclasses.replace(SMALL, text=SMALL.text.replace("+=", "-="))
    for changed in (other_header, other_text):
        assert nvrtc.compile_source(changed, 60) != b"kept"
    assert nvrtc.compile_source(SMALL, 61) != b"kept"
    assert len(list(cache.glob("*.cubin"))) == 4


def test_compiling_leaves_the_encoding_of_files_as_it_was():
    """NVRTC 11.8 switches the thread to the C locale: the next open() in a UTF-8 session would read
    ASCII.
    """
    before = locale.nl_langinfo(locale.CODESET)
    assert nvrtc.compile_source(SMALL, 70)
    assert locale.nl_langinfo(locale.CODESET) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture", [35, 60, 70, 80, pytest.param(52, marks=pytest.mark.exhaustive)]
)
def test_every_kernel_of_the_catalog_is_in_its_cubin_from_its_first_architecture_on(
    kept_cubins, architecture
):
    sources = [
        source for source in nvrtc.own_sources() if source.name not in ("gemm", "convolution")
    ]
    assert {source.name for source in nvrtc.own_sources()} == {kernel.source for kernel in KERNELS}
    for source in sources:
        cubin = nvrtc.compile_source(source, architecture)
        found = {kernel.name: kernel.max_threads for kernel in read_cubin(cubin)}
        expected = {
            kernel.name: kernel.block_threads
            for kernel in KERNELS
            if kernel.source == source.name and kernel.since <= architecture
        }
        assert found == expected


def test_an_error_in_a_source_is_told_in_the_compilers_words():
    wrong = nvrtc.CudaSource("wrong", "__global__ void wrong() { undeclared = 1; }")
    message = r'(?s)wrong\.cu does not compile with .*sm_75.*"undeclared" is undefined'
    with pytest.raises(CurvescopeError, match=message):
        nvrtc.compile_source(wrong, 75)


def test_an_nvrtc_that_cannot_be_loaded_is_named_and_passed_over(tmp_path, monkeypatch):
    broken = tmp_path / "libnvrtc.so.11.2"
    broken.write_text("not a library")
    good = nvrtc.compiler_for(80)
    monkeypatch.setattr(nvrtc, "_library_paths", lambda: [broken, good.path])
    assert nvrtc.compiler_for(80).path == good.path
    assert [compiler.path for compiler in nvrtc.compilers()] == [good.path]
    for paths, message in (
        ([broken], r"libnvrtc\.so\.11\.2 cannot be used"),
        ([], "install nvidia-cuda-nvrtc-cu11"),
    ):
        monkeypatch.setattr(nvrtc, "_library_paths", lambda paths=paths: paths)
        with pytest.raises(BackendMissingError, match=message):
            nvrtc.compiler_for(80)


def test_an_architecture_that_no_nvrtc_here_knows_is_refused_with_what_they_know():
    with pytest.raises(BackendMissingError, match=r"sm_20: NVRTC 11\.8 supports sm_35 to sm_90"):
        nvrtc.compile_source(SMALL, 20)


def test_a_cache_that_cannot_be_written_is_named_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(CurvescopeError, match="Set CURVESCOPE_CACHE to a writable folder"):
        nvrtc.compile_source(SMALL, 60)


def test_a_source_is_read_with_the_headers_beside_it(tmp_path):
    (tmp_path / "mine.cu").write_text("extern int x;")
    (tmp_path / "mine.cuh").write_text("// header")
    assert nvrtc.read_source(tmp_path / "mine.cu") == nvrtc.CudaSource(
        "mine", "extern int x;", (("mine.cuh", "// header"),)
    )
    with pytest.raises(CurvescopeError, match="cannot be read"):
        nvrtc.read_source(Path("nowhere") / "mine.cu")


@pytest.mark.slow
def test_hoppers_own_source_is_compiled_for_its_target_by_a_compiler_that_knows_it(monkeypatch):
    older, newer = (
        SimpleNamespace(version=v, architectures=(80, 90), version_text="")
        for v in ((11, 8), (12, 4))
    )
    monkeypatch.setattr(nvrtc, "_library_paths", lambda: [older, newer])
    monkeypatch.setattr(nvrtc, "_open", lambda path: path)
    source = nvrtc.hopper_source("peak_wgmma")
    assert nvrtc._options(source, 90)[0] == "--gpu-architecture=sm_90a"
    assert nvrtc._compiler_of(source, 90) is newer
    assert nvrtc.compiler_for(90) is older
    assert source.name not in {one.name for one in nvrtc.own_sources()}


@pytest.mark.slow
def test_the_peaks_of_hopper_compile_without_spills(tmp_path):
    """By the toolkit's nvcc, which knows the target from CUDA 12.0 on."""
    if (compiler := shutil.which("nvcc")) is None:
        pytest.skip("no nvcc on PATH")
    path = nvrtc.SOURCE_FOLDER / nvrtc.HOPPER / "peak_wgmma.cu"
    options = (
        "-std=c++17",
        "-arch=sm_90a",
        "-Xptxas",
        "-v",
        "-cubin",
        "-o",
        str(tmp_path / "peak.cubin"),
    )
    done = subprocess.run(
        [compiler, *options, str(path)], capture_output=True, text=True, check=False
    )
    if "Unsupported gpu architecture" in done.stderr:
        pytest.skip("this nvcc does not know sm_90a")
    assert done.returncode == 0, done.stderr
    assert (
        "serialized" not in done.stderr
    )  # ptxas' warning C7510: the products would wait for each other
    kernels = {kernel.name for kernel in read_cubin((tmp_path / "peak.cubin").read_bytes())}
    assert kernels == {kernel.name for kernel in HOPPER_KERNELS}
    assert done.stderr.count("0 bytes spill stores, 0 bytes spill loads") == len(kernels)
