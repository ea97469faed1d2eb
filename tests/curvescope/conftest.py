"""The width of what the commands print."""

import pytest


@pytest.fixture(autouse=True, scope="package")
def _eighty_columns():
    """The width of a small terminal; without it, tables of captured output are as wide as their
    cells.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "80")
        yield
