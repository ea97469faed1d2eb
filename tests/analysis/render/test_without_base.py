"""What is not said: of a recording without steps, of times without an interval, of steps that are
not used.
"""

import shutil
import sqlite3

import pytest

from curvescope.cli import main

from ...shared import PROFILES


@pytest.fixture
def said(text_of):
    """Run a command; return what it prints, in one line."""
    return lambda *words: " ".join(text_of(*words).split())


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Three traces of one step each, of batch 32, 128 and 512."""
    path = tmp_path_factory.mktemp("traces") / "sweep"
    traces = [PROFILES / f"parttrans_bs{batch}.pt.trace.json.gz" for batch in (32, 128, 512)]
    assert (
        main([*map(str, ("import", "--as", "sweep", "--batch", "32,128,512", *traces, "-o", path))])
        == 0
    )
    return path


@pytest.mark.slow
def test_a_recording_without_known_steps_is_not_called_a_step(said, document_of, tmp_path):
    trace = PROFILES / "hta_alexnet_trace.json.gz"
    text = said("breakdown", trace)
    assert text.startswith("The whole recording spans 12920 ms; 99% is idle")
    assert "No step is known" in text
    assert "step of" not in text
    assert document_of("breakdown", trace)["unit"] == "recording"
    assert "1 step" not in said("import", trace, "-o", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    text = said("compare", tmp_path / "a", tmp_path / "b")
    assert "the whole recording" in text
    assert "a step of" not in text


def test_times_without_an_interval_get_no_verdict_but_their_difference_and_its_place(
    said, document_of, sweep
):
    text = said("explain", sweep, "--all")
    assert (
        "From batch 32 to 128 the whole recording goes from 342.7 to 977.5 ms (+635 ms), most of "
        "it idle" in text
    )
    assert "633 ms of the host in cudaLaunchKernel" in text
    assert "How many steps each holds is unknown, so nothing is tested" in text
    for verdict in ("noise ", "No anomaly", "not significant", "may hide"):
        assert verdict not in text.replace("none is noise", ""), verdict
    assert not document_of("explain", sweep)["findings"]


@pytest.mark.slow
def test_one_step_of_each_size_may_not_repeat(said, document_of, tmp_path):
    traces = [PROFILES / f"parttrans_bs{batch}.pt.trace.json.gz" for batch in (32, 128)]
    said(
        "import",
        "--as",
        "sweep",
        "--batch",
        "32,128",
        "--steps",
        "whole",
        *traces,
        "-o",
        tmp_path / "sweep",
    )
    text = said("explain", tmp_path / "sweep", "--all")
    assert "From batch 32 to 128 a step goes from 342.7 to 977.5 ms" in text
    assert "whether it repeats is unknown" in text
    document = document_of("explain", tmp_path / "sweep")
    assert {finding["verdict"] for finding in document["findings"]} == {"unknown"}


@pytest.mark.slow
def test_a_table_of_two_gpus_says_so(imported_profile, said, document_of, refusal_of):
    both = imported_profile("nsysai_h100_2gpu_1s.sqlite.gz")
    together = said("breakdown", both)
    assert "Of 2 GPUs together" in together
    assert "Busy are GPU 0 for 962.9 ms, GPU 1 for 962.8 ms" in together
    one = document_of("breakdown", both, "--gpu", "1")
    assert sum(row["time_ms"] for row in one["rows"] if row["label"] != "idle") == pytest.approx(
        962.8, abs=0.05
    )
    assert one["device"] == 1
    assert "Of GPU 1 alone" in said("breakdown", both, "--gpu", "1")
    assert "No work of GPU 7" in refusal_of("breakdown", both, "--gpu", "7")


def test_the_host_operators_of_a_trace_are_no_kernels(said, tmp_path):
    timeline = PROFILES / "dleebrown_anna_timeline_01.json.gz"
    assert "201 host operators" in said("import", timeline, "-o", tmp_path / "a")


def test_a_file_without_a_profile_is_refused_for_what_it_is(refusal_of, tmp_path):
    log, export = tmp_path / "ncu.csv", tmp_path / "empty.sqlite"
    log.write_text(
        "==PROF== Connected to process 2417 (/usr/bin/python3)\n==PROF== Disconnected from process "
        "2417\n"
    )
    with sqlite3.connect(export) as connection:
        connection.execute("create table StringIds (id integer, value text)")
        connection.execute("create table META_DATA_EXPORT (name text, value text)")
        connection.execute(
            "insert into META_DATA_EXPORT values ('EXPORT_PRODUCT_VERSION', '2024.1')"
        )
    for file, what in (
        (log, "a log of Nsight Compute without a table"),
        (export, "without GPU activity, CUDA calls"),
    ):
        assert what in refusal_of("import", file, "-o", tmp_path / "run")
        assert not (tmp_path / "run").exists()
