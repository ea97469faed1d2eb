"""Parses the step marks of inference servers: the phase of a step, its requests, its tokens and its
context.

- vLLM: `execute_context_2(6144)_generation_3(3)`: 2 requests with 6,144 tokens of prompt, 3 that
  generate. With attention sums (SGLang and ATOM, too):
  `execute_35_context_1(sq32sk48sqsq1024sqsk1536)_generation_3(sq3sk6144…)`; `sq` counts the tokens that the step computes, `sk`
  the tokens that they attend to.
- SGLang: `step[DECODE bs=64]`, `step[EXTEND bs=2 toks=14721]`,
  `step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 …]`.
- ATOM: `prefill[bs=2 tok=14721 ctx=[7803, 6918]]`, `decode[bs=117/128 tok=117 d=117]`; the graph is
  that of 128.
- TensorRT-LLM: `[Executor] _forward_step 7: 0 ctx reqs, 0 ctx tokens, 32 gen reqs`, older versions
  without tokens.
- `execute_diffusion_1_1024x1024`: batch size and resolution.
"""  # noqa: E501

from __future__ import annotations

import re
from typing import NamedTuple

PREFILL = "prefill"
DECODE = "decode"
MIXED = "mixed"

_SUMS = r"sq(?P<{0}sq>\d+)sk(?P<{0}sk>\d+)sqsq\d+sqsk\d+"
_VLLM = re.compile(
    rf"execute_(?:\d+_)?context_(?P<c>\d+)\((?:{_SUMS.format('c_')}|(?P<ct>\d+)(?:_\d+)?)\)"
    rf"_generation_(?P<g>\d+)\((?:{_SUMS.format('g_')}|(?P<gt>\d+)(?:_\d+)?)\)"
)
_SGLANG = re.compile(r"step\[(?P<mode>EXTEND|DECODE|MIXED)\b(?P<facts>[^\]]*)\]")
_ATOM = re.compile(r"(?P<mode>prefill|decode)\[(?P<facts>.*)\]")
_TENSORRT = re.compile(
    r"\[Executor\] _forward_step \d+: (?P<c>\d+) ctx reqs, (?:(?P<ct>\d+) ctx tokens, )?(?P<g>\d+) "
    r"gen(?:eration)? reqs"
)
_DIFFUSION = re.compile(r"execute_diffusion_(?P<batch>\d+)_\d+x\d+")
# The word boundary avoids quadratic time in long words.
_FACT = re.compile(r"\b(\w+)=(\d+)(?:/(\d+))?")


class ServedStep(NamedTuple):
    """One step of an inference server; None for facts that the mark does not have."""

    server: str  # format of the mark: vLLM, SGLang, ATOM, TensorRT-LLM or diffusion
    mode: str | None  # prefill, decode, mixed (both in one step), or None for a step of diffusion
    batch: int  # number of requests; of pictures for diffusion
    tokens: int | None = None  # tokens that the step computes
    context_tokens: int | None = None  # tokens that they attend to, summed over the requests
    graph_batch: int | None = None  # batch size of the CUDA graph that the step replays


def parse_served_step(name: str) -> ServedStep | None:
    """Parse a step mark; None for other names and for steps without requests."""
    step = _parse(name)
    if step is not None and 0 < step.batch < 1 << 31:
        return step
    return None


def _parse(name: str) -> ServedStep | None:
    if match := _VLLM.match(name):
        fact = _integers(match)
        prompt_tokens = fact["c_sq"] if fact["ct"] is None else fact["ct"]
        decoded_tokens = fact["g_sq"] if fact["gt"] is None else fact["gt"]
        tokens = _sum(prompt_tokens, decoded_tokens)
        context = _sum(fact["c_sk"], fact["g_sk"])
        return _of_requests("vLLM", fact["c"], fact["g"], tokens, context)
    if match := _TENSORRT.match(name):
        fact = _integers(match)
        tokens = None if fact["ct"] is None else _sum(fact["ct"], fact["g"])
        return _of_requests("TensorRT-LLM", fact["c"], fact["g"], tokens, None)
    if match := _SGLANG.match(name):
        facts = {key: int(value) for key, value, _ in _FACT.findall(match["facts"])}
        return _sglang(match["mode"], facts)
    if match := _ATOM.fullmatch(name):
        return _atom(match["mode"], match["facts"])
    if match := _DIFFUSION.match(name):
        return ServedStep("diffusion", None, int(match["batch"]))
    return None


def _sglang(mode: str, fact: dict[str, int]) -> ServedStep:
    batch = fact.get("bs", 0)
    tokens = _sum(fact.get("c_sq"), fact.get("g_sq"))
    if tokens is None:
        tokens = fact.get("toks", batch if mode == "DECODE" else None)
    context = _sum(fact.get("c_sk"), fact.get("g_sk"))
    named = {"EXTEND": PREFILL, "DECODE": DECODE, "MIXED": MIXED}[mode]
    return ServedStep("SGLang", named, batch, tokens, context)


def _atom(mode: str, facts: str) -> ServedStep:
    numbers = {}
    graphs = {}
    for key, value, graph in _FACT.findall(facts):
        numbers[key] = int(value)
        graphs[key] = int(graph) if graph else None
    named = MIXED if numbers.get("p") and numbers.get("d") else mode
    tokens = numbers.get("tok")
    context = numbers.get("sk")
    return ServedStep("ATOM", named, numbers.get("bs", 0), tokens, context, graphs.get("bs"))


def _of_requests(
    server: str, prompts: int | None, decodes: int | None, tokens: int | None, context: int | None
) -> ServedStep:
    prompts = prompts or 0
    decodes = decodes or 0
    if prompts and decodes:
        mode = MIXED
    elif prompts:
        mode = PREFILL
    else:
        mode = DECODE
    return ServedStep(server, mode, prompts + decodes, tokens, context)


def _integers(match: re.Match[str]) -> dict[str, int | None]:
    return {key: None if value is None else int(value) for key, value in match.groupdict().items()}


def _sum(*values: int | None) -> int | None:
    values_ = [value for value in values if value is not None]
    return sum(values_) if values_ else None
