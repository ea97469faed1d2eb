"""The page of the H100: its sums on rows by hand, and what its words claim in the records."""

import pandas as pd
import pytest

from ..shared import ROOT, load_script

page = load_script("docs/h100_page.py")


def launched(*kernels):
    """Kernels of a start, a duration and a wait after the launch, in microseconds."""
    rows = pd.DataFrame(kernels, columns=["start_ns", "duration_ns", "late_ns"]) * 1000
    return page.Launched(rows)


def test_kernels_that_overlap_count_once():
    kernels = launched((0, 10, 1), (5, 10, 1), (6, 2, 9), (30, 5, 9))
    assert kernels.sum_ms == pytest.approx(0.027)
    assert kernels.span_ms == pytest.approx(0.035)
    assert kernels.union_ms == pytest.approx(0.020)


def test_kernels_that_start_as_soon_as_they_are_launched_wait_for_the_host():
    assert launched((0, 10, 1), (5, 10, 4.9), (30, 5, 5.1), (40, 5, 90)).waiting_share == 0.5


def test_every_size_that_is_far_above_the_line_is_odd_and_over_16_but_not_every_such_one():
    above = page.find_sizes_above()
    slow = {size for size, share in above.items() if share > 0.5}
    odd = {size for size in above if size % 2 and size > 16}
    assert slow == {17, 31, 33, 45}
    assert slow < odd
    assert max(share for size, share in above.items() if size not in slow) < 0.15


@pytest.mark.slow
def test_a_kernel_does_at_16_and_32_what_products_do_at_17():
    second = page.days()[1]

    def count(size, name):
        names = second.kernels(size, "conv3_2").rows["name"]
        return names.str.contains(name).sum() / len(second.select_profiled(size))

    assert [count(size, "cf32cf32") for size in (16, 17, 32)] == [0, 2112, 0]
    assert [count(size, "pointwise_mult_and_sum_complex") for size in (16, 17, 32)] == [1, 0, 1]


def test_24_samples_take_less_time_than_32():
    for day in page.days():
        assert max(day.times_of_probe(24)) < day.curve.at(32).time_ms.low


def test_conv4_1_changes_from_fft_to_a_product_at_64():
    first = page.days()[0]
    small, large = (" ".join(first.kernels(size, "conv4_1").rows["name"]) for size in (32, 64))
    assert "fft2d" in small
    assert "implicit_gemm" not in small
    assert "fft2d" not in large
    assert "implicit_gemm" in large


def test_the_page_is_short_and_has_one_picture():
    text = (ROOT / "docs" / "case-studies" / "h100.md").read_text()
    assert len(text.split()) <= 600
    assert text.count("![") == 1
