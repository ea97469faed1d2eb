"""The ranges of a profile as spans: the meanings of their names, and the arguments of operators."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import Timed, code_column, count_true, dictionary, factorize, int_column
from .nesting import NONE, Ints
from .operation import Operation
from .outermost_operators import read_scalar
from .placement import HostSpans, name_at
from .profile import Options
from .range_names import LONGEST_NAME, MODULE_CALL, OWN_DOMAIN, RangeNames, fold_counters, scrub


def layer_classes(ranges: pa.Table, names: RangeNames) -> dict[str, str]:
    """Class of each layer, by path: the category of the ranges of `workload.annotate`, and of
    torch's modules.
    """
    keys = [key for key in ("name", "domain", "role", "category") if key in ranges.column_names]
    if "category" not in keys:
        return {}
    marked = ranges.select(keys).filter(pc.is_valid(ranges["category"]))
    spans = {}
    for row in marked.group_by(keys).aggregate([]).to_pylist():
        domain = row.get("domain")
        role = row.get("role")
        layer = names.read(row["name"], domain, role).layer
        if layer is not None and (domain == OWN_DOMAIN or role == MODULE_CALL):
            spans[layer] = row["category"]
    return spans


def read_spans(
    table: pa.Table, options: Options, lost: Counter[str]
) -> tuple[pa.Table, HostSpans, list[str]]:
    """The readable ranges with scrubbed names; the same as spans; the name of each entry of
    `HostSpans.meanings`.
    """
    times = Timed(table)
    unclosed = table["end_ns"].is_null().to_numpy().astype(bool)
    lost["ranges_unclosed"] += count_true(unclosed)
    lost["negative_durations"] += count_true(times.backwards)
    if not times.complete.all():
        table = table.filter(pa.array(times.complete))
    # The meaning of a name depends on its domain and role, too.
    name, texts = _encode_column(table, "name")
    domain, domains = _encode_column(table, "domain")
    role, roles = _encode_column(table, "role")
    of_domain = name * (len(domains) + 1) + domain + 1
    code, distinct = factorize(of_domain * (len(roles) + 1) + role + 1)
    full = []
    meanings = []
    for number in distinct.tolist():
        number, role_code = divmod(number, len(roles) + 1)
        number, domain_code = divmod(number, len(domains) + 1)
        domain_name = domains[domain_code - 1] if domain_code else None
        role_name = roles[role_code - 1] if role_code else None
        full.append(texts[number])
        meanings.append(options.names.read(texts[number], domain_name, role_name))
    meanings = fold_counters(meanings, np.bincount(code, minlength=len(meanings)))
    names = [scrub(text, LONGEST_NAME) for text in full]
    indices = pa.array(code.astype(np.int32))
    codes = pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
    table = table.set_column(table.column_names.index("name"), "name", codes)
    call, operations = _operations(table, code, full)
    has_operators = "role" in table.column_names
    spans = HostSpans(
        int_column(table, "start_ns"),
        int_column(table, "end_ns"),
        int_column(table, "thread_key"),
        int_column(table, "process"),
        code,
        meanings,
        int_column(table, "sequence") if has_operators else None,
        int_column(table, "forward_thread") if has_operators else None,
        call,
        operations,
    )
    return table, spans, names


def _encode_column(table: pa.Table, column: str) -> tuple[Ints, list[str]]:
    if column not in table.column_names:
        return np.full(table.num_rows, NONE, np.int64), []
    encoded = dictionary(table[column])
    return code_column(encoded), encoded.dictionary.to_pylist()


def _operations(
    table: pa.Table, name: Ints, names: Sequence[str]
) -> tuple[Ints | None, list[Operation]]:
    """The arguments of operators: an index for each, `NONE` if no shapes were recorded, and the
    distinct calls.
    """
    if "shapes" not in table.column_names:
        return None, []
    fields = ("shapes", "dtypes", "concrete", "strides")
    columns = [_encode_column(table, field) for field in fields]
    call = np.full(len(name), NONE, np.int64)
    rows = np.flatnonzero(columns[0][0] != NONE)
    key = name[rows]
    for code, texts in columns:
        key, _ = factorize(key * (len(texts) + 1) + code[rows] + 1)
    _, first = np.unique(key, return_index=True)
    call[rows] = key
    operations = []
    for row in rows[first].tolist():
        arguments = [_parse_list(name_at(texts, int(code[row]))) for code, texts in columns]
        shapes, dtypes, concrete, strides = arguments
        values = list(map(read_scalar, concrete))
        operations.append(Operation(names[name[row]], shapes, dtypes, values, strides))
    return call, operations


def _parse_list(text: str | None) -> list[Any]:
    value = json.loads(text) if text else []
    return value if isinstance(value, list) else []
