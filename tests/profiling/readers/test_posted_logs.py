"""Logs of inference servers as people post them: what their lines hold beside the times of one
quiet server. Each is built from a few lines of the named thread.
"""

import pytest

from curvescope.analysis.server_log import graph_limit
from curvescope.base.errors import CurvescopeError

from ...server_logs import iteration
from .test_server_log import VLLM_STATS, imported, rows

ACCEPTED = (
    "(APIServer pid=1) INFO 05-07 04:56:17 [metrics.py:101] SpecDecoding metrics: Mean acceptance "
    "length: {}, Accepted throughput: 76.80 tokens/s, Drafted throughput: 235.49 tokens/s\n"
)
DECODE = (
    "({}) [2026-03-22 13:53:37 TP0] Decode batch, #running-req: {}, #token: 42414, token usage: "
    "{}, cuda graph: True, gen throughput (token/s): {}, #queue-req: {},\n"
)


def test_a_step_of_vllm_that_accepts_drafts_takes_longer_than_its_rate_says(tmp_path):
    """noonghunna/club-3090 93: 124.5 tokens/s with 2.66 tokens a step are 21.4 ms, not 8.0."""
    line = VLLM_STATS.format("0.0", "124.5", 1)
    recording = imported(tmp_path, (line + ACCEPTED.format("2.66")) * 2 + line)
    assert rows(recording)["duration_ns"].tolist() == [21_365_463, 8_032_129]
    server = recording.meta["server"]
    assert server["drafts"]
    assert server["lines_without_accepted"] == 1


def test_a_request_of_llama_cpp_that_accepts_drafts_has_fewer_steps_than_tokens(tmp_path):
    """The lines of ggml-org/llama.cpp 23269, with a draft line from its source."""
    text = (
        "[42027] 1.35.000.000 I slot launch_slot_: id  0 | task 388 | processing task\n"
        "[42027] 1.37.495.377 I slot print_timing: id  0 | task 388 | \n"
        "[42027]        eval time =   16000.00 ms /   192 tokens (   83.33 ms per token)\n"
        "[42027] draft acceptance rate = 0.50000 (   92 accepted /   184 generated)\n"
    )
    steps = rows(imported(tmp_path, text))
    assert steps["duration_ns"].tolist() == [pytest.approx(160e6, abs=2)]  # 100 steps
    assert steps["averaged_steps"].tolist() == [100]


@pytest.mark.parametrize(
    "writers",
    [
        ("SGLangEngine pid=41820", "SGLangEngine pid=41821"),  # Gen-Verse/OpenClaw-RL 44
        ("head, rank=0, pid=7, ip=10.0.0.1", "head, rank=1, pid=7, ip=10.0.0.2"),
    ],
)
def test_lines_of_two_servers_in_one_file_are_told_apart(tmp_path, writers):
    first, second = (DECODE.format(w, n, "0.04", r, 0) for w, n, r in
                     zip(writers, (6, 60), (600, 3000), strict=True))  # fmt: skip
    recording = imported(tmp_path, (first + second) * 3)
    steps = rows(recording)
    assert steps["batch"].tolist() == [6, 60, 6, 60]
    assert set(steps["duration_ns"]) == {10_000_000, 20_000_000}
    assert recording.meta["server"]["engines"] == 2


@pytest.mark.parametrize(
    "prefixes",
    [
        ("llama-1  | ", "llama-2  | "),
        ("\x1b[36mllama-1  | \x1b[0m", "\x1b[33mllama-2  | \x1b[0m"),
        ("[pod/llama-7f9/server] ", "[pod/llama-8c2/server] "),
        ("Nov 27 14:00:01 gpu7 llama[71]: ", "Nov 27 14:00:01 gpu7 llama[72]: "),
        ("[42027] ", "[42028] "),  # of llama.cpp's own router
    ],
)
def test_slots_of_two_servers_are_not_those_of_one(tmp_path, prefixes):
    text = "".join(
        f"{prefix}slot launch_slot_: id  0 | task 1 | processing task\n" for prefix in prefixes
    )
    for prefix in prefixes:
        text += (
            f"{prefix}slot print_timing: id  0 | task 1 | \n"
            f"{prefix}       eval time =     400.00 ms /    20 tokens (   20.00 ms per token)\n"
            f"{prefix}slot      release: id  0 | task 1 | stop processing: n_past = 9\n"
        )
    assert rows(imported(tmp_path, text))["batch"].tolist() == [1, 1]


def test_statistics_and_steps_of_one_engine_are_not_two_engines(tmp_path):
    text = iteration(0, 5, 9) + VLLM_STATS.format("0.0", "9.0", 5) + iteration(1, 5, 9)
    assert imported(tmp_path, text).meta["server"]["engines"] == 1


def test_lines_that_were_pasted_as_one_are_read(tmp_path):
    """vllm-project/vllm 2595, 18115 and 36748."""
    line = VLLM_STATS.format("0.0", "2000.0", 20).rstrip("\n")
    assert len(rows(imported(tmp_path, line * 3))) == 2
    named = "(APIServer pid=38) " + line
    assert len(rows(imported(tmp_path / "named", f"{named} {named} {named}"))) == 2
    decode = DECODE.format("x", 6, "0.04", 600, 0).rstrip("\n")[4:]
    assert len(rows(imported(tmp_path / "sglang", f"{decode} {decode}"))) == 1


OLD = (
    (
        "INFO [   launch_slot_with_task] slot is processing task | tid=\"11\" timestamp={0} "
        "id_slot={1} id_task=0\n",
        "INFO [           print_timings] generation eval time =    6600.00 ms /   660 runs   (    "
        "9.83 ms per token,   101.77 tokens per second) | tid=\"11\" timestamp={0} id_slot={1} "
        "id_task=0 t_token_generation=6600 n_decoded=660\n",
        "INFO [            update_slots] slot released | tid=\"11\" timestamp={0} id_slot={1} "
        "id_task=0 n_ctx=16384 n_past=571 truncated=false\n",
    ),
    (
        '{{"function":"launch_slot_with_data","level":"INFO","line":830,"msg":"slot is processing '
        'task","slot_id":{1},"task_id":6,"tid":"14","timestamp":{0}}}\n',
        '{{"function":"print_timings","level":"INFO","line":287,"msg":"generation eval time =    '
        '6600.00 ms /   660 runs   (   10.00 ms per token)","n_decoded":660,"slot_id":{1},'
        '"task_id":6,"timestamp":{0}}}\n',
        '{{"function":"update_slots","level":"INFO","line":1640,"msg":"slot released","n_ctx":2048,'
        '"slot_id":{1},"task_id":6,"tid":"14","timestamp":{0},"truncated":false}}\n',
    ),
)  # fmt: skip


@pytest.mark.parametrize("forms", OLD, ids=["text", "JSON"])
def test_servers_of_llama_cpp_of_2024_are_read(tmp_path, forms):
    """ggml-org/llama.cpp 9013 and 6646, ollama/ollama 3418. The second request ran beside the
    first one all its time, and the third alone.
    """
    launch, timing, release = forms
    text = launch.format(1723514800, 0) + launch.format(1723514800, 1)
    for slot in (0, 1):
        text += timing.format(1723514807, slot) + release.format(1723514807, slot)
    text += launch.format(1723514808, 0) + timing.format(1723514815, 0)
    steps = rows(imported(tmp_path, text))
    assert steps["batch"].tolist() == [2, 2, 1]
    assert set(steps["duration_ns"]) == {10_000_000}


def test_the_rate_of_a_running_request_has_two_spellings(tmp_path):
    """lemonade-sdk/llamacpp-rocm 129: `n_gen` in place of `n_decoded`."""
    text = "".join(
        f"1.{second}.403.678 I slot print_timing: id  0 | task 0 | n_gen =   {tokens}, tg =  38.03 "
        "t/s, tg_3s =  40.00 t/s\n"
        for second, tokens in ((32, 2126), (35, 2246), (38, 2366))
    )
    assert rows(imported(tmp_path, text))["duration_ns"].tolist() == [25_000_000] * 2


def test_preemptions_are_as_many_as_the_server_says(tmp_path):
    """vLLM prints each fiftieth with their number (vllm-project/vllm 8219), later the number since
    the line before (28522).
    """
    old = (
        "Sequence group cmpl-1-0 is preempted in PreemptionMode.RECOMPUTE mode because there is "
        "not enough KV cache space. total_num_cumulative_preemption={}\n"
    )
    lines = [VLLM_STATS.format("0.0", "2000.0", 20)] * 3
    text = old.format(1).join([*lines[:2], ""]) + old.format(51) + lines[2]
    assert imported(tmp_path, text).meta["server"]["preemptions"] == 51
    later = [line.replace("GPU KV", "Preemptions: 3, GPU KV") for line in lines]
    server = imported(tmp_path / "later", "".join(later)).meta["server"]
    assert server["preemptions"] == 9


def test_requests_that_wait_for_the_cache_are_counted(tmp_path):
    """vllm-project/vllm 43295: 18 requests run and 43 wait, the KV cache is 96 % full."""
    full = VLLM_STATS.replace("Waiting: 0", "Waiting: 43").replace("3.1%", "95.9%")
    lines = [full.format("0.0", "1000.0", 18)] * 2 + [VLLM_STATS.format("0.0", "1000.0", 18)]
    server = imported(tmp_path, "".join(lines)).meta["server"]
    assert (server["lines_waiting_for_cache"], server["lines_running"]) == (2, 3)
    decode = [DECODE.format("x", 4, share, 400, 3) for share in ("1.00", "0.97", "0.50")]
    server = imported(tmp_path / "sglang", "".join(decode)).meta["server"]
    assert (server["lines_waiting_for_cache"], server["lines_running"]) == (2, 3)


def test_a_limit_of_graphs_that_a_warning_tells_counts_tokens(tmp_path):
    """vLLM's lines in tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark 5:
    four tokens are one request with three drafted ones.
    """
    text = (
        "WARNING [vllm.py:1719] Truncating max_cudagraph_capture_size to 4\n"
        "non-default args: {'speculative_config': {'num_speculative_tokens': 3}}\n"
    )
    server = imported(tmp_path, text + VLLM_STATS.format("0.0", "9.0", 1) * 2).meta["server"]
    assert server["largest_captured"] == 4
    assert graph_limit(server) == 1


def test_a_log_of_an_idle_server_says_so(tmp_path):
    with pytest.raises(CurvescopeError, match="2 lines had no running request"):
        imported(tmp_path, VLLM_STATS.format("0.0", "0.0", 0) * 2)
