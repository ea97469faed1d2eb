"""What is kept of an explanation is taken again where nothing else has changed."""

from types import SimpleNamespace

import pytest

from . import explained_once


@pytest.fixture
def make():
    """Makes a result of a text, and has the number that were made."""

    def result_of_a_test(text):
        kept.made += 1
        return f"{text} {kept.made}"

    kept = explained_once._kept(result_of_a_test)
    kept.made = 0
    explained_once.forget()
    yield kept
    explained_once.forget()


def test_a_result_is_made_once_with_the_same_variables(make, monkeypatch):
    assert [make("a"), make("a"), make("b")] == ["a 1", "a 1", "b 2"]
    monkeypatch.setenv("CURVESCOPE_LIMITS", "10")
    assert make("a") == "a 3"
    monkeypatch.delenv("CURVESCOPE_LIMITS")
    monkeypatch.setenv("COLUMNS", "200")  # of a page alone
    assert make("a") == "a 1"


def test_an_attribute_that_a_test_changes_sets_results_aside_until_it_is_put_back(make):
    product = SimpleNamespace(rule="usual", table={})
    assert make("a") == "a 1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(product, "rule", "another")
        assert [make("a"), make("a")] == ["a 2", "a 2"]
        patch.setitem(product.table, "rule", "a third")
        assert make("a") == "a 3"
    assert make("a") == "a 1"
