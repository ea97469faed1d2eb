"""What tests of several modules share."""

from __future__ import annotations

import pytest

from .emulation import Emulated


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """CUDA sources built for the processor, each once."""
    built = {}

    def get(source):
        if source not in built:
            built[source] = Emulated(source, tmp_path_factory.mktemp(source))
        return built[source]

    return get
