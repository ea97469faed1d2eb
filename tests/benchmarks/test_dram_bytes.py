"""Measured against compulsory bytes: kernels of two tools joined by the order of their names, never guessed."""

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


def profiled(*rows):
    frame = pd.DataFrame(rows, columns=["name", "layer", "phase", "bytes_compulsory"])
    return frame.astype({"bytes_compulsory": "Int64"})


def counted(*rows):
    return pd.DataFrame(rows, columns=["name", "dram_bytes"]).astype({"dram_bytes": "Int64"})


STEP = profiled(
    ("void at::native::relu_kernel<4, float>(int)", "relu1", "forward", 100),
    ("Memcpy HtoD (Pageable -> Device)", None, "forward", None),
    ("sgemm_128x64_nn", "fc", "forward", 1000),
    ("sgemm_128x64_nn", "fc", "backward", 2000),
)
# A step before the one that counts, and names as the other tool prints them; it knows no copies.
COUNTED = counted(
    ("relu_kernel", 7),
    ("sgemm_128x64_nn", 7),
    ("sgemm_128x64_nn", 7),
    ("relu_kernel", 150),
    ("sgemm_128x64_nn", 1100),
    ("sgemm_128x64_nn", 2600),
)


def test_the_last_step_is_joined_in_order_and_the_rest_is_missing(dram_bytes):
    found = dram_bytes.joined(STEP, COUNTED)["measured_bytes"]
    assert found.iloc[[0, 2, 3]].tolist() == [150, 1100, 2600]
    assert pd.isna(found.iloc[1])


def test_the_table_has_ratios_and_says_what_is_missing(dram_bytes):
    lines = dram_bytes.table(dram_bytes.joined(STEP, COUNTED))
    assert "| fc | backward | 1 | 0.00 | 0.00 | 1.30 |" in lines
    assert lines[-3].startswith("| all |  | 3 |")
    assert "1.24" in lines[-3]  # 3850 of 3100
    assert lines[-1].startswith("1 of 4 kernels")


def test_another_program_is_not_joined(dram_bytes):
    found = dram_bytes.joined(STEP, counted(("fft2d", 1), ("winograd", 2)))["measured_bytes"]
    assert found.isna().all()
