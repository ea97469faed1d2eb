"""The validation of grouped and depthwise convolutions."""

from pathlib import Path

import pytest

from benchmarks.fitting.groups import predict_groups

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


def test_a_card_is_predicted_from_the_depthwise_kernels_of_the_others():
    rows = predict_groups(PUBLISHED)
    assert set(rows.device[rows.known]) == {"v100", "titan_v", "quadro_rtx6000"}
    assert set(rows.device[~rows.known]) == {"k80", "m60"}
    depthwise = rows[rows.depthwise]
    own = (depthwise.measured_ms / depthwise.bytes_ms).groupby(depthwise.device).median()
    taken = (depthwise.predicted_ms / depthwise.bytes_ms).groupby(depthwise.device).first()
    assert taken["v100"] == pytest.approx((own["titan_v"] + own["quadro_rtx6000"]) / 2)
    assert taken["k80"] == pytest.approx((own["titan_v"] + own["quadro_rtx6000"] + own["v100"]) / 3)
    assert rows[~rows.depthwise].groupby("device").size().eq(2).all()
