"""Step times over two axes: which recordings make a family, and what its heat map shows."""

from __future__ import annotations

from rich.console import Console

from curvescope.analysis.render.heat_map import family_document, render_family
from curvescope.analysis.step_family import families
from curvescope.analysis.step_table import Cell


def cell(tokens, batch, time_ms, **changes):
    said = {"fixed": f"batch={batch} width=8", "time_ms": time_ms, "axis": "tokens", "source": "r", **changes}
    return Cell("measured", "mine", "own", None, False, "torch 2", "cpu", None, tokens, **said)


PROPORTIONAL = [cell(tokens, batch, 0.002 * tokens * batch) for batch in (4, 2) for tokens in (16, 32)]


def test_curves_that_differ_in_one_fixed_value_are_a_family():
    (found,) = families(PROPORTIONAL)
    assert (found.curve.name, found.other.name, found.columns) == ("tokens", "batch", (16, 32))
    assert found.rows == ((2, (0.064, 0.128)), (4, (0.128, 0.256)))
    assert found.unit == "µs/(token·sample)"
    assert {round(value, 9) for row in found.per_unit_us for value in row} == {2.0}


def test_other_curves_are_no_family():
    assert families([cell(16, 2, 1.0)]) == []
    assert families([cell(16, 2, 1.0), cell(16, 4, 1.0, fixed="batch=4 width=9")]) == []
    assert families([cell(16, 2, 1.0, fixed=None), cell(32, 2, 1.0, fixed=None)]) == []
    assert families([cell(16, 2, 1.0), cell(16, 4, 1.0, fixed="width=8")]) == []


def test_a_missing_time_is_an_empty_entry():
    (found,) = families([*PROPORTIONAL[:3], cell(32, 2, None, empty="out of memory")])
    assert found.rows[0] == (2, (0.064, None))
    console = Console(width=80)
    with console.capture() as capture:
        console.print(render_family(found))
    lines = [line.split() for line in capture.get().splitlines()]
    assert ["2", "0.06400"] in lines
    assert ["4", "2.00", "2.00"] in lines


def test_the_page_gets_the_same_numbers():
    document = family_document(families(PROPORTIONAL)[0])
    assert document["rows"][0]["ms"] == [0.064, 0.128]
    assert (document["curve"], document["other"], document["columns"]) == ("tokens", "batch", [16, 32])
