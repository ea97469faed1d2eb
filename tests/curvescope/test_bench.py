"""`curvescope bench` as a user meets it, and what the other commands make of its recordings."""

import json
import os
import subprocess
import sys

import pytest

from curvescope.cli import main
from curvescope.kernels import ceilings
from curvescope.kernels.levels import MemoryLevel
from curvescope.profiling.recording.store import open_recording

SHORT = ("--time-limit", "0.05")


@pytest.fixture(scope="module")
def swept(tmp_path_factory, command):
    folder = tmp_path_factory.mktemp("bench")
    axes = ("--axis", "n=4,8,16", "--axis", "m=16", "--axis", "k=16")
    done = command(
        "bench",
        "gemm",
        *axes,
        "--cache",
        "hot",
        *SHORT,
        "-o",
        "swept",
        "--json",
        cwd=folder,
        code=0,
    )
    return folder, json.loads(done.stdout)


def test_a_gemm_sweep_is_measured_and_verified(swept):
    _, document = swept
    (sweep,) = document["sweeps"]
    assert sweep["label"] == "gemm 16x*x16 NN fp32"
    assert [result["value"] for result in sweep["results"]] == [4, 8, 16]
    for result in sweep["results"]:
        assert result["outcome"] == "ok"
        assert result["error"] <= result["error_allowed"]
        assert result["flops"] == 2 * 16 * 16 * result["value"]
        assert result["best_ns"] <= result["median_ns"]
        # A busy machine may have no time for the six visits of an interval.
        assert (result["low_ns"] is None) == (result["high_ns"] is None) == (result["visits"] < 6)
        if result["visits"] >= 6:
            assert result["best_ns"] <= result["low_ns"] <= result["median_ns"] <= result["high_ns"]
        assert result["calls"] >= 1
        assert result["discarded"]["warm-up"] == result["visits"]


@pytest.mark.slow
def test_explain_and_breakdown_read_it(swept, command):
    folder, document = swept
    explained = json.loads(
        command("explain", "swept", "--pair", "4,16", "--json", cwd=folder).stdout
    )
    medians = {
        result["value"]: result["median_ns"] / 1e6 for result in document["sweeps"][0]["results"]
    }
    assert {p["batch"]: p["time_ms"]["value"] for p in explained["curve"]} == pytest.approx(
        medians,
        abs=1e-6,  # a recording holds whole nanoseconds
    )
    (excess,) = explained["anomalies"]
    total = sum(part["value"]["value"] for part in excess["shares"])
    assert total == pytest.approx(medians[16] - 4 * medians[4], abs=5e-6)
    broken = json.loads(
        command("breakdown", "swept", "--by", "op", "--at", "16", "--json", cwd=folder).stdout
    )
    (product,) = [row for row in broken["rows"] if row["label"] == "aten::mm"]
    assert product["flops"] == 2 * 16**3


def test_a_table_is_printed_and_families_get_folders_of_their_own(tmp_path, command):
    axes = ("--axis", "m=32", "--axis", "n=32", "--axis", "k=32", "--axis", "transpose=NN,TT")
    done = command("bench", "gemm", *axes, *SHORT, "-o", "two", cwd=tmp_path, code=0)
    assert "gemm 32x32x32 TT fp32" in done.stdout
    assert "Cold caches" in done.stdout
    rows = json.loads(command("runs", "two", "--json", cwd=tmp_path).stdout)["recordings"]
    assert [row["path"] for row in rows] == [
        "two/gemm_32x32x32_NN_fp32",
        "two/gemm_32x32x32_TT_fp32",
    ]


@pytest.mark.slow
def test_grouped_products_are_told_from_a_loop(tmp_path, capsys):
    axes = ("m=16", "tokens=32", "k=16", "experts=4")
    words = [word for axis in axes for word in ("--axis", axis)]
    where = ("--device", "cpu", *SHORT, "-o", str(tmp_path / "experts"), "--json")
    assert main(["bench", "experts", *words, *where]) == 0
    sweeps = json.loads(capsys.readouterr().out)["sweeps"]
    for sweep, algorithm in zip(sweeps, ("grouped", "loop"), strict=True):
        (result,) = sweep["results"]
        assert (result["outcome"], result["axes"]["algorithm"]) == ("ok", algorithm)
        assert result["kernels"] is None  # a CPU has none


def test_what_a_backend_cannot_do_is_an_outcome_not_an_error(tmp_path, command):
    done = command(
        "bench",
        "gemm",
        "--device",
        "cpu",
        "--precision",
        "tf32",
        "--axis",
        "n=8",
        "-o",
        "none",
        "--json",
        cwd=tmp_path,
        code=0,
    )
    ((result,),) = [sweep["results"] for sweep in json.loads(done.stdout)["sweeps"]]
    assert result["outcome"] == "unsupported"
    assert result["median_ns"] is None
    assert "TF32" in result["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gemm", "--axis", "q=1"), "the axes of gemm are m, n, k"),
        (("gemm", "--axis", "n=8..2"), "write sizes of at least 1"),
        (("gemm", "--precision", "fp6"), "choose from fp64"),
        (("gemm", "--backend", "abacus"), "choose from torch"),
        (("gemm", "--until", "0"), "a share of the median"),
        (("gemm", "--time-limit", "-1"), "more than 0"),
        (("frobnicate",), "invalid choice"),
    ],
)
def test_bad_input_says_what_to_do(tmp_path, command, arguments, message):
    done = command("bench", *arguments, cwd=tmp_path, code=2)
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_ceilings_are_kept_and_taken_along_by_later_recordings(
    tmp_path, monkeypatch, capsys, document_of
):
    pytest.importorskip("numba")
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(ceilings.GEMM_EXTENTS, "cpu", 64)
    monkeypatch.setattr(ceilings, "MEMORY_KINDS", ("copy",))  # numba takes a second to compile each
    levels = [MemoryLevel("L1", 32_768), MemoryLevel("DRAM", 1_000_000)]
    monkeypatch.setattr(ceilings, "memory_levels", lambda device: levels)
    options = ["--device", "cpu", "--time-limit", "0.01", "--json", "-o"]
    assert main(["bench", "ceilings", *options, str(tmp_path / "c")]) == 0
    kept = json.loads(capsys.readouterr().out)
    assert {"fp32", "fp64"} <= set(kept["compute"])
    assert set(kept["bandwidth"]) == {"L1", "DRAM"}
    assert kept["dram_bytes_per_s"] > 0
    assert kept["flops_per_s"] > 0
    assert {row["name"]: row["found"] for row in document_of("doctor")["checks"]}["ceilings"]
    axes = [word for name in "mnk" for word in ("--axis", f"{name}=16")]
    assert main(["bench", "gemm", *axes, *options, str(tmp_path / "later")]) == 0
    taken = json.loads((tmp_path / "later/recording.json").read_text())["ceilings"]
    assert taken["flops_per_s"] == kept["flops_per_s"]
    assert taken["measured_utc"] == kept["measured_utc"]


@pytest.mark.slow
def test_half_precision_without_instructions_for_it_has_no_library_call(tmp_path):
    """pytorch 146508: 44 to 81 times as slow as fp32 on such a CPU; oneDNN is told to use AVX2
    alone.

    It reads that once, so the command has a process of its own. How much slower depends on the CPU,
    which may have such instructions for other libraries.
    """
    axes = ("--axis", "m=256", "--axis", "k=256", "--axis", "n=256,512")
    options = ("--precision", "fp32,bf16", "--device", "cpu", "--time-limit", "0.1", "-o", "r")
    subprocess.run(
        [sys.executable, "-m", "curvescope.cli", "bench", "gemm", *axes, *options],
        cwd=tmp_path,
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        check=True,
    )
    names = {}
    for precision in ("fp32", "bf16"):
        recording = open_recording(tmp_path / "r" / f"gemm_256xnx256_NN_{precision}")
        names[precision] = set(recording.frame("kernels")["name"])
    assert all(name.startswith("aten::") for name in names["bf16"])
    assert not all(name.startswith("aten::") for name in names["fp32"])
