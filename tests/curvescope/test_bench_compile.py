"""`curvescope bench compile` as a user meets it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from curvescope.base.errors import BackendMissingError
from curvescope.commands.bench import compile as bench_compile
from curvescope.kernels import compile as nvrtc


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a cache of its own in it."""
    try:
        nvrtc.compiler_for(35)
    except BackendMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def test_kernels_are_compiled_once_and_described_for_each_architecture(here, command):
    asked = ("bench", "compile", "launch", "latency", "--arch", "sm_35,sm_90", "--json")
    first, again = (json.loads(command(*asked, cwd=here).stdout) for _ in range(2))
    assert (first["cubins"], first["from_cache"], again["from_cache"]) == (4, 0, 4)
    assert first["kernels"] == again["kernels"]
    rows = {(row["kernel"], row["architecture"]): row for row in first["kernels"]}
    assert set(rows) == {
        (k, a) for k in ("chase", "chase_link", "empty", "spin") for a in ("sm_35", "sm_90")
    }
    empty = rows["empty", "sm_90"]
    assert (empty["block_threads"], empty["occupancy"], empty["shared_bytes"]) == (1024, 1.0, 0)
    assert empty["spill_store_bytes"] == 0
    assert empty["instructions"] is None
    chase = rows["chase", "sm_35"]
    assert (chase["max_threads"], chase["blocks_per_sm"], chase["limiters"]) == (1, 16, ["blocks"])


@pytest.mark.slow
def test_a_table_of_a_users_own_kernel(here, command):
    """64 threads on sm_86: 16 blocks hold 32 of 48 warps; larger blocks would fill it."""
    (here / "mine.cu").write_text(
        'extern "C" __global__ void mine(float* a) { a[threadIdx.x] *= 2; }'
    )
    done = command(
        "bench", "compile", "mine.cu", "--arch", "86,80,89", "--block", "64", cwd=here, code=0
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "mine  mine.cu, blocks of 64"
    (row,) = (line for line in lines if line.startswith("86"))
    assert "67%" in row
    assert "blocks" in row
    assert "block 96, 128, 192 …" in row
    assert max(map(len, lines)) <= 80


def test_architectures_that_no_nvrtc_here_knows_are_left_out_with_a_word(monkeypatch, capsys):
    """As where only a newer NVRTC is: all that can be done is done, unless the architectures were
    asked for.
    """

    class NewerNvrtc:
        path, version_text, architectures = "libnvrtc.so.13", "13.0", (75, 80, 90)

    monkeypatch.setattr(nvrtc, "_library_paths", lambda: ["libnvrtc.so.13"])
    monkeypatch.setattr(nvrtc, "Nvrtc", NewerNvrtc)
    monkeypatch.setattr(nvrtc, "_open", lambda _: NewerNvrtc())
    assert bench_compile._list_architectures() == (75, 80, 90)
    told = capsys.readouterr().err
    assert "sm_35, sm_37, sm_50, sm_52, sm_60, sm_61, sm_70, sm_86, sm_89 skipped" in told
    assert "NVRTC 13.0 supports sm_75 to sm_90" in told
    monkeypatch.setattr(nvrtc, "_library_paths", list)
    with pytest.raises(BackendMissingError, match="pip install nvidia-cuda-nvrtc-cu11"):
        bench_compile._list_architectures()


@pytest.mark.slow
def test_an_instruction_mix_that_cannot_be_had_is_said(here):
    nowhere = {**os.environ, "PATH": "/nonexistent"}
    words = ("bench", "compile", "launch", "--arch", "sm_35", "--mix", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "curvescope.cli", *words],
        cwd=here,
        env=nowhere,
        capture_output=True,
        text=True,
    )
    rows = json.loads(done.stdout)["kernels"]
    assert {row["kernel"] for row in rows} == {"empty", "spin"}
    for row in rows:
        assert row["instruction_mix"] is None
        assert "No installed disassembler supports sm_35" in row["instructions_missing"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("gemmm",), "write a .cu file, or one of convolution, gemm"),
        (("nowhere.cu",), "cannot be read"),
        (("launch", "--arch", "kepler"), "write architectures like sm_35,sm_80"),
        (("launch", "--arch", "sm_20"), "NVRTC 11.8 supports sm_35 to sm_90"),
        (("launch", "--block", "1025"), "1 to 1024 threads"),
        (("wrong.cu", "--arch", "sm_60"), "does not compile"),
    ],
)
def test_bad_input_is_told_with_what_to_do(here, command, options, message):
    (here / "wrong.cu").write_text("__global__ void wrong() { undeclared = 1; }")
    done = command("bench", "compile", *options, cwd=here, code=2)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_interruption_keeps_what_is_done(here, command, monkeypatch):
    """It comes when the first of 24 cubins is done.

    A process that it ends while it writes leaves a hidden file, which nothing reads.
    """
    compile_many = nvrtc.compile_many

    def interrupted(pairs):
        for compiled in compile_many(pairs):
            signal.raise_signal(signal.SIGINT)
            yield compiled

    monkeypatch.setattr(nvrtc, "compile_many", interrupted)
    done = command("bench", "compile", "launch", "latency", cwd=here, code=130)
    assert "Traceback" not in done.stderr
    cubins = here / "cache" / "cubins"
    kept = list(cubins.glob("*.cubin"))
    assert 0 < len(kept) < 24
    whole = [path for path in cubins.iterdir() if not path.name.startswith(".")]
    assert {path.suffix for path in whole} <= {".cubin", ".log"}
