"""Logs of inference servers: which steps are read, what the log tells of its server, and what is
refused.
"""

import gzip
import json
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from ...server_logs import iteration, llama_waves, sglang_log, vllm_start

LOGS = Path(__file__).parents[2] / "data" / "server_logs"


def imported(tmp_path, text):
    path = tmp_path / "server.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return open_recording(import_profile(path, tmp_path / "run").path)


def rows(recording):
    return recording.frame("steps")


def test_the_lines_that_vllm_published_are_steps(tmp_path):
    recording = open_recording(import_profile(LOGS / "vllm_iterations.log", tmp_path / "run").path)
    steps = rows(recording)
    assert steps["duration_ns"].tolist() == [10_990_000, 10_950_000, 10_790_000]
    assert steps["batch"].tolist() == [20, 20, 20]
    assert set(steps["mode"]) == {"decode"}
    assert recording.meta["server"]["lines"] == "steps"


def test_prefill_decode_and_mixed_steps_are_told_apart(tmp_path):
    text = iteration(0, 0, 30, 2, 900) + iteration(1, 5, 9) + iteration(2, 5, 40, 1, 600)
    steps = rows(imported(tmp_path, text))
    assert steps["mode"].tolist() == ["prefill", "decode", "mixed"]
    assert steps["batch"].tolist() == [2, 5, 6]
    assert steps["tokens"].tolist() == [900, 5, 605]


def test_facts_are_read_and_names_are_not_copied(tmp_path):
    further = (
        "\n(EngineCore_DP0 pid=9) INFO [kv_cache_utils.py:1314] GPU KV cache size: 188,640 tokens"
    )
    text = vllm_start(further=further) + iteration(0, 5, 9, after=", GPU KV cache usage: 10.0%")
    recording = imported(tmp_path, text)
    server = recording.meta["server"]
    assert server["most_requests"] == 100
    assert server["captured_sizes"][-1] == 256
    assert (server["version"], server["tensor_parallel"], server["eager"]) == ("0.14.0", 4, False)
    assert rows(recording)["context_tokens"].tolist() == [18_864]
    written = (recording.path / "recording.json").read_text()
    assert "ada" not in written
    assert "gpu7" not in written


def test_steps_of_an_engine_that_waits_for_others_do_not_count(tmp_path):
    text = iteration(0, 5, 9) + iteration(1, 5, 2, after=" (dummy)") + iteration(2, 0, 1)
    assert len(rows(imported(tmp_path, text))) == 1


def test_rates_of_a_load_that_changes_are_left_out_and_counted(tmp_path):
    recording = open_recording(import_profile(LOGS / "sglang_decode.log", tmp_path / "run").path)
    steps = rows(recording)
    assert steps["batch"].tolist() == [11]  # 12 requests before it; all other lines saw more change
    assert steps["duration_ns"].tolist() == [pytest.approx(1e9 * 11.5 / 475.19, abs=1)]
    assert steps["averaged_steps"].tolist() == [40]
    assert recording.meta["lost"]["rates_of_changing_load"]["count"] == 6
    assert recording.meta["server"]["server"] == "SGLang"


def test_prompt_tokens_between_two_rates_are_tokens_of_their_steps(tmp_path):
    text = sglang_log([10, 10, 10], lambda requests: 9, 32, prompts=[(1, 4000)])
    steps = rows(imported(tmp_path, text))
    assert steps["tokens"].tolist() == [110, 10]  # 4,000 prompt tokens over 40 steps


def test_what_says_whether_a_graph_ran_is_kept(tmp_path):
    server = imported(tmp_path, sglang_log([31, 32, 33, 34], lambda requests: 9, 32)).meta["server"]
    assert server["captured_sizes"] == [1, 2, 4, 8, 12, 16, 24, 32]
    assert (server["largest_with_graph"], server["smallest_without_graph"]) == (32, 33)
    assert server["largest_captured"] == 32
    assert server["most_requests"] == 4096


VLLM_STATS = (
    "INFO 11-26 10:00:00 [loggers.py:127] Engine 000: Avg prompt throughput: {0} tokens/s, Avg "
    "generation throughput: {1} tokens/s, Running: {2} reqs, Waiting: 0 reqs, GPU KV cache usage: "
    "3.1%, Prefix cache hit rate: 0.0%\n"
)


@pytest.mark.parametrize("name", ["accept len", "avg_accept_len"])
def test_a_step_that_accepts_two_tokens_takes_twice_the_time_of_its_rate(tmp_path, name):
    """By either name that servers of this family have for them."""
    line = (
        f"Decode batch. #running-req: 4, #cpu-token: 90, {name}: 2.00, "
        "gen throughput (token/s): 400.00, #queue-req: 0\n"
    )
    steps = rows(imported(tmp_path, 2 * line))
    assert steps["duration_ns"].tolist() == [20_000_000]
    assert steps["context_tokens"].tolist() == [90]


def test_without_times_of_steps_the_statistics_of_vllm_give_rates(tmp_path):
    text = "".join(VLLM_STATS.format("0.0", "2000.0", size) for size in (20, 20, 21))
    steps = rows(imported(tmp_path, text))
    assert steps["duration_ns"].tolist() == [10_000_000, 10_250_000]
    timed = imported(
        tmp_path / "again" if (tmp_path / "again").mkdir() is None else tmp_path,
        text + iteration(0, 5, 9),
    )
    assert rows(timed)["batch"].tolist() == [5]  # a time of a step is better than any rate


def test_a_log_without_a_time_says_how_to_get_one(tmp_path):
    with pytest.raises(CurvescopeError, match="--enable-logging-iteration-details"):
        imported(tmp_path, VLLM_STATS.format("0.0", "0.0", 0))


def test_a_packed_log_is_read(tmp_path):
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(iteration(0, 5, 9).encode()))
    assert len(rows(open_recording(import_profile(path, tmp_path / "run").path))) == 1


TRT = (
    "[08/19/2026-14:11:49] [TRT-LLM] [I] [_torch][RANK 0] iter = 2, global_rank = 0, rank = 0, {}"
    "host_step_time = 4.08ms, prev_device_step_time = {}, timestamp = 2026-08-19 14:11:49, {}"
    "states = {{'num_ctx_requests': {}, 'num_ctx_tokens': {}, 'num_generation_tokens': 16}}\n"
)


def test_iterations_of_tensorrt_llm_are_steps_of_what_was_scheduled(tmp_path):
    """Both spellings of its sources; 16 generated tokens are 10 that were padded."""
    text = (
        "[I] Run generation only CUDA graph warmup for batch size=16\n"
        "[I] Run generation-only CUDA graph warmup for batch size=8, draft_len=0\n"
        + TRT.format("currank_total_requests = 0/0, ", "N/A", "num_scheduled_requests: 10, ", 0, 0)
        + TRT.format("num_scheduled_requests = 10, kv_cache_util = 0.1, ", "3.9ms", "", 1, 40)
        + TRT.format("num_scheduled_requests = 0, ", "3.9ms", "", 0, 0)  # nothing to do
    )
    recording = imported(tmp_path, text)
    steps = rows(recording)
    assert steps["mode"].tolist() == ["decode", "mixed"]
    assert steps["batch"].tolist() == [10, 10]
    assert steps["tokens"].tolist() == [10, 49]
    assert steps["duration_ns"].tolist() == [4_080_000] * 2
    assert recording.meta["server"]["captured_sizes"] == [8, 16]


def test_a_log_in_json_lines_or_from_powershell_is_read(tmp_path):
    text = vllm_start() + iteration(0, 5, 9)
    quoted = (json.dumps({"log": line + "\n", "stream": "stdout"}) for line in text.splitlines())
    path = tmp_path / "other.log"
    path.write_text("\r\n".join(text.splitlines()), encoding="utf-16")
    docker = imported(tmp_path, "\n".join(quoted))
    powershell = open_recording(import_profile(path, tmp_path / "other").path)
    for recording in (docker, powershell):
        assert rows(recording)["batch"].tolist() == [5]
        assert recording.meta["server"]["captured_sizes"][-1] == 256


def test_two_models_in_one_log_are_told_apart_and_not_named(tmp_path):
    other = vllm_start().replace("secret-model", "other-model")
    recording = imported(tmp_path, vllm_start() + other + iteration(0, 5, 9))
    assert recording.meta["server"]["changed"] == ["model"]
    assert "model" not in recording.meta["server"]
    again = imported(tmp_path / "again", vllm_start() * 2 + iteration(0, 5, 9))
    assert "changed" not in again.meta["server"]


@pytest.mark.parametrize(
    "line",
    [
        iteration(0, 10**9 - 1, 9).replace(str(10**9 - 1), "9" * 40),
        iteration(0, 5, 9).replace("9.00 ms", "9.9.9 ms"),
        iteration(0, 5, 9).replace("9.00 ms", "99999999999999999999 ms"),
    ],
)
def test_numbers_that_nothing_reaches_are_left_out(tmp_path, line):
    assert len(rows(imported(tmp_path, line + iteration(1, 5, 9)))) == 1


def test_a_log_of_more_steps_than_any_server_writes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("curvescope.profiling.readers.server_log.SERVER_STEPS", 3)
    with pytest.raises(CurvescopeError, match="at most 3 are read"):
        imported(tmp_path, iteration(0, 5, 9) * 5)


def test_the_entry_of_a_recording_is_held_to_its_types(tmp_path):
    recording = imported(tmp_path, iteration(0, 5, 9))
    file = recording.path / "recording.json"
    meta = json.loads(file.read_text())
    file.write_text(json.dumps({**meta, "server": {"captured_sizes": ["x"]}}))
    with pytest.raises(CurvescopeError, match="server"):
        open_recording(recording.path)


# TensorRT-LLM's line before and after pull request 3914 of its repository, and its statistics as
# JSON (pull request 13649).
TRT_BEFORE = (
    "[04/28/2025-09:56:44] [TRT-LLM] [I] iter = 198, global_rank = 0, rank = 0, "
    "currank_total_requests = 0/0, elapsed_time = 0.005060911178588867s, timestamp = 2025-04-28 "
    "09:56:44, {}states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': "
    "16}}\n"
)
TRT_JSON = (
    '{{"attentionDpRank": 1, {}"iterLatencyMS": 12.5, "inflightBatchingStats": '
    '{{"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 4, "numQueuedGenRequests": 0, '
    '"numScheduledRequests": 7}}}}\n'
)


def test_earlier_iterations_of_tensorrt_llm_and_its_statistics_are_steps(tmp_path):
    text = TRT_BEFORE.format("") + TRT_BEFORE.format("num_scheduled_requests: 10, ")
    steps = rows(imported(tmp_path, text))
    assert steps["batch"].tolist() == [16, 10]
    assert steps["duration_ns"].tolist() == [5_060_911] * 2
    text = TRT_JSON.format("") + TRT_JSON.format('"hostStepTimeMS": 6.5, ').replace(": ", ":")
    steps = rows(imported(tmp_path / "json", text))
    assert steps["batch"].tolist() == [4, 4]
    assert steps["duration_ns"].tolist() == [12_500_000, 6_500_000]


def progress(second, slot, rate, minute=2):
    """The line of a running request, as in ggml-org/llama.cpp's issue 25121."""
    return (
        f"{minute}.{second:02}.846.974 I slot print_timing: id  {slot} | task {slot} | n_decoded = "
        f"  1081, tg =  12.93 t/s, tg_3s =  {rate} t/s\n"
    )


def test_rates_of_running_requests_of_llama_cpp_are_steps_of_as_many_as_run(tmp_path):
    """Alone 20 tokens/s, and 10 each beside another one; the times at their ends say it again."""
    end = (
        "2.35.000.000 I slot print_timing: id  {0} | task {0} |        eval time =   92051.37 ms /"
        "  2000 tokens (   46.03 ms per token,    21.73 tokens per second)\n"
        "2.35.000.000 I slot      release: id  {0} | task {0} | stop processing: n_tokens = 9\n"
    )
    alone = [progress(second, 3, "20.00") for second in (2, 5, 8, 11)]
    both = [progress(second, slot, "10.00") for second in (14, 17, 20) for slot in (3, 1)]
    steps = rows(imported(tmp_path, "".join([*alone, *both, end.format(3), end.format(1)])))
    # The first line of each begins it, and the one after a change is of no one number.
    assert steps["batch"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert steps["duration_ns"].tolist() == [50_000_000] * 3 + [100_000_000] * 5
    assert steps["averaged_steps"].tolist() == [60] * 3 + [30] * 5


def test_waves_of_llama_cpp_without_times_are_steps_of_all_clients(tmp_path):
    """720 of 756 requests were of a load that "changes faster than the log has lines"."""
    recording = imported(tmp_path, llama_waves((1, 2, 4, 8, 16, 32), lambda n: 10 + n))
    steps = rows(recording)
    medians = (steps.groupby("batch").duration_ns.median() / 1e6).to_dict()
    assert medians == pytest.approx({n: 10 + n for n in (1, 2, 4, 8, 16, 32)}, rel=0.02)
    assert len(steps) == 12 * (1 + 2 + 4 + 8 + 16 + 32)
    assert "lines_of_changing_load" not in recording.meta["server"]


def test_a_server_without_graphs_says_that_the_largest_is_of_0(tmp_path):
    """The recording was "damaged or edited": vLLM 0.19 prints so with `--enforce-eager`."""
    text = vllm_start(8, eager=True).replace(
        "compilation_config={", "compilation_config={'max_cudagraph_capture_size': 0, "
    )
    recording = imported(tmp_path, text + iteration(1, 2, 8.0))
    assert recording.meta["server"]["eager"]
    assert "largest_captured" not in recording.meta["server"]


def test_lines_before_graphs_were_turned_on_are_apart_from_those_after(tmp_path):
    """They were averaged, though each line says which it is."""
    sizes = [n for n in (1, 2, 4, 8) for _ in range(12)]
    before = sglang_log(sizes, lambda n: 30 + n, 8).replace("cuda graph: True", "cuda graph: False")
    recording = imported(tmp_path, before + sglang_log(sizes, lambda n: 15 + n / 2, 8, seed=1))
    medians = (rows(recording).groupby("batch").duration_ns.median() / 1e6).to_dict()
    assert medians == pytest.approx({n: 15 + n / 2 for n in (1, 2, 4, 8)}, rel=0.03)
    server = recording.meta["server"]
    assert server["time_before_graphs"] == pytest.approx(2, rel=0.03)
    left_out = recording.meta["lost"]["rates_without_graph"]["count"]
    assert left_out == server["lines_before_graphs"] > 30


def test_a_page_that_begins_with_a_comment_is_no_xml(tmp_path):
    page = "<!-- which card? -->\n# Slow\n\n| x1 | x2 |\n|--|--|\n| 1 | 2 |\n"
    with pytest.raises(CurvescopeError, match=r"the columns x1, x2\. It lacks a size"):
        imported(tmp_path, page)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[GIN] 2025/05/09 - 15:14:30 | 200 |  6.674368042s |  127.0.0.1 | POST "/api/chat"',
            "Ollama.*--max-concurrency 16",
        ),
        ('queue_time="62µs" time_per_token="24ms": text_generation_router::server', "fixed number"),
        ('I1218 libtensorrtllm.cc:1205] {"Iteration Counter":0}', "Triton's backend"),
        ("NVIDIA GenAI-Perf | LLM Metrics", "profile_export_genai_perf.json of each concurrency"),
        (
            "token throughput (completion token): 2353.993 token/s",
            "LMDeploy.*curvescope explain FILE",
        ),
        ("llama_print_timings:        eval time =  3194.22 ms /   783 runs", "llama-bench -p 1"),
        ("llama_perf_context_print:        eval time = 3194.22 ms", "llama-bench -p 1"),
        (
            "INFO 09-10 23:26:12 [api_server.py:1805] vLLM API server version 0.10.1.1",
            "without `--disable-log-stats`",
        ),
        ("| Number of concurrency             | 20 |", "EvalScope.*concurrency, TPOT"),
        ("| Benchmark | Strategy  | Start    |\n| Strategy  |", "benchmarks.json"),
    ],
)
def test_logs_and_results_without_a_time_of_a_step_say_what_to_do(text, said, tmp_path):
    """As they stand in issues of these servers and benchmarks."""
    with pytest.raises(CurvescopeError, match=said):
        imported(tmp_path, text + "\n")
