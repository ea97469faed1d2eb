"""Columns of kernels that their names tell: source names, and the operators and work of generated
kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

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


def find_fused_operators(names: pa.ChunkedArray, operators: Mapping[str, str]) -> pa.Array | None:
    """The operators in each generated kernel, as far as known, else by its name; None if there is
    no such kernel.
    """
    encoded = dictionary(names)
    if (
        not operators
        and not pc.any(pc.match_substring(encoded.dictionary, "_fused_"), min_count=0).as_py()
    ):
        return None
    texts = []
    for name in encoded.dictionary.to_pylist():
        texts.append(operators.get(name) or shares_of_name(name))
    of_kernels = pa.array(texts, pa.string()).take(encoded.indices)
    return of_kernels.dictionary_encode()


def with_flops(
    names: pa.ChunkedArray, flops_by_name: Mapping[str, int], counted: pa.Array | None
) -> pa.Array:
    """FLOPs of each kernel: those that were counted, else the known ones of its name."""
    encoded = dictionary(names)
    by_name = map(flops_by_name.get, encoded.dictionary.to_pylist())
    flops = pa.array(by_name, pa.int64()).take(encoded.indices)
    if counted is None:
        return flops
    return pc.coalesce(counted, flops)
