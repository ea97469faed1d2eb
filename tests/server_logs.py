"""Logs of inference servers, built from the format strings of their sources; no server ran."""

import random
from itertools import pairwise

SIZES = (1, 2, 4, *range(8, 257, 8))  # what vLLM captures by default up to 256


def padded(requests, captured):
    """The captured size that a step of so many requests runs, or its own."""
    return next((size for size in captured if size >= requests), requests)


def walk(low, high, steps, seed=0, stays=10):
    """Numbers of running requests that drift up and down between two."""
    rng, requests = random.Random(seed), low
    for _ in range(steps):
        if rng.random() < 1 / stays:
            requests = min(high, max(low, requests + rng.choice((-2, -1, 1, 1, 2))))
        yield requests


def disturbed(seed=0, spread=0.01, drift=0.004):
    """Factors around 1: noise of a step, and a drift that neighbours share."""
    rng, slow = random.Random(seed), 0.0
    while True:
        slow = 0.9 * slow + rng.gauss(0, drift)
        yield (1 + slow) * (1 + rng.gauss(0, spread))


def vllm_start(most=100, captured=SIZES, version="0.14.0", eager=False, further=""):
    """What vLLM says of itself before it serves."""
    sizes = ",".join(map(str, captured))
    mode = '"cudagraph_mode":"FULL_AND_PIECEWISE"'
    return (
        f"(APIServer pid=7) INFO 12-22 21:40:00 [utils.py:233] non-default args: "
        f"{{'model': '/home/ada/secret-model', 'host': 'gpu7', 'max_num_seqs': {most}}}\n"
        "(EngineCore_DP0 pid=9) INFO 12-22 21:41:00 [core.py:77] Initializing a V1 LLM engine "
        f"(v{version}) with "
        f"config: model='/home/ada/secret-model', tensor_parallel_size=4, enforce_eager={eager}, "
        f'compilation_config={{{mode},"cudagraph_capture_sizes":[{sizes}]}}{further}\n'
    )


def iteration(number, requests, ms, prompts=0, prompt_tokens=0, after="", tokens=None):
    """One line of `--enable-logging-iteration-details`."""
    return (
        f"(EngineCore_DP0 pid=9) INFO 12-22 21:44:40 [core.py:349] Iteration({number}): {prompts} "
        f"context requests, {prompt_tokens} context tokens, {requests} generation requests, "
        f"{tokens or requests} generation tokens, iteration elapsed time: {ms:.2f} ms{after}\n"
    )


def vllm_steps(sizes, ms_of, seed=0, after=lambda step: ""):
    """Lines of decode steps; `ms_of` is the time of a step of so many requests."""
    noise = disturbed(seed)
    return "".join(
        iteration(step, size, ms_of(size) * next(noise), after=after(step))
        for step, size in enumerate(sizes)
    )


def with_cliff(limit, extra_ms, captured=SIZES):
    """8 ms and 0.06 ms for each computed request; steps beyond the limit run without a
    full graph.
    """

    def ms(requests):
        return 8 + 0.06 * padded(requests, captured) + (extra_ms if requests > limit else 0)

    return ms


def sglang_log(sizes, ms_of, limit, seed=0, steps_per_line=40, prompts=()):
    """Decode lines, each of the steps since the one before; prompts are (line, tokens) of prefill
    before it.
    """
    noise, extra = disturbed(seed), dict(prompts)
    lines = [
        "[2026-08-05 10:00:00] server_args=ServerArgs(model_path='/home/ada/m', tp_size=1, "
        f"decode_log_interval={steps_per_line}, cuda_graph_max_bs={limit}, "
        "disable_cuda_graph=False)\n"
        "[2026-08-05 10:00:09] Capture target decode CUDA graph begin. backend=full, "
        "num_tokens_per_req=1, "
        f"bs=[{', '.join(str(size) for size in (1, 2, 4, 8, 12, 16, 24, 32) if size <= limit)}], "
        "avail mem=7.10 GB\n"
        "[2026-08-05 10:00:10] max_total_num_tokens=2980168, chunked_prefill_size=4096, "
        "max_prefill_tokens=16384, max_running_requests=4096, context_len=32768\n"
    ]
    sizes = list(sizes)
    for line, (before, requests) in enumerate(pairwise([sizes[0], *sizes])):
        prefill_s = 0.0
        if line in extra:
            prefill_s = 2e-5 * extra[line]
            lines.append(
                f"[2026-08-05 10:00:11] Prefill batch, #new-seq: 1, #new-token: {extra[line]}, "
                f"#cached-token: 0, token usage: 0.08, #running-req: {before}, #queue-req: 0, cuda "
                "graph: False, input throughput (token/s): 559.53\n"
            )
        elapsed_s = steps_per_line * ms_of(requests) * next(noise) / 1e3 + prefill_s
        rate = steps_per_line * (before + requests) / 2 / elapsed_s
        lines.append(
            f"[2026-08-05 10:00:11] Decode batch, #running-req: {requests}, #token: "
            f"{requests * 700}, token usage: 0.08, cuda graph: {requests <= limit}, gen throughput "
            f"(token/s): {rate:.2f}, #queue-req: 0\n"
        )
    return "".join(lines)


def llama_log(clients, ms_of, seed=0, tokens=40, per_phase=60, joined=False, alike=False):
    """What llama.cpp's server prints of clients that ask again and again; each phase has so many of
    them.

    `joined` is the form of later versions, in which a line has both the slot and its times, and
    begins with the time since the server's start. `alike` lets all requests have as many tokens, so
    that they end together.
    """
    noise, task, running = disturbed(seed), 0, {}
    lines = ["build: 6123 (79c1160b) with cc for x86_64-linux-gnu\n"]
    lines.append("srv    load_model: initializing slots, n_slots = 64\n")
    elapsed_ms = 0.0

    def add(*told):
        clock = f"{_clock(elapsed_ms)} I " if joined else ""
        lines.extend(clock + line for line in told)

    for count in clients:
        ended = 0
        while ended < per_phase:
            for slot in range(count):
                if slot not in running:
                    running[slot] = [task, tokens + (0 if alike else 7 * (task % 5)), 0.0, 0]
                    add(f"slot launch_slot_: id {slot:2d} | task {task} | processing task\n")
                    task += 1
            step = ms_of(len(running)) * next(noise)
            elapsed_ms += step
            for slot, one in list(running.items()):
                one[1], one[2], one[3] = one[1] - 1, one[2] + step, one[3] + 1
                if one[1] == 0:
                    ended += 1
                    add(*_llama_end(slot, *running.pop(slot), joined))
    return "".join(lines)


def _clock(elapsed_ms):
    """Minutes, seconds, ms and µs since the server's start, as it prints them."""
    seconds, us = divmod(round(1e3 * elapsed_ms), 1_000_000)
    return f"{seconds // 60}.{seconds % 60:02d}.{us // 1000:03d}.{us % 1000:03d}"


def _llama_end(slot, task, _, ms, tokens, joined):
    head = f"slot print_timing: id {slot:2d} | task {task} | "
    prompt = f"prompt eval time = {31.5:10.2f} ms / {64:5d} tokens ( {0.49:8.2f} ms per token)"
    decode = (
        f"       eval time = {ms:10.2f} ms / {tokens:5d} tokens ( {ms / tokens:8.2f} ms per token)"
    )
    stop = (
        f"slot      release: id {slot:2d} | task {task} | stop processing: n_tokens = 104, "
        "truncated = 0\n"
    )
    if joined:
        return [f"{head}{prompt}\n", f"{head}{decode}\n", stop]
    return [stop, f"{head}\n{prompt}\n{decode}\n"]


def llama_waves(clients, ms_of, tokens=120, waves=12, seed=0):
    """What llama.cpp's server prints, without times, of clients that all ask at once, again when
    the last has its answer.
    """
    rng, task, lines = (
        random.Random(seed),
        0,
        ["srv    load_model: initializing slots, n_slots = 64\n"],
    )
    for count in clients:
        for _ in range(waves):
            tasks = list(enumerate(range(task, task + count)))
            task += count
            for slot, number in tasks:
                lines.append(f"slot launch_slot_: id {slot:2d} | task {number} | processing task\n")
            for slot, number in tasks:
                ms = tokens * ms_of(count) * rng.gauss(1, 0.01)
                lines.extend(_llama_end(slot, number, None, ms, tokens, False))
    return "".join(lines)
