"""The command `sizes`: from a curve and a histogram to a list and the options that set it."""

import io
import json

import pytest

from curvescope.cli import main

from ..server_logs import sglang_log

CURVE = "batch,ms\n" + "".join(
    f"{size},{10 + 2 * size + (20 if size > 8 else 0)}\n" for size in (1, 2, 4, 8, 9, 16, 24, 32)
)


@pytest.fixture
def curve(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text(CURVE)
    return str(path)


def planned(capsys, *words):
    assert main(["sizes", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_list_holds_the_size_before_the_edge_and_the_options_set_it(curve, capsys):
    document = planned(capsys, curve, "--count", "4")
    best = document["lists"][-1]
    assert best["count"] == 4
    assert {8, 32} <= set(best["sizes"])
    spaced = " ".join(map(str, best["sizes"]))
    assert document["options"]["vllm"] == f"vllm serve MODEL --cuda-graph-sizes {spaced}"
    assert document["options"]["sglang"].endswith(f"--cuda-graph-bs {spaced}")
    first = best["sizes"][0]
    assert (
        f"--maxShapes=INPUT:{first} --profile=1 --minShapes=INPUT:{first + 1}"
        in (document["options"]["tensorrt"])
    )
    assert document["run"] == 32
    assert planned(capsys, curve, "--limit", "30ms")["run"] == 8


def test_a_histogram_and_the_present_list_say_what_is_saved(curve, tmp_path, capsys):
    histogram = tmp_path / "sizes.txt"
    histogram.write_text("size,count\n9,900\n32,100\n")
    document = planned(
        capsys, curve, "--histogram", str(histogram), "--count", "2", "--present", "16,32"
    )
    assert document["lists"][-1]["sizes"] == [9, 32]
    # 9 takes 48 ms in place of 62, nine times in ten
    before = 0.9 * 62 + 0.1 * 94
    assert document["present_ms"] == pytest.approx(before, rel=0.02)
    assert document["saving"]["value"] == pytest.approx(0.9 * 14 / before, abs=0.02)
    assert document["saving"]["low"] < document["saving"]["value"] < document["saving"]["high"]
    assert main(["sizes", curve, "--present", "16,32"]) == 0
    assert "Against 16 32 that saves" in capsys.readouterr().out


def test_a_list_that_saves_nothing_is_said_to_take_as_long(curve, capsys):
    assert main(["sizes", curve, "--count", "8", "--present", "4,8,12,16,20,24,28,32"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "that takes as long as far as the curve tells (" in said


def test_a_servers_log_is_curve_and_histogram(tmp_path, capsys):
    log = tmp_path / "server.log"
    requests = [*range(1, 9)] * 30
    log.write_text(sglang_log(requests, lambda count: 10 + count, 32))
    document = planned(capsys, str(log), "--count", "2")
    assert document["lists"][-1]["sizes"][-1] == 8
    assert document["axis"] == "batch"


def test_one_of_several_curves_is_chosen_by_its_words(tmp_path, monkeypatch, capsys):
    text = "batch,old (ms),new (ms)\n1,2,2\n2,3,2\n4,5,3\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["sizes", "-"]) == 2
    assert "2 curves: choose one by --problem WORDS, of old (ms); new (ms)" in (
        " ".join(capsys.readouterr().err.split())
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert planned(capsys, "-", "--problem", "new")["curve"] == "new (ms)"


def test_what_standard_input_lacks_is_said_of_standard_input(monkeypatch, capsys):
    """Its name was that of a temporary file."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"rows,foo\n1,2\n")))
    assert main(["sizes", "-"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("curvescope: standard input: a table with the columns rows, foo.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count", "0"], "one size or more"),
        (["--present", "1,x"], "write sizes of at least 1"),
        (["--histogram", "nothing.txt"], "no such file"),
    ],
)
def test_what_does_not_fit_is_refused(curve, words, message, capsys):
    assert main(["sizes", curve, *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def pass_ms(tokens):
    """A pass whose time is a floor up to eight tokens, then 2.5 ms for each."""
    return max(20.0, 2.5 * tokens)


@pytest.fixture
def passes(tmp_path):
    path = tmp_path / "passes.csv"
    rows = "".join(f"{n},{pass_ms(n)}\n" for n in (1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 16, 24, 32))
    path.write_text("tokens,ms\n" + rows)
    return str(path)


def test_an_acceptance_rate_says_how_many_tokens_to_draft(passes, capsys):
    """The depth with the most tokens a second, by hand, and from which on drafting loses."""
    drafting = planned(capsys, passes, "--noise", "1%", "--acceptance", "0.7")["drafting"]
    speeds = {k: sum(0.7**i for i in range(k + 1)) * 20 / pass_ms(k + 1) for k in range(1, 32)}
    assert drafting["best"] == max(speeds, key=speeds.__getitem__) == 7
    assert drafting["loses_from"] == min(k for k, speed in speeds.items() if speed < 1)
    for depth in drafting["depths"]:
        speed = depth["speedup"]
        assert speed["value"] == pytest.approx(speeds[depth["drafted"]], rel=0.05)
        assert speed["low"] <= speed["value"] <= speed["high"]
    assert main(["sizes", passes, "--acceptance", "70%"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Draft 7 tokens for each pass: with 70% of drafted tokens accepted 3.1" in shown


def test_drafts_that_are_hardly_accepted_do_not_pay_where_each_token_costs(tmp_path, capsys):
    path = tmp_path / "passes.csv"
    path.write_text("tokens,ms\n" + "".join(f"{n},{10 * n}\n" for n in (1, 2, 3, 4, 6, 8)))
    drafting = planned(capsys, str(path), "--acceptance", "0.3")["drafting"]
    assert (drafting["best"], drafting["loses_from"]) == (0, 1)
    path.write_text("tokens,ms\n2,20\n4,21\n8,22\n")
    assert main(["sizes", str(path), "--acceptance", "0.3"]) == 2
    assert "measure sizes from 1 on" in capsys.readouterr().err
