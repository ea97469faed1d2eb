"""Random text for described networks, as `bert.Bert.sample` makes it for torch."""

from __future__ import annotations

from typing import Any

from .bert import IGNORED, MASKED_SHARE
from .channels_last import SEED
from .description import Description


def text_of(description: Description, batch: int) -> tuple[Any, Any, Any]:
    """Tokens and the words to predict, shape (batch, tokens), and which of two kinds the next
    sentence is, shape (batch,), as NumPy's int32.
    """
    import numpy as np

    random = np.random.default_rng(SEED + batch)
    shape = (batch, *description.input_shape)
    assert description.vocabulary is not None
    tokens = random.integers(description.vocabulary, size=shape).astype(np.int32)
    masked = random.random(shape) < MASKED_SHARE
    masked[:, 0] = True  # the mean over zero masked words would be NaN
    words = np.where(masked, tokens, np.int32(IGNORED))
    return tokens, words, random.integers(2, size=batch).astype(np.int32)
