from pathlib import Path

import pandas as pd
import pytest

from benchmarks.fitting.pools import predict_pools, read_pools

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


def test_a_pool_is_predicted_from_the_nearest_cards_and_never_from_itself():
    # A ReLU of 8 ms moves 2 of its tensors; a pool moves 1.25: 5 ms by the bytes.
    rows = [("k80", 9.0), ("m60", 7.5), ("v100", 6.0), ("titan_v", 5.5)]
    pools = pd.DataFrame(
        [(device, 32, pool, 8.0) for device, pool in rows], columns=["device", "n", "pool_ms", "relu_ms"]
    )
    predicted = predict_pools(pools).set_index("device").predicted_ms
    assert predicted["titan_v"] == pytest.approx(6.0)
    assert predicted["v100"] == pytest.approx(5.5)
    assert predicted["k80"] == pytest.approx(7.5)
    assert predicted["m60"] == pytest.approx(9.0)  # Kepler is one generation away, Volta two


def test_every_card_has_its_pools_and_the_relu_before_them():
    pools = read_pools(PUBLISHED)
    assert set(pools.device) == {"k80", "m60", "v100", "titan_v", "quadro_rtx6000"}
    assert pools.notna().all(axis=None)
    assert pools.groupby("device").n.nunique().eq(6).all()
