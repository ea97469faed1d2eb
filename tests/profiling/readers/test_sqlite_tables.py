"""Tables read by ADBC's driver against the same by Python's sqlite3, for any schema and content,
and damaged.
"""

import itertools
import sqlite3
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers import sqlite_tables
from curvescope.profiling.readers.sqlite_tables import SqliteTables

NUMBERS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 127, 128, -129, 2**23, 2**47]),
)
TEXTS = st.one_of(st.none(), st.text(max_size=20), st.integers(0, 9000).map(lambda n: "é" * n))
WANTED = {
    "a": pa.int64(),
    "t": pa.string(),
    "b": pa.int64(),
    "id": pa.int64(),
    "absent": pa.int64(),
}
counter = itertools.count()


def write(
    path, rows, page_bytes=4096, schema="id INTEGER PRIMARY KEY, a INTEGER, t TEXT, b INTEGER"
):
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA page_size = {page_bytes}")
    database.execute(f"CREATE TABLE x ({schema})")
    database.executemany("INSERT INTO x (a, t, b) VALUES (?, ?, ?)", rows)
    database.commit()
    database.close()


def read(path, wanted, *, adbc):
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
    try:
        return SqliteTables(connection, path if adbc else None).read("x", wanted)
    finally:
        connection.close()


@pytest.fixture
def used(monkeypatch):
    """Counts the rows that ADBC's driver read, the one it learns the types from included."""
    calls = []
    original = sqlite_tables._next

    def counted(*arguments):
        table = original(*arguments)
        if table is not None:
            calls.append(table.num_rows)
        return table

    monkeypatch.setattr(sqlite_tables, "_next", counted)
    return calls


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.lists(st.tuples(NUMBERS, TEXTS, NUMBERS), max_size=60),
    st.sampled_from([512, 1024, 4096, 65536]),
    st.integers(1, 70),
)
def test_both_ways_read_the_same(tmp_path_factory, rows, page_bytes, batch):
    path = tmp_path_factory.getbasetemp() / f"{next(counter)}.sqlite"
    write(path, rows, page_bytes)
    whole = sqlite_tables.BATCH_ROWS
    try:
        sqlite_tables.BATCH_ROWS = batch
        found, expected = read(path, WANTED, adbc=True), read(path, WANTED, adbc=False)
    finally:
        sqlite_tables.BATCH_ROWS = whole
        path.unlink()
    found.validate(full=True)
    assert found.equals(expected)
    assert found["a"].to_pylist() == [a for a, _, _ in rows]


def test_a_large_table_is_read_by_adbc(tmp_path, used):
    rows = [(i * i, f"name {i}", None if i % 3 else -i) for i in range(50_000)]
    write(tmp_path / "p", rows, 512)
    table = read(tmp_path / "p", WANTED, adbc=True)
    assert sum(used) == 1 + len(rows)
    assert table["id"].to_pylist() == list(range(1, len(rows) + 1))
    assert list(zip(*(table[c].to_pylist() for c in "atb"), strict=True)) == rows


def test_ranges_of_row_ids_are_read_in_order_whatever_is_missing_between_them(
    tmp_path, used, monkeypatch
):
    monkeypatch.setattr(sqlite_tables, "BATCH_ROWS", 12)  # ten row ids and the typed row in a range
    ids = [-61, -60, -52, *range(-3, 17), 90, 91, 130]
    write(
        tmp_path / "p",
        [(row_id, f"name {row_id}", None) for row_id in ids],
        schema="a INTEGER PRIMARY KEY, t, b",
    )
    assert read(tmp_path / "p", {"a": pa.int64()}, adbc=True)["a"].to_pylist() == ids
    assert sum(used) == 20 + len(ids)  # -61 to 130: twenty ranges


@pytest.mark.parametrize(("right", "wrong"), [(119, 50), (119, 120), (60, 110), (60, 2), (1, 100)])
@pytest.mark.parametrize("page_bytes", [512, 4096])
@pytest.mark.parametrize("unread", [None, 45, 90])
def test_a_damaged_row_id_drops_and_repeats_no_row(
    tmp_path, monkeypatch, right, wrong, page_bytes, unread
):
    """Ranges of ids would leave out or repeat rows; where a value is of another type, sqlite3 reads
    the others.
    """
    monkeypatch.setattr(sqlite_tables, "BATCH_ROWS", 12)
    rows = [(float(i) if i == unread else i + 1, f"name {i:3}", None) for i in range(1, 120)]
    write(tmp_path / "p", rows, page_bytes, schema="id INTEGER PRIMARY KEY, a, t, b")
    data = (tmp_path / "p").read_bytes()
    # the id, the record's header of 5 bytes, and a's value are before it
    at = data.index(b"name %3d" % right) - 7
    assert data[at : at + 2] == bytes([right, 5])
    (tmp_path / "p").write_bytes(data[:at] + bytes([wrong]) + data[at + 1 :])
    try:
        found = read(tmp_path / "p", {"t": pa.string(), "a": pa.int64()}, adbc=True)[
            "t"
        ].to_pylist()
    except CurvescopeError as error:
        found = str(error)
    assert found == [name for _, name, _ in rows] or "row ids of table x are out of order" in found


def test_far_apart_row_ids_are_read_at_once(tmp_path, used, monkeypatch):
    monkeypatch.setattr(sqlite_tables, "BATCH_ROWS", 2)
    ids = [-(2**63), 0, 2**63 - 1]
    write(
        tmp_path / "p", [(row_id, "x", 1) for row_id in ids], schema="a INTEGER PRIMARY KEY, t, b"
    )
    assert read(tmp_path / "p", {"a": pa.int64()}, adbc=True)["a"].to_pylist() == ids
    assert sum(used) == 1 + len(ids)


@pytest.mark.parametrize(
    "schema",
    [
        "a INTEGER PRIMARY KEY, t TEXT, b INTEGER, id INTEGER) WITHOUT ROWID --",
        "a INTEGER, t TEXT, b INTEGER, id INTEGER DEFAULT 7",
        "a INTEGER, t TEXT, b REAL, id INTEGER",
    ],
)
def test_any_table_is_read_alike(schema, tmp_path):
    write(tmp_path / "p", [(1, "x", 2), (3, None, 4)], schema=schema)
    assert read(tmp_path / "p", WANTED, adbc=True).equals(read(tmp_path / "p", WANTED, adbc=False))


@pytest.mark.parametrize("adbc", [False, True])
def test_a_computed_column_is_refused(adbc, tmp_path):
    write(
        tmp_path / "p", [(1, "x", 2)], schema="a INTEGER, t TEXT, b INTEGER, id INTEGER AS (a + 1)"
    )
    with pytest.raises(CurvescopeError, match="column id of table x is computed"):
        read(tmp_path / "p", WANTED, adbc=adbc)


def test_columns_added_after_the_rows_are_null_there(tmp_path, used):
    write(tmp_path / "p", [(1, "x", 2)])
    with sqlite3.connect(tmp_path / "p") as database:
        database.execute("ALTER TABLE x ADD COLUMN late TEXT")
        database.execute("INSERT INTO x (a, late) VALUES (5, 'y')")
    found = read(tmp_path / "p", {"late": pa.string(), "a": pa.int64()}, adbc=True).to_pylist()
    assert found == [{"late": None, "a": 1}, {"late": "y", "a": 5}]
    assert sum(used) == 1 + 2


def test_a_value_of_another_type_is_found_by_sqlite_in_its_row(tmp_path):
    write(tmp_path / "p", [(i, "x", i) for i in range(100)] + [("text", "x", 1)])
    with pytest.raises(CurvescopeError, match="wrong type"):
        read(tmp_path / "p", WANTED, adbc=True)


def test_a_number_in_a_column_of_texts_is_given_as_its_digits(tmp_path):
    write(tmp_path / "p", [(1, 7, 2), (3, "x", 4)], schema="a INTEGER, t, b INTEGER")
    assert read(tmp_path / "p", {"t": pa.string()}, adbc=True)["t"].to_pylist() == ["7", "x"]


def test_text_that_is_no_utf8_is_repaired_alike(tmp_path):
    write(tmp_path / "p", [(1, "good", 2)])
    with sqlite3.connect(tmp_path / "p") as database:
        database.execute("UPDATE x SET t = CAST(x'ff41fe' AS TEXT)")
    found = read(tmp_path / "p", WANTED, adbc=True)
    assert found["t"].to_pylist() == ["\ufffdA\ufffd"]
    assert found.equals(read(tmp_path / "p", WANTED, adbc=False))


@pytest.mark.slow
def test_damage_is_refused_or_read_and_never_crashes_or_hangs(tmp_path):
    write(tmp_path / "whole", [(i * 977, "n" * (i * 37 % 3000), -i) for i in range(400)], 512)
    whole = (tmp_path / "whole").read_bytes()
    refused = 0
    for number in range(150):
        random = Random(number)
        data = bytearray(whole)
        for _ in range(random.choice((1, 5, 50))):
            at = random.randrange(100, len(data))
            data[at] = random.choice((0, 1, 5, 13, 0x7F, 0x80, 0xFF, random.randrange(256)))
        path = tmp_path / "damaged"
        path.write_bytes(data[: random.choice((len(data), random.randrange(600, len(data))))])
        outcomes = []
        for adbc in (True, False):
            try:
                outcomes.append(read(path, WANTED, adbc=adbc))
            except CurvescopeError:
                outcomes.append("refused")
        assert outcomes[0] == outcomes[1]
        refused += outcomes[0] == "refused"
    assert 20 < refused < 150
