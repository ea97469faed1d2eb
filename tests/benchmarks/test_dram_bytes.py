"""Measured against compulsory bytes by layer and phase; kernels without counters are counted and left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "gpu" / "dram_bytes.py"


@pytest.fixture(scope="module")
def dram_bytes():
    spec = importlib.util.spec_from_file_location("dram_bytes", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STEP = pd.DataFrame(
    [
        ("relu1", "forward", 100, 150),
        (None, "forward", None, None),
        ("fc", "forward", 1000, 1100),
        ("fc", "backward", 2000, 2600),
    ],
    columns=["layer", "phase", "bytes_compulsory", "dram_bytes"],
).astype({"bytes_compulsory": "Int64", "dram_bytes": "Int64"})


def test_the_table_has_ratios_and_says_what_is_missing(dram_bytes):
    lines = dram_bytes.table(STEP)
    assert "| fc | backward | 1 | 0.00 | 0.00 | 1.30 |" in lines
    assert lines[-3].startswith("| all |  | 3 |")
    assert "1.24" in lines[-3]  # 3850 of 3100
    assert lines[-1].startswith("1 of 4 kernels")
