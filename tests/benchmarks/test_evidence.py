"""Tables of evidence are replaced one at a time, and all of them can be read."""

import json

from benchmarks import evidence


def test_a_table_gets_new_cells_and_a_date_and_the_others_stay(monkeypatch, tmp_path):
    path = tmp_path / "tables.json"
    table = {
        "made_by": "a script",
        "date": "2026-01-01",
        "says": "x",
        "sweeps": 9,
        "head": ["a"],
        "rows": [["1"]],
    }
    path.write_text(json.dumps({"first": table, "second": table}))
    monkeypatch.setattr(evidence, "TABLES", path)
    evidence.keep("second", ("b", "c"), [("2", "é"), ("3", "")], 7)
    first, second = evidence.read_tables().values()
    assert first == evidence.Table(**table)
    assert (second.made_by, second.sweeps, second.head) == ("a script", 7, ["b", "c"])
    assert second.column("c") == ["é", ""]
    assert second.date > first.date
    assert second.lines() == ["| b | c |", "| --- | --- |", "| 2 | é |", "| 3 |  |"]


def test_every_kept_table_is_whole_and_as_it_would_be_written(monkeypatch, tmp_path):
    tables = evidence.read_tables()
    assert all(len(row) == len(table.head) for table in tables.values() for row in table.rows)
    assert all(table.made_by and table.date and table.says for table in tables.values())
    name, table = next(iter(tables.items()))
    copy = tmp_path / "tables.json"
    copy.write_text(evidence.TABLES.read_text())
    before = copy.read_text()
    monkeypatch.setattr(evidence, "TABLES", copy)
    evidence.keep(name, table.head, table.rows, table.sweeps)
    dated = f'"date": "{evidence.read_tables()[name].date}"'
    assert copy.read_text() == before.replace(f'"date": "{table.date}"', dated, 1)
