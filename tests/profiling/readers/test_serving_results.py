"""Results of benchmarks of servers become tables of times.

Built from the formats of the sources; no server ran.
"""

import json

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

SIZES = (1, 2, 4, 8, 16, 32)


def step_ms(requests):
    """Time per output token: 20 ms for a step of 16 requests, and 1.5 times what a line says
    beyond.
    """
    return (10 + 0.6 * requests) * (1.5 if requests > 16 else 1)


def vllm(requests, factor=1.0, **changed):
    """One result of `vllm bench serve`."""
    return {
        "date": "20260801-101010", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "/home/ada/secret-model", "tokenizer_id": "/home/ada/secret-model",
        "num_prompts": 100, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": requests,
        "duration": 41.24, "completed": 100, "failed": 0, "total_input_tokens": 99744 + requests,
        "total_output_tokens": 12800, "request_throughput": 2.43, "request_goodput": None,
        "output_throughput": 2425.01, "total_token_throughput": 4843.81,
        "generated_texts": ["a\\u0000 NaN secret text"], "mean_ttft_ms": 60.0 + 9 * requests,
        "median_ttft_ms": 60.1, "std_ttft_ms": 5.0, "p99_ttft_ms": 99.0,
        "mean_tpot_ms": factor * step_ms(requests), "median_tpot_ms": 6.5, "std_tpot_ms": 0.2,
        "p99_tpot_ms": float("nan"), "mean_itl_ms": 6.4, **changed,
    }  # fmt: skip


def sweep():
    """What `vllm bench sweep` saves of a combination: its runs, with what it changed behind their
    number.
    """
    return [
        vllm(size, 1 + 0.002 * run, run_number=run, max_num_seqs=64, quantization="secret-scheme")
        for size in SIZES
        for run in range(3)
    ]


def aiperf(requests):
    metric = {"unit": "ms", "p50": 1.0, "std": 1.0}
    return {
        "schema_version": "1.0", "aiperf_version": "0.13.0",
        "input_config": {"endpoint": {"model_names": ["secret-model"]},
                         "phases": [{"type": "warmup", "concurrency": 99}, {"concurrency": requests}]},  # noqa: E501
        "was_cancelled": False,
        "inter_token_latency": {**metric, "avg": step_ms(requests)},
        "time_to_first_token": {**metric, "avg": 90.0},
        "input_sequence_length": {"unit": "tokens", "avg": 512.0},
        "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    }  # fmt: skip


def guidellm(sizes):
    def of(mean):
        return {
            "successful": {"mean": mean, "median": mean, "std_dev": 1.0, "count": 90},
            "errored": {},
        }

    return {
        "metadata": {"version": 1}, "args": {"target": "http://gpu7:8000"},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "concurrent", "streams": size}},
                "metrics": {"request_concurrency": of(size * 0.97), "time_to_first_token_ms": of(80.0),  # noqa: E501
                            "inter_token_latency_ms": of(step_ms(size)), "prompt_token_count": of(256.0),  # noqa: E501
                            "output_token_count": of(128.0)},
                "requests": {"successful": [{"output": "secret text"}]},
            }
            for size in sizes
        ],
    }  # fmt: skip


def trtllm(requests):
    return {
        "engine": {"model": "secret-model", "version": "1.3.0", "backend": "Pytorch"},
        "world_info": {"tp_size": 1, "max_batch_size": 64},
        "request_info": {"num_requests": 100, "avg_num_concurrent_requests": requests - 0.2,
                         "avg_input_length": 1024.0, "avg_output_length": 128.0},
        "performance": {"total_latency_ms": 1e4, "request_throughput_req_s": 2.0},
        "streaming_metrics": {"avg_ttft_ms": 50.0, "avg_tpot_ms": step_ms(requests)},
    }  # fmt: skip


def lines(results):
    return "".join(json.dumps(one) + "\n" for one in results)


def printed(requests, before=False):
    """What `vllm bench serve` prints; earlier versions tell the limit of concurrency before it."""
    limit = f"Maximum request concurrency: {requests}\n"
    inside = f"Maximum request concurrency:             {requests}        \n"
    return (
        "Traffic request rate: inf\n" + (limit if before else "")
        + "100%|\u2588\u2588\u2588| 100/100 [02:30<00:00,  4.71s/it]\n"
        + "============ Serving Benchmark Result ============\n"
        + "Successful requests:                     100       \n" + ("" if before else inside)
        + "Benchmark duration (s):                  150.87    \n"
        + f"Total input tokens:                      {99744 + requests}     \n"
        + "Total generated tokens:                  12800     \n"
        + "Request throughput (req/s):              0.21      \n"
        + "---------------Time to First Token----------------\n"
        + "Mean TTFT (ms):                          80.00   \n"
        + "-----Time per Output Token (excl. 1st token)------\n"
        + f"Mean TPOT (ms):                          {step_ms(requests):.2f}     \n"
        + "P99 TPOT (ms):                           99.63     \n"
        + "==================================================\n"
    )  # fmt: skip


SAVED = {
    "printed": lambda: "".join(map(printed, SIZES)),
    "printed, the limit before it": lambda: "".join(printed(size, before=True) for size in SIZES),
    "printed, as a comment": lambda: "".join(
        f"# {line}\n" for size in SIZES for line in printed(size).splitlines()
    ),
    "vllm bench serve --append-result": lambda: lines(map(vllm, SIZES)),
    "vllm bench sweep": lambda: json.dumps(sweep(), indent=4),
    "GuideLLM": lambda: json.dumps(guidellm(SIZES)),
    "AIPerf": lambda: json.dumps([aiperf(size) for size in SIZES]),
    "trtllm-bench": lambda: lines(map(trtllm, SIZES)),
}


def steps_of(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    recording = open_recording(import_profile(path, tmp_path / "run").path)
    steps = recording.frame("steps")
    return steps[steps["problem"].str.startswith("time per output token")]


@pytest.mark.parametrize("tool", SAVED)
def test_each_result_is_a_time_over_its_requests(tool, tmp_path):
    steps = steps_of(tmp_path, SAVED[tool]())
    assert steps["problem"].nunique() == 1
    first = steps[steps["round"] == 0]
    assert first["batch"].tolist() == list(SIZES)
    assert first["duration_ns"].tolist() == [round(1e6 * step_ms(size)) for size in SIZES]
    assert "secret" not in str([path.read_bytes() for path in (tmp_path / "run").rglob("*.*")])


def test_a_printed_result_without_a_limit_has_the_concurrency_that_it_tells(tmp_path):
    """SGLang's, which was asked for a rate of requests."""
    text = (
        "============ Serving Benchmark Result ============\n"
        "Backend:                                 sglang-oai\n"
        "Max request concurrency:                not set\n"
        "Successful requests:                     1920\n"
        "Request throughput (req/s):              8.98\n"
        "Concurrency:                             1418.05\n"
        "Mean E2E Latency (ms):                   157842.85\n"
        "Mean TPOT (ms):                          562.90\n"
    )
    steps = steps_of(tmp_path, text)
    assert steps["batch"].tolist() == [1418]
    assert steps["problem"].tolist() == ["time per output token, SGLang"]


def test_runs_of_a_sweep_are_repeats_and_its_settings_name_curves(tmp_path):
    other = [{**one, "max_num_seqs": 32, "quantization": "other"} for one in sweep()]
    steps = steps_of(tmp_path, json.dumps([*sweep(), *other]))
    assert set(steps["round"]) == {0, 1, 2}
    assert sorted(set(steps["problem"])) == [
        f"time per output token, vLLM, max_num_seqs={most}, quantization: value {number}, "
        "prompts of about 997 and outputs of 128 tokens"
        for most, number in ((32, 2), (64, 1))
    ]


def test_models_of_one_file_are_curves_by_number(tmp_path):
    results = [
        vllm(size, factor, model_id=f"secret-{factor}") for size in SIZES for factor in (1, 1.2)
    ]
    steps = steps_of(tmp_path, lines(results))
    names = {problem.split(", ")[2]: rows for problem, rows in steps.groupby("problem")}
    assert {name: len(rows) for name, rows in names.items()} == {"model 1": 6, "model 2": 6}
    assert set(steps["round"]) == {0}


ORDERS = {
    "model by model": [(size, factor) for factor in (1, 2) for size in SIZES],
    "size by size": [(size, factor) for size in SIZES for factor in (1, 2)],
    "one lacks a size": [
        (size, factor) for factor in (1, 2) for size in SIZES if size * factor > 1
    ],
}


@pytest.mark.parametrize("order", ORDERS)
def test_results_of_one_concurrency_that_differ_by_a_third_are_no_repeats(order, tmp_path):
    """Printed results name no model; six on one page were one curve, ± 107 %."""
    text = "".join(printed(size).replace(*tpot(size, factor)) for size, factor in ORDERS[order])
    steps = steps_of(tmp_path, text)
    assert set(steps["round"]) == {0}
    for _, rows in steps.groupby("problem"):
        factors = rows["duration_ns"] / 1e6 / rows["batch"].map(step_ms)
        assert factors.max() == pytest.approx(factors.min(), rel=0.01)


def tpot(size, factor):
    """The printed time per token, and another one."""
    return f"{step_ms(size):.2f}", f"{factor * step_ms(size):.2f}"


def test_a_disturbed_run_of_a_sweep_stays_a_repeat(tmp_path):
    results = sweep()
    results[1]["mean_tpot_ms"] *= 2
    assert steps_of(tmp_path, json.dumps(results))["problem"].nunique() == 1


def test_other_lengths_of_prompts_are_another_curve(tmp_path):
    results = [
        vllm(size, total_input_tokens=tokens) for tokens in (10_000, 99_000) for size in SIZES
    ]
    assert steps_of(tmp_path, lines(results))["problem"].nunique() == 2


def test_without_a_stated_concurrency_it_follows_from_rate_and_latency(tmp_path):
    result = vllm(8, max_concurrency=None, request_throughput=4.0, mean_e2el_ms=2000.0)
    assert steps_of(tmp_path, json.dumps(result))["batch"].tolist() == [8]


def test_results_of_two_rates_without_a_limit_of_concurrency_are_one_curve(tmp_path):
    """Requests in flight are rate times latency: 8 a second of 4 s, and 22 of 6.5 s."""
    results = [
        vllm(1, max_concurrency=None, request_throughput=per_s, mean_e2el_ms=whole_ms,
             mean_tpot_ms=token_ms)
        for per_s, whole_ms, token_ms in ((8.0, 4000.0, 13.5), (22.0, 6500.0, 23.5))
    ]  # fmt: skip
    steps = steps_of(tmp_path, lines(results))
    assert steps["batch"].tolist() == [32, 143]
    assert steps["duration_ns"].tolist() == [13_500_000, 23_500_000]
    assert steps["problem"].nunique() == 1


def test_a_result_of_aiperf_without_its_configuration_has_rate_times_latency_in_flight(tmp_path):
    """The means of a run of AIPerf 0.10 with two requests at once, from another project's test."""
    result = {
        "schema_version": "1.3", "aiperf_version": "0.10.0",
        "request_throughput": {"unit": "requests/sec", "avg": 0.8233},
        "request_latency": {"unit": "ms", "avg": 2413.5},
        "time_to_first_token": {"unit": "ms", "avg": 195.84},
        "inter_token_latency": {"unit": "ms", "avg": 35.2},
    }  # fmt: skip
    steps = steps_of(tmp_path, json.dumps(result))
    assert steps["batch"].tolist() == [2]
    assert steps["duration_ns"].tolist() == [35_200_000]


def test_a_bend_of_the_runs_of_a_sweep_is_found(tmp_path, document_of):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(sweep()))
    document = document_of("explain", path)
    (curve,) = [one for one in document["series"] if one["problem"].startswith("time per output")]
    found = [(one["before"], one["at"]) for one in curve["events"] if one["certainty"] == "is"]
    assert found == [(16, 32)]


def test_files_of_one_result_each_make_one_curve(tmp_path, text_of):
    for size in SIZES:
        (tmp_path / f"b{size}.json").write_text(json.dumps(vllm(size)))
    text_of("import", *(tmp_path / f"b{size}.json" for size in SIZES), "-o", tmp_path / "run")
    steps = open_recording(tmp_path / "run").frame("steps")
    assert sorted(set(steps["batch"])) == list(SIZES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            lines([{**trtllm(4), "streaming_metrics": {}}]),
            "no result with both the requests in flight",
        ),
        (json.dumps(vllm(4, max_concurrency=-3, request_throughput=-1)), "no result with both"),
        (lines(map(vllm, SIZES))[:-300], "it is broken JSON"),
    ],
)
def test_what_has_no_point_is_refused(text, said, tmp_path):
    with pytest.raises(CurvescopeError, match=said):
        steps_of(tmp_path, text)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_texts_of_all_requests_are_skipped(tmp_path):
    """A result with 30 MB of saved texts."""
    result = vllm(8, generated_texts=["x" * 30_000] * 1000)
    assert steps_of(tmp_path, json.dumps(result))["batch"].tolist() == [8]


def test_the_command_explains_a_file_of_results(tmp_path, capsys):
    path = tmp_path / "results.json"
    path.write_text(lines(map(vllm, SIZES)))
    assert main(["explain", str(path)]) == 0
    assert "time per output token" in capsys.readouterr().out


def trtllm_printed(concurrent, token_ms):
    """What trtllm-bench prints, as in the text of NVIDIA/TensorRT-LLM 7104 and its documents."""
    details = (
        "= REQUEST DETAILS \nNumber of requests:             6144\n"
        f"Number of concurrent requests:  {concurrent}\n"
        "Average Input Length (tokens):  1024.0000\nAverage Output Length (tokens): 1024.0000\n"
    )
    return (
        f"{details if concurrent else ''}"
        "= PERFORMANCE OVERVIEW \nRequest Throughput (req/sec):                     2.0000\n"
        "Average request latency (ms):                 \t  8000.0000\n"
        "Average time-to-first-token [TTFT] (ms):   162.6706\n"
        f"Average time-per-output-token [TPOT] (ms): {token_ms}\n[TPOT] AVERAGE: 9.1\n"
    )


def test_what_trtllm_bench_prints_is_read(tmp_path):
    """Without the details of the requests, rate times latency are in flight."""
    text = trtllm_printed("4.2000", 7.5) + trtllm_printed("8.0000", 9) + trtllm_printed("", 12)
    steps = steps_of(tmp_path, text)
    tokens = steps[steps["problem"].str.startswith("time per output token")]
    assert tokens["batch"].tolist() == [4, 8, 16]
    assert tokens["duration_ns"].tolist() == [7_500_000, 9_000_000, 12_000_000]


def test_the_table_of_one_batch_has_a_curve_for_each_length(tmp_path):
    """sgl-project/sglang 32480."""
    text = (
        "|   batch size |   input len |   latency (s) |   input throughput (tok/s) |   output "
        "throughput (tok/s) |\n|---|---|---|---|---|\n"
        "|            1 |        4096 |          7.09 |                    16203.5 |   149.72 |\n"
        "|            1 |        8192 |          7.66 |                    10501.7 |   148.92 |\n"
        "|            2 |        4096 |          8.07 |                    28527.8 |   263.18 |\n"
    )
    steps = steps_of(tmp_path, text)
    one = steps[steps["problem"].str.endswith("input_len=4096")]
    assert one["batch"].tolist() == [1, 2]
    assert one["duration_ns"].tolist() == [round(1e9 / 149.72), round(2e9 / 263.18)]
    assert steps["problem"].nunique() == 2


def test_saved_results_between_other_lines_are_read(tmp_path):
    """sgl-project/sglang 12389."""
    lines_between = "".join(
        f"max_prefill:8192,torch_compile:False\n{json.dumps(vllm(n))}\n\n" for n in (1, 2)
    )
    steps = steps_of(tmp_path, lines_between + '{"request_throughput": 3.2, "cut o')
    assert set(steps["batch"]) == {1, 2}


def test_the_limit_that_sglang_misspelt_is_the_requests_in_flight(tmp_path):
    """sgl-project/sglang 6681."""
    text = printed(16).replace("Max request concurrency", "Max reqeuest concurrency").replace(
        "Maximum request concurrency", "Max reqeuest concurrency"
    )  # fmt: skip
    assert set(steps_of(tmp_path, text)["batch"]) == {16}
