"""Tables of llama.cpp's benchmarks become tables of times."""

import json
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
    found = {one["tested"]["label"] for one in curve["findings"] if one["verdict"] == "anomaly"}
    assert "excess 1→2" in found
    path.write_text(EXPERTS + bench(("pp1", 90), ("pp2", 91)).replace("30B", "8B"))
    assert main(["explain", str(path)]) == 0
    assert f"curvescope explain {path} --problem" in capsys.readouterr().out


def test_a_table_without_an_axis_is_refused(tmp_path):
    with pytest.raises(CurvescopeError, match="llama-bench -p 1,2,4,8"):
        steps_of(tmp_path, bench(("tg128", 170)))
