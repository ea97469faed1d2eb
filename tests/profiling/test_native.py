from __future__ import annotations

import time

import pytest

from curvescope.profiling import native
from curvescope.profiling.errors import BackendMissingError


def test_the_clock_is_pythons_monotonic_clock():
    before = time.monotonic_ns()
    read = native.clock_ns()
    assert before <= read <= time.monotonic_ns()


def test_an_installation_without_the_library_says_how_to_get_it():
    with pytest.raises(BackendMissingError, match="C\\+\\+17 compiler"):
        native.library_path("libnowhere.so")


def test_both_libraries_lie_beside_the_package():
    assert native.library_path().name == native.LIBRARY_NAME
    assert native.library_path(native.READER_NAME).is_file()
