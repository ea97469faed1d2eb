"""Tables of llama.cpp's benchmarks become tables of times."""

import json
import re
from pathlib import Path

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.cli import main
from curvescope.profiling.readers import import_profile
from curvescope.profiling.recording.store import open_recording

BATCHED = Path(__file__).parents[2] / "data" / "server_logs" / "llama_batched.md"
HEAD = (
    "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | "
    "---: | ---: |\n"
)


def bench(*tests):
    """A table of `llama-bench`: tests with their tokens per second."""
    rows = (
        f"| moe 30B Q4_K | 17 GiB | 30 B | CUDA | 99 | {test} | {rate:.2f} ± 1.00 |\n"
        for test, rate in tests
    )
    return HEAD + "".join(rows) + "\nbuild: 1234 (abc)\n"


# ik_llama.cpp 1630: a mixture of experts at 1 to 4 tokens
EXPERTS = bench(("pp1", 170), ("pp2", 111), ("pp3", 146), ("pp4", 175), ("tg128", 170))


def steps_of(tmp_path, text):
    path = tmp_path / "table.md"
    path.write_text(text)
    return open_recording(import_profile(path, tmp_path / "run").path).frame("steps")


def test_a_published_table_of_parallel_sequences_has_a_decode_and_a_prefill_curve(tmp_path):
    steps = open_recording(import_profile(BATCHED, tmp_path / "run").path).frame("steps")
    decode = steps[steps["problem"].str.startswith("decode")]
    assert decode["batch"].tolist() == [1, 2, 4, 8, 16, 32]
    assert decode["duration_ns"].iloc[0] == round(4.076e9 / 128)
    assert steps["problem"].nunique() == 2


def test_prompts_lie_on_an_axis_of_tokens_and_single_tokens_do_not(tmp_path):
    steps = steps_of(tmp_path, EXPERTS)
    assert steps["batch"].tolist() == [1, 2, 3, 4]
    assert steps["duration_ns"].iloc[1] == round(2e9 / 111)
    assert steps["relative_spread"].iloc[1] == pytest.approx(1 / 111)
    assert set(steps["problem"]) == {"moe 30B Q4_K, CUDA, 99, prompt"}


def test_the_fall_from_one_token_to_two_is_an_anomaly_and_the_command_names_the_file(
    tmp_path, capsys
):
    path = tmp_path / "table.md"
    path.write_text(EXPERTS)
    assert main(["explain", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recording"] == str(path)
    (curve,) = document["series"]
    found = [(one["before"], one["at"]) for one in curve["events"] if one["certainty"] == "is"]
    assert found == [(1, 2)]
    path.write_text(EXPERTS + bench(("pp1", 90), ("pp2", 91)).replace("30B", "8B"))
    assert main(["explain", str(path)]) == 0
    assert f"curvescope explain {path} --problem" in capsys.readouterr().out


def test_a_table_without_an_axis_is_refused(tmp_path):
    with pytest.raises(CurvescopeError, match="llama-bench -p 1,2,4,8"):
        steps_of(tmp_path, bench(("tg128", 170)))


def test_depths_are_an_axis_where_a_length_has_several(tmp_path):
    """The context in the middle of a test; without a depth none was before it."""
    table = bench(
        ("pp2048", 1000), ("tg32", 50), ("pp2048 @ d4096", 800), ("tg32 @ d4096", 40),
        ("tg32 @ d8192", 20), ("pp512+tg128", 9),
    )  # fmt: skip
    steps = steps_of(tmp_path, table)
    named = dict(list(steps.groupby("problem")))
    token = named["moe 30B Q4_K, CUDA, 99, a generated token over the tokens of context"]
    assert token["batch"].tolist() == [16, 4112, 8208]
    assert token["duration_ns"].tolist() == [20_000_000, 25_000_000, 50_000_000]
    prompt = named["moe 30B Q4_K, CUDA, 99, 2048 prompt tokens over the tokens of context"]
    assert prompt["batch"].tolist() == [1024, 5120]
    assert prompt["duration_ns"].tolist() == [2_048_000_000, 2_560_000_000]


def test_prompts_of_several_lengths_at_several_depths_stay_curves_over_their_tokens(tmp_path):
    tests = [(f"pp{n}{d}", n) for d in ("", " @ d4096") for n in (128, 256, 512)]
    steps = steps_of(tmp_path, bench(*tests))
    assert set(steps["batch"]) == {128, 256, 512}
    assert steps["problem"].nunique() == 2


@pytest.mark.parametrize("sign", ["Â±", "┬▒"])
def test_a_table_that_a_windows_console_wrote_and_one_of_2024_are_read(tmp_path, sign):
    """`pp 512` stands in ggml-org/llama.cpp 2059."""
    steps = steps_of(tmp_path, EXPERTS.replace("±", sign).replace("pp", "pp "))
    assert steps["batch"].tolist() == [1, 2, 3, 4]


# ikawrakow/ik_llama.cpp 287
SWEEP = """\
|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |
|-------|--------|--------|----------|----------|----------|----------|
|   512 |    128 |      0 |   58.226 |     8.79 |   44.387 |     2.88 |
|   512 |    128 |    512 |   58.371 |     8.77 |   49.335 |     2.59 |
|   512 |    128 |   1024 |   64.067 |     7.99 |   47.876 |     2.67 |
"""


def test_a_sweep_over_the_context_has_a_curve_of_each_phase(tmp_path):
    steps = steps_of(tmp_path, SWEEP)
    named = dict(list(steps.groupby("problem")))
    decode = named["decode of 128 tokens over the tokens of context"]
    assert decode["batch"].tolist() == [64, 576, 1088]
    assert decode["duration_ns"].iloc[0] == round(44.387e9 / 128)
    prefill = named["prefill of 512 tokens over the tokens of context"]
    assert prefill["batch"].tolist() == [256, 768, 1280]
    assert prefill["duration_ns"].iloc[0] == 58_226_000_000


def test_a_table_of_single_sizes_says_that_there_is_nothing_to_compare(tmp_path, capsys):
    path = tmp_path / "table.md"
    path.write_text(bench(("pp512", 490), ("tg128", 86)) + bench(("pp512", 644)).replace("99", "0"))
    assert main(["explain", str(path)]) == 0
    assert "No curve has two sizes to compare" in capsys.readouterr().out


def test_tables_of_several_models_are_curves_of_their_own(tmp_path):
    """They were repeats of one curve, with a spread of 107 %."""
    text = BATCHED.read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    slow = re.sub(r"\d+\.\d+", lambda match: f"{3 * float(match[0]):.3f}", "\n".join(rows))
    steps = steps_of(tmp_path, f"{text}\n\nanother model\n\n{slow}\n")
    decode = steps[steps["problem"].str.startswith("decode")]
    assert {name[-2:] for name in decode["problem"]} == {"#1", "#2"}
    assert set(decode["round"]) == {0}
    first, second = (part.duration_ns.to_numpy() for _, part in decode.groupby("problem"))
    assert second == pytest.approx(3 * first, rel=0.01)


def test_tables_that_repeat_one_another_are_repeats(tmp_path):
    steps = steps_of(tmp_path, BATCHED.read_text() + "\n" + BATCHED.read_text())
    assert set(steps["round"]) == {0, 1}
    assert steps["problem"].nunique() == 2
