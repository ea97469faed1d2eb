"""Columns of kernels that their names tell: source names, and operators of generated kernels."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ..native import demangle
from .columns import dictionary
from .fused_kernels import shares_of_name
from .range_names import scrub


def demangle_names(batch: pa.Table) -> pa.Table:
    """The kernels with the names that C++ programs have in their sources, where the profiler wrote
    the linker's.
    """
    names = dictionary(batch["name"])
    if not pc.any(pc.starts_with(names.dictionary, "_Z"), min_count=0).as_py():
        return batch
    texts = [scrub(demangle(name)) for name in names.dictionary.to_pylist()]
    in_source = pa.DictionaryArray.from_arrays(names.indices, pa.array(texts, pa.string()))
    return batch.set_column(batch.column_names.index("name"), "name", in_source)


def find_fused_operators(names: pa.ChunkedArray) -> pa.Array | None:
    """The operators in each generated kernel, by its name; None if there is no such kernel."""
    encoded = dictionary(names)
    if not pc.any(pc.match_substring(encoded.dictionary, "_fused_"), min_count=0).as_py():
        return None
    texts = map(shares_of_name, encoded.dictionary.to_pylist())
    of_kernels = pa.array(texts, pa.string()).take(encoded.indices)
    return of_kernels.dictionary_encode()
