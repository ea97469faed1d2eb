import numpy as np
import pandas as pd

from benchmarks.fitting.remaining import write_remaining_report


def rows(device, error, problem="56x56x64x64x3x3x1", batch=8, algorithm="WINOGRAD"):
    return {"kind": "forward", "error_kind": "forward", "device": device, "problem": problem, "batch": batch,
            "algorithm": algorithm, "measured_ms": 1.0, "predicted_ms": np.exp(error)}  # fmt: skip


STEP = {"gpu": "card", "framework": "f", "network": "n", "mode": "training", "batch": 4, "published_ms": 1.0,
        "modelled_ms": np.exp(0.1)}  # fmt: skip


def report(*operators, steps=(STEP,)):
    return write_remaining_report(pd.DataFrame(operators), pd.DataFrame(steps))


def test_errors_are_signed_by_algorithm_shape_and_card():
    lines = report(
        rows("a", 0.2), rows("b", -0.1),
        rows("a", 0.3, "7x7x512x512x3x3x1"), rows("b", 0.5, "14x14x512x512x1x1x2", algorithm="GEMM"),
    )  # fmt: skip
    assert any(
        line.startswith("| forward | WINOGRAD | 3×3 | 2 |") and line.endswith("| +20% | -10% |") for line in lines
    )
    assert any("| WINOGRAD | 3×3, small images | 1 |" in line and line.endswith("| +30% |  |") for line in lines)
    assert any("| GEMM | 1×1, stride 2 | 1 |" in line and line.endswith("|  | +50% |") for line in lines)


def test_the_error_of_a_shape_comes_from_other_cards_only():
    shared = [rows(card, 0.3, problem) for card in "ab" for problem in ("56x56x64x64x3x3x1",)]
    others = [rows(card, 0.0, f"{extent}x{extent}x64x64x3x3x1") for card in "ab" for extent in (8, 16, 32)]
    (line,) = [line for line in report(*shared, *others) if line.startswith("| forward | 8 |")]
    assert line.endswith("| 0.0% and 0.0% | 0.0% and 0.0% |")
    # A shape of one card alone says nothing about itself.
    (line,) = [line for line in report(*shared, rows("a", 0.9, "9x9x9x9x3x3x1")) if line.startswith("| forward | 2 |")]


def test_steps_are_split_by_batch_size():
    large = STEP | {"batch": 256, "modelled_ms": np.exp(-0.2)}
    assert "| card | f | n | training | 2 | +10% |  | -20% |" in report(rows("a", 0.1), steps=(STEP, large))
