"""Where the batches of a step come from."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.torch_runtime import import_torch
from curvescope.profiling.workload.input_pipeline import make_feed
from curvescope.profiling.workload.networks import Network

torch = import_torch()
NETWORK = Network("planted", "a test's", (3,), lambda: torch.nn.Linear(3, 2), classes=2)


def load_two(batch, rank, world_size):
    for number in range(2):
        yield torch.full((batch, 3), float(10 * rank + number)), None


def load_none(batch, rank, world_size):
    return []


def feed(source, **others):
    return make_feed(source, NETWORK, **{"device": "cpu", "rank": 1, "world_size": 2, **others})


def test_a_resident_batch_needs_no_feed():
    assert feed("resident") is None


def test_batches_of_the_host_are_copied_in_every_step():
    fetch = feed("host")
    ((first,), targets), ((second,), _) = fetch(4), fetch(4)
    assert first.shape == (4, 3)
    assert targets.shape == (4,)
    assert torch.equal(first, second)
    assert first.data_ptr() != second.data_ptr()


def test_a_loader_is_asked_again_when_it_is_exhausted():
    fetch = feed(f"{__name__}:load_two")
    assert [float(fetch(2)[0][0][0, 0]) for _ in range(5)] == [10, 11, 10, 11, 10]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("host:", "resident, host, or package.module:function"),
        ("nowhere", "resident, host, or package.module:function"),
        (
            "no_such_module:f",
            "importing no_such_module failed with ModuleNotFoundError.*It is searched in the "
            "working",
        ),
        (f"{__name__}:no_such_function", "has no function no_such_function"),
        # An error of the module itself, with nothing of where it is searched.
        ("divides:f", r"failed with ZeroDivisionError: division by zero\.$"),
        ("imports:f", r"failed with ModuleNotFoundError: No module named 'no_such_package'\.$"),
    ],
)
def test_sources_that_are_none(tmp_path, monkeypatch, source, says):
    (tmp_path / "divides.py").write_text("print('hello')\n1 / 0\n")
    (tmp_path / "imports.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CurvescopeError, match=says):
        feed(source)


def test_a_loader_without_batches_is_refused():
    with pytest.raises(CurvescopeError, match="returned no batch of 2"):
        feed(f"{__name__}:load_none")(2)
