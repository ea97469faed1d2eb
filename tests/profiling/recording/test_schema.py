import pyarrow as pa
import pytest

from curvescope.profiling.recording.schema import TABLES, Aggregate, conform

from ...tables import ask_each

UNIT_WORDS = {
    "ns": "ns",
    "B": "bytes",
    "Hz": "hz",
    "W": "w",
    "°C": "c",
    "FLOP": "flops",
    "µJ": "uj",
}


@ask_each("table", TABLES.values())
def test_units_stand_in_the_names_and_sentences_end(table):
    for column in table.columns:
        assert column.doc.endswith("."), column.name
        if column.unit in UNIT_WORDS:
            assert UNIT_WORDS[column.unit] in column.name.split("_"), column.name
        if column.aggregate is Aggregate.SUM:
            assert column.dtype == pa.int64()


def test_absent_columns_become_null_and_order_is_the_schemas():
    table = TABLES["ranges"]
    data = conform(table, pa.table({"source": ["cupti"], "kind": ["mark"], "name": ["epoch"]}))
    assert data.schema == table.arrow
    assert data["start_ns"].null_count == 1


def test_a_lossy_value_is_refused():
    data = pa.table({"name": ["k"], "source": ["cupti"], "duration_ns": [1.5]})
    with pytest.raises(ValueError, match="truncated"):
        conform(TABLES["kernels"], data)
