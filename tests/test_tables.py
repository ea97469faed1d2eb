"""A table of inputs in one test asks of each, and says of which it fails."""

import pytest

from .tables import ask_each, grade


def test_every_row_is_asked_and_the_first_that_fails_is_named():
    asked = []

    @ask_each("number", [1, 2, 3])
    def is_small(number):
        asked.append(number)
        assert number < 3, "too large"

    with pytest.raises(AssertionError, match=r"it fails for \{'number': 3\}: too large") as failed:
        is_small()
    assert asked == [1, 2, 3]
    assert isinstance(failed.value.__cause__, AssertionError)


def test_an_error_of_a_row_fails_too():
    @ask_each("divisor", [1, 0])
    def divides(divisor):
        assert 1 / divisor

    with pytest.raises(AssertionError, match=r"'divisor': 0"):
        divides()


def test_tables_multiply_and_leave_the_other_arguments_to_pytest(request):
    asked = []

    @ask_each(("first", "second"), [(1, 2), (3, 4)])
    @ask_each("third", "ab")
    def add(first, second, third, request):
        asked.append((first, second, third, request.node.name))

    add(request=request)
    assert asked == [(f, s, t, request.node.name) for f, s in ((1, 2), (3, 4)) for t in "ab"]


def test_a_row_of_another_length_and_an_empty_table_are_refused():
    @ask_each("first, second", [(1, 2, 3)])
    def never(first, second):
        pass

    with pytest.raises(ValueError, match="zip"):
        never()
    with pytest.raises(AssertionError, match="without rows"):
        ask_each("first", [])
    with pytest.raises(AssertionError, match="no marks"):
        ask_each("first", [pytest.param(1, marks=pytest.mark.slow)])


def test_rows_are_quick_or_of_ci_or_of_all_tests_alone():
    graded = grade([1, 2, 3, 4], quick=[1], in_ci=[1, 3])
    assert [[mark.name for mark in row.marks] for row in graded] == [
        [],
        ["slow", "exhaustive"],
        ["slow"],
        ["slow", "exhaustive"],
    ]
    assert [row.values for row in grade([(1, 2), "word"], quick=(), in_ci=())] == [
        (1, 2),
        ("word",),
    ]
    with pytest.raises(AssertionError, match="none of the table"):
        grade([1], quick=[2], in_ci=[])
    with pytest.raises(AssertionError, match="none of the table"):
        grade([1], quick=[], in_ci=[2])
