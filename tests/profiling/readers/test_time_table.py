"""Tables of times: what is read of the ways that people write them, and what is refused."""

import json
import os

import numpy as np
import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import import_profile, time_table
from curvescope.profiling.recording.axis import axis_of
from curvescope.profiling.recording.store import open_recording

from ...tables import ask_each

ISSUE = """### What happens

On this card 9 rows are slow:

> | **M** | main (us) | `this PR` (us) | speedup |
> |---:|---:|---:|---|
> | 8 | 24.5 | 24.1 | 1.02x |
> | 9 | 1,038.0 | **24.6** | 42x |
> | 16 | 40.1 | OOM | |

Each is the median of 20.
"""


def imported(tmp_path, text, name="times.txt"):
    source = tmp_path / name
    source.write_text(text, encoding="utf-8")
    return open_recording(import_profile(source, tmp_path / "run").path)


def curves(recording):
    """Times in µs by size, of each curve by its name and device."""
    found = {}
    for row in recording.frame("steps").itertuples():
        names = [name for name in (row.problem, row.device_name) if isinstance(name, str)]
        times = found.setdefault(" on ".join(names), {})
        times.setdefault(row.batch, []).append(row.duration_ns / 1e3)
    return {
        name: {size: us[0] if len(us) == 1 else us for size, us in times.items()}
        for name, times in found.items()
    }


def test_rows_become_steps_with_their_problem_device_and_number_of_runs(tmp_path):
    recording = imported(
        tmp_path,
        "problem,device,batch,time_us,n,spread\n"
        '"conv, 3x3",K40,8,1500,100,0.02\n"conv, 3x3",K40,8,1501,,\nfc,,1,2.5,,\n',
    )
    steps = recording.frame("steps")
    assert steps["problem"].tolist() == ["conv, 3x3", "conv, 3x3", "fc"]
    assert steps["duration_ns"].tolist() == [1_500_000, 1_501_000, 2_500]
    assert steps["round"].tolist() == [0, 1, 0]
    assert steps["averaged_steps"].isna().tolist() == [False, True, True]
    assert steps["relative_spread"].iloc[0] == 0.02
    assert steps["device_name"].isna().tolist() == [False, False, True]


def test_a_markdown_table_of_an_issue_is_two_curves_without_the_speedup(tmp_path):
    recording = imported(tmp_path, ISSUE)
    assert curves(recording) == {
        "main (us)": {8: 24.5, 9: 1038.0, 16: 40.1},
        "this PR (us)": {8: 24.1, 9: 24.6},
    }
    assert recording.meta["axis"]["name"] == "m"
    assert recording.meta["lost"]["rows_unreadable"]["count"] == 1


@ask_each(
    "text",
    [
        "batch,ms\n1,2\n2,3\n4,5\n",
        "batch\tlatency_us\n1\t2000\n2\t3000\n4\t5000\n",
        "bs;time (ms)\n1;2\n2;3\n4;5\n",
        "batch size   step time (s)\n1   0.002\n2   0.003\n4   0.005\n",
        "batch ms\n1 2\n2 3\n4 5\n",
        "batch;Zeit (ms)\n1;2,0\n2;3,0\n4;5,0\n",
        "batch  time  rate\n1  2 ms  500 img/s\n2 3.0 ms 667 img/s\n4  5000us   800 img/s\n"
        "That is all.\n",
        "batch | time (mean ± std, ms)\n--|--\n1|2 ± 0.1\n2|3 ± 0.1\n4|5 ± 0.1\n",
        "batch\tLatency ms (± std)\n1\t2±0.1\n2\t3±0.1\n4\t5±0.1\n",
        "# of one card\nbatch_size,samples/s\n1,500\n2,666.66667\n4,800\n",
        "batch | images/s\n--|--\n1|500\n2|666.66667\n4|800\n",
        "bs  ms/image\n1  2\n2  1.5\n4  1.25\n",
        "batch  it/s\n1  500\n2  333.33333\n4  200\n",
        "| batch | time |\n|---|---|\n| 1 | 2 ms |\n| 2 | 3.0 ms |\n| 4 | 5000 µs |\n",
        "| | bs=1 | bs=2 | bs=4 |\n|--|--|--|--|\n| latency | 2 ms | 3 ms | 5 ms |\n",
        "┃ batch ┃ ms ┃\n┡━━━━━━━╇━━━━┩\n│ 1 │ 2 │\n│ 2 │ 3 │\n│ 4 │ 5 │\n└───────┴────┘\n",
        "| Metric | conc=1 | conc=2 | conc=4 |\n|--|--|--|--|\n"
        "| TTFT (ms) | 90 | 99 | 120 |\n| Mean TPOT (ms) | 2 | 3 | 5 |\n",
        "Tuned.\nBatch size: 1, kernel time: 2 ms\nBatch size: 2, kernel time: 3 ms\n"
        "Batch size: 4, kernel time: 5000 us\nDone.\n",
        "Batch size: 1, config: {'BLOCK_M': 16, 'warps': 4}\nKernel time: 2 ms\n"
        "Batch size: 2, config: {'BLOCK_M': 32, 'warps': 4}\nKernel time: 3 ms\n"
        "Batch size: 4, config: {'BLOCK_M': 32, 'warps': 8}\nKernel time: 5 ms\n",
        "On an A100:\n- bs=1: 2 ms\n- bs=2: 3.0 ms\n- bs=4: 5000 us\nwhy?\n",
        "batch 1 -> 2 ms\nbatch 2 -> 3 ms ± 10 µs\nbatch 4 -> 5 ± 0.1 ms\n",
        json.dumps([{"batch": size, "ms": ms} for size, ms in ((1, 2), (2, 3), (4, 5))]),
        json.dumps({"batch_size": [1, 2, 4], "time_ms": [2.0, 3.0, 5.0]}),
        json.dumps({"rows": [{"bs": size, "ms": ms} for size, ms in ((1, 2), (2, 3), (4, 5))]}),
    ],
)
def test_the_same_curve_in_every_form(text, tmp_path_factory):
    (times,) = curves(imported(tmp_path_factory.mktemp("form"), text)).values()
    assert times == pytest.approx({1: 2000, 2: 3000, 4: 5000})


def test_a_spread_in_a_unit_of_its_own_is_a_share_of_the_time(tmp_path):
    text = "batch,time\n1,2 ms ± 20 µs\n2,4 ms ± 0.04\n4,5 ± 0.05 ms\n"
    steps = imported(tmp_path, text).frame("steps")
    assert steps["relative_spread"].tolist() == pytest.approx([0.01] * 3)


def test_two_tables_of_the_same_sizes_are_two_curves(tmp_path):
    """Before and after differed by 10 %, and became one curve of repeats."""
    text = "Before:\n\nbatch,ms\n1,20\n2,30\n\nAfter:\n\nbatch,ms\n1,18\n2,27\n"
    assert curves(imported(tmp_path, text)) == {
        "table 1": {1: 20_000, 2: 30_000},
        "table 2": {1: 18_000, 2: 27_000},
    }


def test_a_table_that_goes_on_below_is_one_curve(tmp_path):
    text = "batch,ms\n1,20\n2,30\n\nLarger ones:\n\nbatch,ms\n4,50\n8,90\n"
    assert curves(imported(tmp_path, text)) == {"": {1: 20_000, 2: 30_000, 4: 50_000, 8: 90_000}}


def test_a_servers_table_is_its_time_per_token_and_not_to_the_first(tmp_path):
    text = (
        "| Config | Conc | Tput (tok/s) | TTFT (ms) | TPOT (ms) | p99 TPOT (ms) |\n"
        "|--|--|--|--|--|--|\n"
        "| **1k/8k** | 4 | 150 | 90 | 3.68 | 9 |\n| | 8 | 273 | 95 | 4.00 | 9 |\n"
        "| **8k/1k** | 4 | 140 | 99 | 3.95 | 9 |\n| | 8 | 240 | 99 | 4.59 | 9 |\n"
    )
    recording = imported(tmp_path, text)
    assert curves(recording) == {"1k/8k": {4: 3680, 8: 4000}, "8k/1k": {4: 3950, 8: 4590}}
    assert recording.meta["axis"] == {"name": "concurrency", "unit": "tokens"}


def test_a_comma_is_decimal_where_the_column_says_so(tmp_path):
    text = "batch;ms;images/s\n1;1.210,5;1,210\n2;3.500;2,420\n4;7,25;4,840\n"
    ms = curves(imported(tmp_path, text))[""]
    assert ms == pytest.approx({1: 1_210_500, 2: 3_500_000, 4: 7_250})


def test_the_latencies_of_clients_are_of_requests(tmp_path):
    recording = imported(tmp_path, "concurrency,latency_ms\n1,20\n2,21\n4,25\n")
    assert axis_of(recording.meta).unit == "requests"


def test_a_rate_of_flops_is_the_time_of_its_shape_and_the_others_tell_curves_apart(tmp_path):
    text = "m,n,k,TFLOP/s\n" + "".join(
        f"{m},{n},1024,{2e-12 * m * n * 1024 / 1e-5}\n" for n in (512, 2048) for m in (1, 2, 4)
    )
    assert curves(imported(tmp_path, text)) == {
        f"n {n}, k 1024": {1: 10, 2: 10, 4: 10} for n in (512, 2048)
    }


def test_a_spread_behind_a_time_is_its_standard_deviation(tmp_path):
    steps = imported(tmp_path, "batch,ms\n1,10 ± 1\n2,20 ± 1\n").frame("steps")
    assert steps["relative_spread"].tolist() == [0.1, 0.05]


def test_rows_that_differ_by_a_third_are_curves_of_their_own_and_others_repeats(tmp_path):
    text = "batch,ms\n1,10\n2,12\n1,15\n2,18\n"
    assert curves(imported(tmp_path, text)) == {
        "#1": {1: 10_000, 2: 12_000},
        "#2": {1: 15_000, 2: 18_000},
    }
    (tmp_path / "again").mkdir()
    repeats = imported(tmp_path / "again", text.replace("15", "11").replace("18", "13"))
    assert curves(repeats) == {"": {1: [10_000, 11_000], 2: [12_000, 13_000]}}


@pytest.mark.slow
def test_many_repeats_become_the_medians_of_blocks(tmp_path):
    """A megabyte is read in pieces; block medians keep the median and the drift of the repeats."""
    random = np.random.default_rng(3)
    sizes = random.permutation(np.repeat([1, 2, 4, 8], 40_000))
    ms = (5.0 + sizes) * (1 + 0.1 * random.random(len(sizes)))
    text = "batch,ms\n" + "".join(f"{a},{b:.4f}\n" for a, b in zip(sizes, ms, strict=True))
    assert len(text) > 1 << 20
    steps = imported(tmp_path, text).frame("steps")
    assert steps.groupby("batch").size().tolist() == [32] * 4
    medians = steps.groupby("batch").duration_ns.median() / 1e6
    assert medians.to_numpy() == pytest.approx(1.05 * np.array([6.0, 7.0, 9.0, 13.0]), rel=0.005)


def test_rows_of_one_size_are_medians_before_all_are_read(monkeypatch):
    """Ten million rows took 1.5 GB, as all were kept to the end."""
    monkeypatch.setattr(time_table, "_RUN", 20_000)
    random = np.random.default_rng(5)
    rows, most = time_table._Rows(), 0
    for _ in range(60):
        sizes = random.choice([1, 2, 4, 1000], 5_000, p=[0.5, 0.3, 0.199, 0.001])
        ns = (5.0 + sizes) * (1 + 0.1 * random.random(5_000))
        rows.add(sizes, ns, ns, ns, np.zeros(5_000, np.int64))
        most = max(most, sum(map(len, rows.ns)))
    assert rows.count == 300_000
    assert most < 35_000
    read_sizes, read_ns = np.concatenate(rows.sizes), np.concatenate(rows.ns)
    for size in (1, 2, 4, 1000):
        expected = 1.05 * (5 + size)
        assert np.median(read_ns[read_sizes == size]) == pytest.approx(expected, rel=0.01)
    # the few rows of the rare size are all there
    assert (read_sizes == 1000).sum() > 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("rows,foo\n1,2\n", "with the columns rows, foo. It lacks a time or rate with its unit"),
        ("problem,batch,time\na,1,2\n", "the columns problem, batch, time. It lacks a time"),
        ("card,ms\nK40,2\n", r"the columns card, ms. It lacks a size \(batch, concurrency"),
        (
            "num_seqs  trt_mean\n1  0.031\n4  0.030\n",
            "the columns num_seqs, trt_mean. It lacks a time",
        ),
        (json.dumps({"foo": [1, 2], "ms": [2, 3]}), "the columns foo, ms. It lacks a size"),
        ("problem,batch,time_ms\na,1,2\na,2\n", "line 3: the number of values"),
        ("problem,batch,time_ms\na,1.5,2\n", "line 2: batch is '1.5'; it must be a whole number"),
        ("problem,batch,time_ms\na,1,-2\n", "line 2: time_ms is '-2'"),
        ("problem,batch,time_ms\na,1,2\na,2,inf\n", "line 3: time_ms is 'inf'"),
        ("batch,ms\n1,OOM\n2,-\n", "has no rows"),
        ("| context | ms |\n|--|--|\n| 1K | 2 |\n", "line 3: context is '1K'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(tmp_path, text, message):
    with pytest.raises(CurvescopeError, match=message):
        imported(tmp_path, text)
    assert not (tmp_path / "run").exists()


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "times.csv")
    with pytest.raises(CurvescopeError, match=r"times\.csv"):
        import_profile(tmp_path / "times.csv", tmp_path / "r")
