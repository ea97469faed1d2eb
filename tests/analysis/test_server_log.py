"""The cost curve of a server's log: its bends are found, named and priced, and nothing is claimed
on a steady load.
"""

import json
import random
import re
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from curvescope.analysis.server_edges import DecodeSteps, find_edges
from curvescope.analysis.server_log import explain_log, graph_limit
from curvescope.cli import main
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

from ..server_logs import (
    SIZES,
    llama_log,
    padded,
    sglang_log,
    vllm_start,
    vllm_steps,
    walk,
    with_cliff,
)
from ..tables import ask_each


@pytest.fixture
def explained(tmp_path):
    def explain(text):
        path = tmp_path / "server.log"
        path.write_text(text)
        number = len(list(tmp_path.glob("run*")))
        return explain_log(open_recording(import_profile(path, tmp_path / f"run{number}").path))

    return explain


def printed(capsys, *arguments):
    assert main([*map(str, arguments)]) == 0
    return re.sub(r"\s+", " ", capsys.readouterr().out)


CLIFF = vllm_start(100) + vllm_steps(walk(80, 100, 3000), with_cliff(96, 4.0))


def test_a_batch_beyond_the_largest_full_graph_is_named_and_priced(explained):
    """vLLM 57355: with `max_num_seqs=100`, 97 to 100 requests run without a full graph."""
    log = explained(CLIFF)
    (edge,) = log.edges
    assert (edge.at, edge.last, edge.known, log.limit) == (96, 100, True, 96)
    assert edge.extra_ms.low < 4.0 < edge.extra_ms.high
    assert edge.extra_ms.high - edge.extra_ms.low < 0.8
    assert edge.share == pytest.approx(log.outside)


def test_the_answer_says_what_to_capture_and_what_to_trace_next(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(CLIFF)
    text = printed(capsys, "explain", path)
    assert "Batches 97 to 100 leave the graph that was captured up to 96: +" in text
    assert "% of the decode steps of this log. Capture 100:" in text
    assert '"cudagraph_capture_sizes":[1,2,4,8,16,24,32,40,48,56,64,72,80,88,96,100]' in text
    assert "Suggested, not tested" in text
    assert "start_profile # with 96 and with 97 requests running" in text


def test_a_short_climb_from_90_to_100_names_97(explained):
    """Each number of requests runs once, for a while: other changes of it are what the edge is held
    against.
    """
    climb = [requests for requests in range(90, 101) for _ in range(40)]
    log = explained(vllm_start(100) + vllm_steps(climb, with_cliff(96, 4.0)))
    assert [(edge.at, edge.known) for edge in log.edges] == [(96, True)]
    assert log.edges[0].extra_ms.low > 2.0


@pytest.mark.slow
def test_sglang_beyond_its_graph_limit(explained, tmp_path, capsys):
    """SGLang 33483: graphs up to 32; beyond them a step takes several times as long."""
    load = walk(20, 70, 3000, stays=4)
    log = explained(sglang_log(load, lambda size: (5 if size <= 32 else 20) + 0.02 * size, 32))
    edge = log.edges[0]
    assert (edge.at, edge.known) == (32, True)
    assert edge.extra_ms.low < 15 < edge.extra_ms.high
    text = printed(capsys, "explain", tmp_path / "server.log")
    assert "leave the graph that was captured up to 32" in text
    assert f"--cuda-graph-max-bs {log.sizes[1]}" in text


def test_a_load_that_is_all_beyond_the_graphs_has_no_price_but_is_named(tmp_path, capsys):
    """SGLang 33483 as it settles: hardly a step has 32 requests or fewer, so their time is not
    known.
    """
    path = tmp_path / "server.log"
    path.write_text(sglang_log(walk(55, 80, 800, stays=4), lambda size: 20 + 0.1 * size, 32))
    text = printed(capsys, "explain", path)
    assert "100% of the decode steps have more than the 32 requests of the largest graph" in text
    assert "what that costs this log cannot tell" in text
    assert "compare both logs" in text


def test_a_list_of_sizes_that_ends_early_is_the_limit(explained):
    """vLLM on Ascend 16049: captured up to 8 with `max_num_seqs=12`, and 7.5 times the
    time beyond.
    """
    captured = (1, 2, 4, 8)
    log = explained(
        vllm_start(12, captured) + vllm_steps(walk(1, 12, 2500), with_cliff(8, 140, captured))
    )
    assert (log.edges[0].at, log.edges[0].last, log.edges[0].known) == (8, 12, True)
    assert log.edges[0].extra_ms.low < 140 < log.edges[0].extra_ms.high


@pytest.mark.slow
def test_a_jump_that_the_log_does_not_name_is_found_without_a_cause(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(vllm_steps(walk(1, 60, 4000), lambda size: 8 + 0.05 * size + 3 * (size > 40)))
    text = printed(capsys, "explain", path)
    assert re.search(r"Batches 41 to \d+ take \+[23]\.\d+ ms .* The log does not say why\.", text)
    assert "apture" not in text


@pytest.mark.first_rows(1, in_ci=1)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_claimed_on_a_smooth_curve(explained, seed):
    smooth = vllm_steps(
        walk(1, 60, 2000, seed), lambda size: 8 + 0.06 * size + 4e-4 * size**2, seed
    )
    assert explained(smooth).edges == ()
    inside = vllm_start(100) + vllm_steps(walk(60, 100, 2000, seed), with_cliff(96, 0.0), seed)
    assert explained(inside).edges == ()


@pytest.mark.first_rows(1, in_ci=1)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_claimed_where_only_the_machine_drifts(explained, seed):
    """Twice as slow by the end, while the load grows: a slow change is no edge."""
    sizes = list(walk(1, 60, 2000, seed))
    noisy = vllm_steps(sizes, lambda size: 8 + 0.06 * size, seed).splitlines(keepends=True)
    slower = [
        re.sub(
            r"time: ([\d.]+) ms",
            lambda found, p=place: f"time: {float(found[1]) * (1 + p / 2000):.2f} ms",
            line,
        )
        for place, line in enumerate(noisy)
    ]
    assert explained("".join(slower)).edges == ()


def test_the_foot_of_a_stair_counts_at_its_captured_size(explained):
    """Nine to twelve requests had too few lines each, so a gap before a flatter part of the curve
    was "+3.7 ms beyond 16", which the table of the same log contradicts.
    """
    captured = (1, 2, 4, 8, 16, 24, 32)
    ms = {1: 10, 2: 14, 4: 19, 8: 26, 16: 37, 24: 41, 32: 44}
    rng, requests, seen, sizes = random.Random(0), 6, Counter(), []
    for _ in range(400):
        stays = 1 if 9 <= requests <= 12 else rng.choice((15, 25, 40))
        if not 9 <= requests <= 12 or seen[requests] < 6:
            sizes += [requests] * stays
        seen[requests] += stays
        steps = (-1, 1, 1) if requests < 12 else (-1, -1, 1) if requests > 26 else (-1, 1)
        requests = max(3, min(30, requests + rng.choice(steps)))
    text = vllm_start(32, captured) + vllm_steps(sizes, lambda n: ms[padded(n, captured)])
    log = explained(text)
    assert not log.edges
    assert log.padding is not None
    rare = sum(9 <= size <= 12 for size in sizes)
    assert any(f"{rare} steps of rare numbers" in note for note in log.notes)
    assert log.curve.at(16).n == sizes.count(16) + rare


def test_an_edge_at_a_captured_size_is_found_over_the_captured_sizes_before_it():
    """Between two captured sizes a step costs the same, so eight sizes have no slope."""
    captured, rng = np.array([8, 16, 24, 32, 40]), np.random.default_rng(0)
    sizes = [16]
    for _ in range(999):
        sizes.append(min(40, max(1, sizes[-1] + int(rng.choice((-3, -1, 0, 1, 3))))))
    ran = np.array(sizes)
    work = captured[np.searchsorted(captured, ran)].astype(float)
    times_ms = (10 + 0.05 * work + 3.0 * (ran > 24)) * np.exp(rng.normal(0, 0.02, len(ran)))
    distinct = np.unique(ran)
    medians = np.array([np.median(times_ms[ran == size]) for size in distinct])
    steps = DecodeSteps(ran, work, times_ms)
    ((edge,), _) = find_edges(steps, (distinct, medians), None, captured)
    assert (edge.at, edge.known, edge.captured) == (24, False, True)
    assert edge.extra_ms.value == pytest.approx(3.0, abs=0.2)
    smooth = DecodeSteps(ran, work, times_ms - 3.0 * (ran > 24))
    without = np.array([np.median(smooth.times_ms[ran == size]) for size in distinct])
    assert find_edges(smooth, (distinct, without), None, captured)[0] == ()


def test_a_curve_that_falls_is_said_to_fall(tmp_path, capsys):
    """Over it stood "each request adds about as much as the one before"."""
    path = tmp_path / "server.log"
    path.write_text(vllm_start() + vllm_steps(walk(4, 40, 3000), lambda n: 30 - 0.4 * n))
    text = printed(capsys, "explain", path)
    assert "requests take less time a step than" in text
    assert "adds about as much" not in text


def test_a_steady_load_is_no_curve_and_nothing_is_claimed(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(vllm_start(100) + vllm_steps([64] * 900 + [63] * 100, with_cliff(96, 4.0)))
    text = printed(capsys, "explain", path)
    assert "The load is steady" in text
    assert "nothing is claimed" in text
    assert "leave the graph" not in text


def test_a_load_that_changes_faster_than_its_lines_is_not_called_steady(capsys):
    """46 requests without a graph to 11 with one, as sgl-project/sglang's PR 13023 shows them."""
    log = Path(__file__).parents[1] / "data" / "server_logs" / "sglang_decode.log"
    out = " ".join(printed(capsys, "explain", str(log)).split())
    assert "2 lines ran without a graph, from 36 requests on; the largest with one had 28." in out
    assert "in the time of 6 of 7 the requests changed" in out
    assert "--decode-log-interval 10" in out
    assert "steady" not in out


def test_context_that_grows_is_taken_out(explained):
    """A step takes 1 ms more for 10 % of the cache, and the cache fills while the load grows."""
    sizes = [1 + place // 100 for place in range(3000)]
    use = [place % 100 / 2 for place in range(3000)]
    cache = (
        "\n(EngineCore_DP0 pid=9) INFO [kv_cache_utils.py:1314] GPU KV cache size: 100,000 tokens"
    )
    lines = vllm_steps(
        sizes, lambda size: 8, after=lambda step: f", GPU KV cache usage: {use[step]:.1f}%"
    )
    longer = [
        re.sub(
            r"time: ([\d.]+) ms",
            lambda found, p=place: f"time: {float(found[1]) + use[p] / 10:.2f} ms",
            line,
        )
        for place, line in enumerate(lines.splitlines(keepends=True))
    ]
    log = explained(vllm_start(100, further=cache) + "".join(longer))
    (note,) = [note for note in log.notes if "context per request" in note]
    per_1000_ms = float(re.search(r"more take ([\d.]+) ms", note)[1])
    assert per_1000_ms == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
def test_padding_to_captured_sizes_is_priced(explained, tmp_path, capsys):
    """9 requests run as 16: what a request costs is the slope over captured sizes."""
    captured = (1, 4, 16, 32, 64)
    start = vllm_start(64, captured)
    log = explained(
        start + vllm_steps(walk(1, 64, 4000), lambda size: 2 + 0.5 * padded_to(size, captured))
    )
    assert log.padding is not None
    assert log.padding.low > 0.1
    assert "Padding to captured sizes takes" in printed(capsys, "explain", tmp_path / "server.log")


def padded_to(size, captured):
    return next(one for one in captured if one >= size)


@ask_each(
    ("server", "limit"),
    [
        ({"captured_sizes": list(SIZES), "most_requests": 100}, 96),
        ({"captured_sizes": list(SIZES), "most_requests": 100, "graph_mode": "PIECEWISE"}, 256),
        ({"captured_sizes": list(SIZES)}, 256),
        ({"captured_sizes": [4, 8, 24], "speculative_tokens": 3, "most_requests": 6}, 6),
        ({"largest_captured": 32}, 32),
        ({"largest_with_graph": 31}, 31),
        ({"captured_sizes": [8], "eager": True}, 0),
        ({}, None),
    ],
)
def test_the_largest_number_of_requests_with_a_graph(server, limit):
    assert graph_limit(server) == limit


@pytest.mark.slow
def test_the_best_batch_keeps_the_limit(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(vllm_steps(walk(1, 60, 4000), lambda size: 8 + 0.1 * size))
    found = re.search(
        r"Best batch under 12\.0 ms a step: (\d+) requests",
        printed(capsys, "explain", path, "--limit", "12ms"),
    )
    assert 32 <= int(found[1]) <= 40
    assert "No size keeps 1.00 ms" in printed(capsys, "explain", path, "--limit", "1ms")


def test_options_that_a_log_does_not_have_are_refused(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(vllm_steps([5] * 10, lambda size: 8))
    assert main(["explain", str(path), "--pair", "4,8"]) == 2
    assert "--limit and --all" in capsys.readouterr().err


@pytest.mark.slow
def test_two_logs_are_compared_at_equal_requests(tmp_path, capsys):
    before, after = tmp_path / "before.log", tmp_path / "after.log"
    before.write_text(CLIFF)
    after.write_text(
        vllm_start(100, (*SIZES, 100)) + vllm_steps(walk(80, 100, 3000, 1), with_cliff(100, 0.0), 1)
    )
    assert main(["compare", str(before), str(after), "--json"]) == 0
    steps = {line["label"]: line for line in json.loads(capsys.readouterr().out)["steps"]}
    slower = {int(label) for label, line in steps.items() if line["changes"][0]["low"] > 1.1}
    assert slower == {97, 98, 99, 100}
    assert main(["compare", str(before), str(before)]) == 0
    assert "significantly" not in capsys.readouterr().out.replace("differs significantly", "")


def test_json_has_what_the_text_says(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text(CLIFF)
    assert main(["explain", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "curvescope.serverlog/1"
    assert document["bends"][0]["at"] == 96
    assert document["verdict"] == "suggested"
    assert document["headline"] == document["bends"][0]["sentence"]


def test_five_thousand_steps_take_little_cpu_time(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(vllm_start(100) + vllm_steps(walk(1, 100, 5000, stays=3), with_cliff(96, 4.0)))
    recording = open_recording(import_profile(path, tmp_path / "run").path)
    began = time.process_time()
    assert explain_log(recording).curve is not None
    assert time.process_time() - began < 10


@pytest.mark.first_rows(1)
@pytest.mark.parametrize("joined", [False, True], ids=["lines apart", "slot in each line"])
def test_requests_of_llama_cpp_are_a_curve(joined, explained, tmp_path, capsys):
    """The time of a request's tokens counts where the number of running requests stayed
    within one.
    """
    clients = [*range(2, 15), *range(14, 1, -1)]
    text = llama_log(clients, lambda n: 20 + 0.3 * n + (9 if n > 8 else 0), joined=joined)
    log = explained(text)
    (edge,) = log.edges
    assert (edge.at, edge.known, log.server["most_requests"]) == (8, False, 64)
    assert edge.extra_ms.low < 9 < edge.extra_ms.high
    (tmp_path / "llama.log").write_text(text)
    said = printed(capsys, "explain", tmp_path / "llama.log")
    assert "lines of decode steps of 2 to 14 requests" in said
    assert "llama-batched-bench -m MODEL -ntg 64 -npl 8,9" in said


def test_nothing_is_claimed_on_a_steady_llama_cpp(tmp_path, capsys):
    (tmp_path / "llama.log").write_text(llama_log([8] * 20, lambda _: 30))
    assert "The load is steady" in printed(capsys, "explain", tmp_path / "llama.log")


@pytest.mark.slow
@pytest.mark.first_rows(1, in_ci=1)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_claimed_on_a_straight_llama_cpp(explained, seed):
    clients = [*range(2, 15), *range(14, 1, -1)]
    assert explained(llama_log(clients, lambda n: 20 + 0.3 * n, seed)).edges == ()


@pytest.mark.slow
def test_more_requests_that_give_hardly_more_tokens_are_said(explained, tmp_path, capsys):
    """vllm 20710, sglang 7908: 35 tokens a second at concurrency 1, 50 at 16."""

    def published(requests):
        return 1e3 * requests / (35 + (requests - 1))

    text = vllm_start(16) + vllm_steps(walk(1, 16, 4000), published)
    log = explained(text)
    assert (log.batching.few, log.batching.many) == (1, 16)
    assert log.batching.gain.low < 50 / 35 < log.batching.gain.high
    assert (
        log.edges == ()
    )  # the curve is bent, and a request costs what it costs, not what a captured size does
    (tmp_path / "server.log").write_text(text)
    said = printed(capsys, "explain", tmp_path / "server.log")
    assert "Batching hardly helps: 16 requests give 1.4" in said
    assert "start_profile # with 1 and with 16 requests running" in said


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "ms_of",
    [lambda n: 8 + 0.06 * n, lambda n: 20 + 1.5 * n, lambda n: 30],
    ids=["GPU", "CPU", "flat"],
)
def test_batching_that_helps_is_not_complained_of(ms_of, explained):
    assert explained(vllm_start(64) + vllm_steps(walk(1, 64, 4000), ms_of)).batching.helps


@pytest.mark.slow
def test_the_report_of_a_log_says_what_explain_says(tmp_path):
    (tmp_path / "server.log").write_text(CLIFF)
    assert main(["import", str(tmp_path / "server.log"), "-o", str(tmp_path / "r")]) == 0
    assert main(["report", str(tmp_path / "r"), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "<h1>Batches 97 to 100 leave the graph that was captured up to 96: +" in page
    assert "Capture 100: --compilation-config" in page
    assert "nothing is tested" not in page


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["breakdown"], "breakdown"),
        (["roofline"], "roofline"),
        (["explain", "--as-env"], "measured change"),
    ],
)
def test_what_asks_for_kernels_refuses_a_log_by_the_name_that_the_user_gave(
    words, what, tmp_path, refusal_of
):
    (tmp_path / "server.log").write_text(CLIFF)
    path = tmp_path / "server.log"
    said = refusal_of(*words, path)
    assert f"{path} is a server's log" in said
    assert f"so there is no {what} of it. `curvescope explain {path}` shows its curve" in said


REAL = Path(__file__).parents[1] / "data" / "server_logs" / "llama_server.log.gz"


@pytest.mark.slow
def test_a_log_of_a_real_llama_cpp_server_is_read_and_no_edge_is_claimed(tmp_path):
    """1,006 requests on a loaded machine, whose steps say too little for an edge; where their
    number changed is counted.
    """
    recording = open_recording(import_profile(REAL, tmp_path / "run").path)
    log = explain_log(recording)
    lost = recording.meta["lost"]["rates_of_changing_load"]
    assert log.decode_steps + (lost if isinstance(lost, int) else lost["count"]) == 1006
    assert (log.server["server"], log.server["most_requests"]) == ("llama.cpp", 16)
    assert log.decode_steps > 800
    assert log.noise > 0.5
    assert not log.edges
    assert log.batching is None


def test_requests_that_end_together_count_where_lines_tell_the_time(explained):
    """The places that are free for an instant between them weigh nothing."""
    clients = (1, 2, 4, 6, 8, 10, 12, 16)

    def step_ms(n):
        return 20 + 0.3 * n + (9 if n > 8 else 0)

    (edge,) = explained(llama_log(clients, step_ms, joined=True, alike=True)).edges
    assert edge.at == 8
    assert edge.extra_ms.low < 9 < edge.extra_ms.high


@pytest.mark.slow
def test_noise_is_told_and_no_bend_is_looked_for(tmp_path, capsys):
    """Steps of one size that differ by their own length say nothing of others."""
    noisy = random.Random(3)
    text = llama_log((1, 2, 4, 6, 8, 10), lambda n: n * noisy.lognormvariate(1, 4.0), joined=True)
    (tmp_path / "llama.log").write_text(text)
    said = printed(capsys, "explain", tmp_path / "llama.log")
    assert "too much to look for a bend" in said
    assert "Best batch" not in said


@pytest.mark.slow
def test_another_start_with_other_graphs_within_a_log_has_no_limit(explained):
    """The steps before it had another limit than the last that the log tells."""
    first = vllm_start(100) + vllm_steps(walk(80, 100, 1500), with_cliff(96, 4.0))
    again = vllm_start(100, captured=(*SIZES[:5], 64)) + vllm_steps(
        walk(40, 64, 1500, seed=1), with_cliff(64, 4.0), seed=1
    )
    log = explained(first + again)
    assert log.limit is None
    assert any("with different settings" in note for note in log.notes)
    assert explained(first + first).limit == 96


PREFIXES = {
    "docker compose": "vllm-1  | {}",
    "kubectl logs --timestamps": "2026-08-05T10:00:00.123456789Z {}",
    "containerd": "2026-08-05T10:00:00.123456789Z stderr F {}",
    "journald": "Aug 05 10:00:00 gpu7 vllm[812]: {}",
    "colours": "\x1b[1;36m{}\x1b[0;0m",
    "JSON of docker": '{{"log":"{}\\n","stream":"stderr","time":"2026-08-05T10:00:00Z"}}',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PREFIXES)
def test_what_a_log_went_through_changes_nothing(name, explained):
    lines = CLIFF.splitlines()
    (edge,) = explained("".join(PREFIXES[name].format(line) + "\n" for line in lines)).edges
    assert (edge.at, edge.last, edge.known) == (96, 100, True)


@pytest.mark.first_rows(1)
@pytest.mark.parametrize(
    "name", [one for one in PREFIXES if one not in ("JSON of docker", "colours")]
)
def test_times_on_lines_of_their_own_are_read_behind_a_prefix(name, explained):
    """Earlier llama.cpp prints the times of a request without its slot."""
    lines = llama_log((1, 2, 4, 6, 8), lambda n: 5.0 + n, per_phase=40).splitlines()
    log = explained("".join(PREFIXES[name].format(line) + "\n" for line in lines))
    assert log.decode_steps == explained("\n".join(lines) + "\n").decode_steps > 100


def test_a_log_with_too_few_lines_for_a_curve_says_what_a_step_takes(tmp_path, capsys):
    """sgl-project/sglang 26248 posted a dozen lines: 4 requests get 430 tokens/s, 3 get 21."""
    line = (
        "[2026-05-24 03:51:44 TP0] Decode batch, #running-req: {}, #full token: 2642688, full "
        "token usage: {}, cuda graph: True, gen throughput (token/s): {}, #queue-req: 3\n"
    )
    retracted = "[2026-05-24 03:51:46 TP0] KV cache pool is full. Retract requests.\n"
    path = tmp_path / "server.log"
    path.write_text(line.format(4, "1.00", 430) * 3 + retracted + line.format(3, "0.78", 21) * 2)
    text = printed(capsys, "explain", path)
    assert "4 lines of decode steps, too few for a curve" in text
    assert "3 154.8 19.38 2" in text  # of 3.5 requests, and of 3
    assert "4 9.302 430.0 2" in text
    assert "thrown out of the cache 1 time and" in text
    assert "In 3 of 5 lines requests waited while the KV cache was full" in text
    assert main(["compare", str(path), str(path)]) == 2
    assert "no number of requests with 8 decode steps" in capsys.readouterr().err
    path.write_text(line.format(4, "0.10", 430) * 50)
    assert "The load is steady" in printed(capsys, "explain", path)


def test_lines_with_prompts_do_not_tell_what_a_decode_step_takes(explained):
    """vllm-project/vllm 43295: beside 12,069 prompt tokens/s requests get half the tokens."""
    line = (
        "INFO 05-19 10:13:11 [loggers.py:271] Engine 000: Avg prompt throughput: {} tokens/s, Avg "
        "generation throughput: {} tokens/s, Running: 18 reqs, Waiting: 0 reqs\n"
    )
    log = explained(line.format(0.0, 1200.0) * 2 + line.format(12068.8, 600.0))
    (one,) = log.medians
    assert (one.requests, one.n, one.time_ms) == (18, 1, pytest.approx(15.0))


def test_drafted_tokens_are_no_tokens_of_requests(tmp_path, capsys):
    line = (
        "Decode batch, #running-req: 96, #token: 398976, token usage: 0.68, accept len: 2.67, npu "
        "graph: False, gen throughput (token/s): 1509.20, #queue-req: 0\n"
    )
    path = tmp_path / "server.log"
    path.write_text(line * 3)
    text = printed(capsys, "explain", path)
    assert "steps of requests/s" in text
    assert "tokens/s" not in text
