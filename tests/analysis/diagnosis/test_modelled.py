from types import SimpleNamespace

import pandas as pd

from curvescope.analysis.render.notes import _describe_switches


def test_a_modelled_diagnosis_says_which_algorithm_changes_and_what_it_costs():
    # 10 ms of Winograd at 64, 50 ms of another at 128: 30 ms over twice; conv2 costs less than
    # twice, pool1 is a pool.
    rows = [
        (64, "conv1", "backward_weights_WINOGRAD_NONFUSED", 10.0), (128, "conv1", "backward_weights_ALGO_1", 50.0),  # noqa: E501
        (64, "conv2", "forward_WINOGRAD", 10.0), (128, "conv2", "forward_FFT", 15.0),
        (64, "pool1", "max_pool2d", 1.0), (128, "pool1", "max_pool2d_other", 9.0),
    ]  # fmt: skip
    times = pd.DataFrame(rows, columns=["batch", "layer", "name", "exclusive_ms"])
    (sentence,) = _describe_switches(SimpleNamespace(kernel_times=times))
    what = "conv1 backward weights changes from WINOGRAD_NONFUSED to ALGO_1, +30 ms"
    assert sentence.startswith(f"Modelled from batch 64 to 128: {what} over its share")
