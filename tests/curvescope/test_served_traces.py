"""Cost curves from one trace of an inference server, whose steps have many batch sizes."""

import json

import pandas as pd
import pytest

from curvescope.analysis.decompose.served_steps import select_served
from curvescope.cli import main

from ..shared import load_script

write_trace = load_script("examples/serving/write_trace.py")
served_trace, jump_at_8 = write_trace.served_trace, write_trace.jump_at_8


def test_one_trace_of_a_server_is_a_sweep_whose_bend_has_its_layer(tmp_path, document_of):
    found = document_of("explain", served_trace(tmp_path / "trace.json", jump_at_8))
    assert [point["batch"] for point in found["curve"]] == [1, 2, 4, 8, 16]
    worst = found["anomalies"][0]
    assert (worst["functional"]["kind"], worst["functional"]["at"]) == ("excess", 4)
    assert worst["shares"][0]["label"] == "mlp_0 forward"
    assert worst["shares"][0]["real"]
    assert found["notes"][0].startswith("Decode steps only: 27 of 30; left out: 3 prefill steps")


@pytest.mark.slow
def test_what_to_do_next_names_the_file_and_not_where_it_was_imported(tmp_path, capsys):
    trace = served_trace(tmp_path / "trace.json", jump_at_8)
    assert main(["explain", str(trace)]) == 0
    assert f"curvescope explain {trace} 1" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.slow
def test_a_smooth_server_has_no_anomaly(tmp_path, document_of):
    found = document_of(
        "explain", served_trace(tmp_path / "trace.json", lambda batch: 100.0 + 20 * batch)
    )
    assert found["anomalies"] == []


def test_a_context_that_moves_with_the_batch_size_is_named(tmp_path, document_of):
    trace = served_trace(tmp_path / "trace.json", jump_at_8, context=lambda batch: 8192 // batch)
    note = document_of("explain", trace)["notes"][-1]
    assert (
        "The context per request moves with the batch: median 8192 tokens at 1, 512 at 16" in note
    )


def test_prefill_is_a_curve_over_tokens_of_its_own(tmp_path, document_of, refusal_of):
    trace = served_trace(tmp_path / "trace.json", jump_at_8)
    found = document_of("explain", trace, "--mode", "prefill")
    assert [point["batch"] for point in found["curve"]] == [512, 1024]
    assert "no step of the profile is of this mode; it has decode, prefill" in refusal_of(
        "explain", trace, "--mode", "mixed"
    )


@pytest.mark.parametrize("mode", ["decode", "prefill"])
def test_a_mode_is_refused_where_no_server_ran(mode, tmp_path, refusal_of):
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    kernel["args"] = {"correlation": 1, "device": 0, "stream": 7}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [kernel]}))
    assert "not those of an inference server" in refusal_of(
        "explain", tmp_path / "trace.json", "--mode", mode
    )


def test_a_profile_of_one_step_is_read_in_the_mode_that_it_has():
    columns = {
        "mode": ["mixed"],
        "batch": [2.0],
        "tokens": [96.0],
        "context_tokens": [100.0],
        "graph_batch": [None],
    }
    assert select_served(pd.DataFrame(columns)).axis.name == "tokens"
