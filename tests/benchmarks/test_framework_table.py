"""The founding table: which run of a cell is shown."""

from benchmarks import framework_table


def test_of_a_cell_that_ran_twice_the_one_with_less_load_is_shown(monkeypatch, tmp_path):
    cell = '"network": "alexnet", "mode": "forward", "batch": 4, "cores": 1, "failed"'
    path = tmp_path / "results"
    runs = [(4.0, "busy"), (0.5, "quiet"), (2.0, "later")]
    path.write_text("".join(f'{{"load": [{load}], {cell}: "{what}"}}\n' for load, what in runs))
    monkeypatch.setattr(framework_table, "RESULTS", path)
    assert framework_table.table(framework_table.shown()) == [
        "| alexnet | forward | 4 | 1 | quiet |"
    ]
