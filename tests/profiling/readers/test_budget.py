"""One budget for each read: what ends it, and that no reader is without it."""

import importlib

import pytest

from curvescope.base.budget import Budget
from curvescope.base.errors import CurvescopeError
from curvescope.base.limits import READ_CPU_S, READ_FREE_BYTES, READ_FREE_STEPS, VARIABLE
from curvescope.profiling.readers import READERS, Options
from curvescope.profiling.readers.source import Source

from .fuzzing import Sink, seeds


class Clock:
    """CPU seconds that a test sets."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def spend(budget, part):
    """Charge more of one part than a small file may take."""
    if part == "bytes":
        budget.take_bytes(READ_FREE_BYTES + 1)
    else:
        budget.take_steps(READ_FREE_STEPS + 1)


@pytest.mark.parametrize("name", READERS)
def test_no_reader_reads_on_once_the_time_is_spent(name, tmp_path):
    reader = importlib.import_module(f"curvescope.profiling.readers.{name}")
    for number, seed in enumerate(seeds(name)):
        path = tmp_path / f"profile{number}"
        path.write_bytes(seed)
        clock = Clock()
        with Source(path, Budget(clock)) as source:
            assert reader.recognises(source)
            clock.now_s = READ_CPU_S + 1
            with pytest.raises(CurvescopeError, match=f"more than {READ_CPU_S} seconds"):
                reader.read(source, Sink(tmp_path / "R", {}), Options())


@pytest.mark.parametrize("part", ["bytes", "steps"])
def test_a_spent_budget_says_what_and_how_to_go_on(part, monkeypatch):
    budget = Budget(Clock())
    budget.begin_file(400)
    with pytest.raises(CurvescopeError) as refused:
        spend(budget, part)
    said = str(refused.value)
    assert said.startswith("reading it takes more than ")
    assert "out of proportion to its 400 bytes" in said
    monkeypatch.setenv(VARIABLE, "10")
    larger = Budget(Clock())
    larger.begin_file(400)
    spend(larger, part)


def test_a_budget_grows_with_the_file_and_with_what_it_unpacks_to():
    clock = Clock()
    budget = Budget(clock)
    budget.begin_file(10 << 20)
    clock.now_s = READ_CPU_S + 40
    budget.note_content(READ_FREE_BYTES)
    budget.take_bytes(READ_FREE_BYTES + 1)
    clock.now_s = READ_CPU_S + 51
    with pytest.raises(CurvescopeError, match="58 seconds"):
        budget.check_time()


def test_a_file_beside_another_one_is_read_under_its_budget(tmp_path):
    clock = Clock()
    for name in "ab":
        (tmp_path / name).write_text("{}")
    with Source(tmp_path / "a", Budget(clock)) as source:
        clock.now_s = READ_CPU_S + 1
        with pytest.raises(CurvescopeError, match="seconds of computing"):
            Source(tmp_path / "b", source.budget)
