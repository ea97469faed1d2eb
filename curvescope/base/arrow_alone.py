"""Starts Arrow without pandas, which it imports with its first array, only to know the types of
pandas.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def start_without_pandas() -> None:
    """Let Arrow look for pandas once, and miss it: its import takes a fifth of a small profile's
    import.

    Arrow looks again in `to_pandas`. Until then it takes a Series for a sequence, with NaN as a
    number. So call this only in commands that give Arrow no Series. Does nothing if pandas is
    imported already.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
