"""`make test` asks the first rows of a table, and CI all or more of them."""

import pytest

from .conftest import leave_rows_to_ci


class Item:
    """A row of a test's table, as pytest collects it."""

    def __init__(self, test, row, *marks):
        self.nodeid, self.marks = f"{test}[{row}]", [mark.mark for mark in marks]

    def get_closest_marker(self, name):
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark):
        self.marks.append(mark.mark)


def test_rows_beyond_the_first_are_slow_and_those_that_are_slow_do_not_count():
    first, slow = pytest.mark.first_rows(2), pytest.mark.slow
    items = [
        Item("a", 1, first),
        Item("b", 1, first),
        Item("a", 2, first, slow),
        Item("a", 3, first),
        Item("a", 4, first),
        *(Item("c", row) for row in range(3)),
        Item("a", 5, first),
    ]
    leave_rows_to_ci(items)
    late = [item.nodeid for item in items if item.get_closest_marker("slow")]
    assert late == ["a[2]", "a[4]", "a[5]"]


def test_rows_beyond_those_of_ci_are_exhaustive():
    first = pytest.mark.first_rows(1, in_ci=3)
    items = [Item("a", row, first) for row in range(5)]
    leave_rows_to_ci(items)
    assert [[mark.name for mark in item.marks[1:]] for item in items] == [
        [],
        ["slow"],
        ["slow"],
        ["slow", "exhaustive"],
        ["slow", "exhaustive"],
    ]
