"""Recordings side by side, made by hand."""

import csv
import io

import pytest

from curvescope.analysis.step_table import (
    by_batch,
    by_device,
    cells_of,
    common_batch,
    read_published_cells,
    to_csv,
    to_markdown,
)
from curvescope.profiling.recording.store import RecordingWriter, columns_of, open_recording

MS = 1_000_000


def recording(
    path,
    device="Card A",
    network="alexnet",
    times_ms=((1, (10, 11, 12)), (2, (18, 20, 22))),
    **meta,
):
    described = {
        "network": network,
        "mode": "training",
        "device": {"name": device},
        "versions": {"torch": "2.13.0"},
        "protocol": {"name": "quick", "statistic": "median"},
        **meta,
    }
    shared = {"index": 0, "mode": "training", "profiled": False}
    rows = [
        {
            "batch": batch,
            "round": round_,
            "duration_ns": int(ms * MS),
            "peak_memory_bytes": batch * 1000 + round_,
        }
        for batch, of_batch in times_ms
        for round_, ms in enumerate(of_batch)
    ]
    with RecordingWriter(path, described) as writer:
        if rows:
            writer.write(
                "steps",
                columns_of([{"step": step, **row, **shared} for step, row in enumerate(rows)]),
            )
    return open_recording(path)


def test_an_entry_has_time_interval_n_rate_memory_and_where(tmp_path):
    one, two = cells_of(recording(tmp_path / "r"))
    assert (one.batch, one.time_ms, one.n, one.samples_per_s) == (
        1,
        11.0,
        3,
        pytest.approx(1000 / 11),
    )
    assert one.low_ms < 11 < one.high_ms
    assert (two.peak_memory_bytes, two.origin) == (2002, "measured")
    assert (two.device, two.framework) == ("Card A", "torch 2.13.0")
    assert two.configuration == "training fp32"


def test_an_empty_entry_says_why_and_a_missing_one_that_it_is_missing(tmp_path):
    made = recording(
        tmp_path / "r",
        batches=[1, 2, 4, 8],
        unmeasured=[{"batch": 4, "round": 0, "why": "out of memory", "detail": ""}],
    )
    cells = cells_of(made)
    assert [(c.batch, c.empty) for c in cells] == [
        (1, None),
        (2, None),
        (4, "out of memory"),
        (8, "not measured yet"),
    ]
    assert [c.time_ms is None for c in cells] == [False, False, True, True]


def test_one_round_has_no_interval_and_a_sweep_without_a_step_no_time(tmp_path):
    (cell,) = cells_of(recording(tmp_path / "one", times_ms=((1, (10,)),)))
    assert (cell.time_ms, cell.low_ms, cell.high_ms) == (10.0, None, None)
    (cell,) = cells_of(recording(tmp_path / "none", times_ms=(), batches=[1]))
    assert cell.time_ms is None
    assert not cells_of(
        recording(tmp_path / "imported", times_ms=(), batches=None)
    )  # no batch size is known


def test_grids_by_batch_and_by_device(tmp_path):
    cells = [
        *cells_of(recording(tmp_path / "a")),
        *cells_of(
            recording(tmp_path / "b", device="Card B", times_ms=((2, (5, 5, 5)), (16, (9, 9, 9))))
        ),
    ]
    grid = by_batch(cells)
    assert grid.columns == ("1", "2", "16")
    assert [keys[2] for keys, _ in grid.rows] == ["Card A", "Card B"]
    assert [c and c.time_ms for c in grid.rows[1][1]] == [None, 5.0, 9.0]
    assert common_batch(cells) == 2
    grid = by_device(cells, 2)
    assert grid.columns == ("Card A", "Card B")
    (row,) = grid.rows
    assert [c.time_ms for c in row[1]] == [20.0, 5.0]
    assert to_markdown(grid, lambda c: f"{c.time_ms:g}").splitlines() == [
        "| network | step | framework | Card A | Card B |",
        "| --- | --- | --- | ---: | ---: |",
        "| alexnet | training fp32 | torch 2.13.0 | 20 | 5 |",
    ]


def test_csv_has_a_line_per_entry_and_leaves_unknown_values_empty(tmp_path):
    cells = [*cells_of(recording(tmp_path / "a")), *read_published_cells(["alexnet"])]
    rows = list(csv.DictReader(io.StringIO(to_csv(cells))))
    assert len(rows) == len(cells)
    assert float(rows[0]["time_ms"]) == 11.0
    assert rows[-1]["n"] == rows[-1]["spread"] == rows[-1]["low_ms"] == ""


def test_published_figures_stand_under_their_own_device_and_are_marked():
    cells = read_published_cells(["alexnet"])
    assert {c.origin for c in cells} == {"published"}
    k40m = {
        c.batch: c.time_ms
        for c in cells
        if c.device == "Tesla K40m" and c.framework.startswith("Paddle")
    }
    assert (k40m[256], k40m[512]) == (602.0, 1629.0)
    assert all(c.device_and_origin.endswith("(published)") for c in cells)
    (vgg,) = (c for c in read_published_cells(["vgg"]) if c.batch == 128)
    assert (vgg.device, vgg.time_ms) == ("GTX 1080", 899.86)


def test_devices_are_compared_at_a_batch_that_was_measured(tmp_path):
    cells = [*cells_of(recording(tmp_path / "a")), *read_published_cells(["alexnet"])]
    assert common_batch(cells) == 2
    assert common_batch(read_published_cells(["alexnet"])) == 128
    assert common_batch([]) is None
