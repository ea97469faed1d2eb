"""What tests of several modules share."""

from functools import cache, partial

import pytest

from curvescope.kernels import compile as nvrtc

from ..shared import shared_folder
from .emulation import Emulated, compile_source


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    """CUDA sources built for the processor, each once."""

    @cache
    def get(source):
        return Emulated(
            source, shared_folder(tmp_path_factory, f"{source}.so", partial(compile_source, source))
        )

    return get


@pytest.fixture
def kept_cubins(tmp_path_factory, monkeypatch):
    """A cache of cubins that the tests of all modules share: each is compiled once."""
    monkeypatch.setenv(nvrtc.CACHE_VARIABLE, str(shared_folder(tmp_path_factory, "cubins")))
