"""What readers do with values that stand in many places of a file, one format after the other."""

import json
import pickle
import sqlite3
from itertools import chain
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from curvescope.analysis.ranks.jobs import find_ranks
from curvescope.base.budget import Budget
from curvescope.base.errors import CurvescopeError
from curvescope.base.limits import READ_FREE_STEPS
from curvescope.profiling import readers
from curvescope.profiling.readers import import_profile
from curvescope.profiling.readers.graph_capture import _Capture, _Captures
from curvescope.profiling.readers.plain_pickle import load, number_of, text_of
from curvescope.profiling.readers.server_slots import Slots, margin
from curvescope.profiling.readers.source import Source
from curvescope.profiling.readers.sqlite_tables import SqliteTables

from ...security.shared_references import KERNELS, doubled_tuples, repeated_pages
from ...tables import ask_each
from .made_profiles import of_events
from .test_pytorch_json import PLANTED


# Pickles
def test_keys_of_a_pickle_are_texts_and_whole_numbers_alone():
    """Hashing a tuple walks all that it holds, as often as it holds it."""
    assert load(pickle.dumps({"a": 1, 2: "b"}, 4)) == {"a": 1, 2: "b"}
    with pytest.raises(CurvescopeError, match="tuple in place of str or int"):
        load(b"\x80\x04}(" + doubled_tuples(45) + b"K\0u.")


@ask_each("value", [[1], (), "1", 1.0, True, None])
def test_a_number_of_a_pickle_is_no_other_value(value):
    with pytest.raises(TypeError, match="in place of int"):
        number_of({"size": value}, "size")


@ask_each("value", [["x"], b"x", 1, None])
def test_a_text_of_a_pickle_is_no_other_value(value):
    with pytest.raises(TypeError, match="in place of str"):
        text_of({"name": value}, "name")


# SQLite
def test_a_count_ends_where_the_file_has_no_room_for_more(tmp_path):
    """300 children of each page, six deep: SQLite's own count never ends."""
    path = tmp_path / "x.sqlite"
    path.write_bytes(repeated_pages())
    with (
        sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as database,
        pytest.raises(CurvescopeError, match="more rows than the file has room for"),
    ):
        SqliteTables(database, path).count(KERNELS)


def test_a_text_in_a_column_of_numbers_is_charged_before_it_is_loaded(tmp_path):
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE x (a INTEGER)")
        database.execute("INSERT INTO x VALUES (1), ('x' || hex(zeroblob(4000000)))")
    charged = []

    class Counted(Budget):
        def take_bytes(self, count):
            charged.append(count)

    with (
        sqlite3.connect(path) as database,
        pytest.raises(CurvescopeError, match="value of the wrong type"),
    ):
        list(SqliteTables(database, path, Counted()).scan("x", {"a": pa.int64()}))
    assert charged == [8_000_002]


# Captures of graphs
def capture(names):
    names = tuple(names)
    return _Capture(names, *(np.zeros(len(names), np.int64) for _ in range(2)))


@ask_each("seed", range(20))
def test_captures_are_found_as_by_asking_each(seed):
    random = Random(seed)
    captures = [
        capture(random.choice((None, "a", "b")) for _ in range(random.choice((1, 2, 3))))
        for _ in range(12)
    ]
    found = _Captures(captures, Budget())
    for _ in range(30):
        kernels = [random.choice("ab") for _ in range(random.choice((1, 2, 3)))]
        fitting = [index for index, each in enumerate(captures) if each.fits(kernels)]
        assert sorted(chain.from_iterable(found.fitting(kernels))) == fitting
        after = random.randrange(-1, len(captures))
        later = [index for index in fitting if index > after]
        if fitting:
            assert found.next_fitting(kernels, after) == (later or fitting)[0]


def test_captures_that_each_know_other_names_are_charged():
    """No table finds them, so that each replay asks each of them."""
    launches = 30
    captures = [
        capture("k" if place == known else None for place in range(launches))
        for known in range(launches)
    ]
    found, kernels = _Captures(captures, Budget()), ["k"] * launches

    def ask_until_refused():
        for _ in range(READ_FREE_STEPS):
            found.fitting(kernels)

    assert len(found.fitting(kernels)) == launches
    with pytest.raises(CurvescopeError, match=f"more than {READ_FREE_STEPS:,} steps"):
        ask_until_refused()


# Running requests of a server
class Counting:
    """The same as `Slots`, by counting for each request at each line."""

    def __init__(self):
        self.running, self.since, self.told = {}, {}, []

    def run(self, us):
        for levels in (*self.running.values(), *self.since.values()):
            levels.append((len(self.running), us))

    def change(self):
        self.run(0)


def steady(levels):
    total = sum(us for _, us in levels)
    numbers = [requests for requests, _ in levels]
    if not total:
        return max(numbers) if max(numbers) - min(numbers) <= margin(max(numbers)) else None
    mean = round(sum(requests * us for requests, us in levels) / total)
    near = sum(us for requests, us in levels if abs(requests - mean) <= margin(mean))
    return mean if near >= 0.9 * total else None


@ask_each("seed", range(20))
def test_a_load_is_the_same_as_by_counting_at_each_line(seed):
    random, now = Random(seed), 0
    slots, counting = Slots(Budget()), Counting()
    for _ in range(300):
        step = random.choice((0, 1, 5, 400))
        now += step
        slots.tell_time(f"{now // 60_000}.{now // 1000 % 60:02d}.{now % 1000:03d}.000 I ")
        counting.run(1000 * step)
        slot, kind = str(random.randrange(30)), random.random()
        if kind < 0.5:
            if slot not in counting.running:
                slots.launch(slot)
                counting.running[slot], counting.since[slot] = [], []
                counting.change()
        elif kind < 0.8:
            if slot in counting.running:
                assert slots.progress(slot).steady() == steady(counting.since[slot])
                counting.since[slot] = [(len(counting.running), 0)]
        elif slot in counting.running:
            slots.release(slot)
            slots.ended = slot
            del counting.since[slot]
            assert slots.while_running().steady() == steady(counting.running.pop(slot))
            counting.change()


# Traces of PyTorch
@pytest.mark.parametrize("value", [-5, 2**70, "x", [1], {}, 1.5, True])
def test_facts_of_a_device_of_other_types_are_left_out(value, tmp_path):
    """The recording was finished, and then nothing could read it."""
    names = ("name", "computeMajor", "computeMinor", "numSms", "totalGlobalMem")
    device = {"id": 0, **dict.fromkeys(names, value)}
    found = of_events(PLANTED, tmp_path, deviceProperties=[device]).meta["device"]
    expected = dict.fromkeys(("name", "compute_capability", "sm_count", "memory_bytes"))
    if value == "x":
        expected["name"] = "x"
    assert found in (expected, None)


def test_half_a_character_in_the_head_of_a_trace_is_replaced(tmp_path):
    device = {"id": 0, "name": "A\ud83d", "computeMajor": 8, "computeMinor": 0}
    found = of_events(PLANTED, tmp_path, deviceProperties=[device]).meta["device"]
    assert found is None or found["name"] == "A?"


@pytest.mark.parametrize("error", [CurvescopeError("no recording"), MemoryError()])
def test_nothing_is_left_of_an_import_that_cannot_be_described(error, tmp_path, monkeypatch):
    def fail(path):
        raise error

    monkeypatch.setattr(readers, "describe_import", fail)
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": PLANTED}))
    with pytest.raises(CurvescopeError, match=r"no recording|more memory than there is"):
        import_profile(tmp_path / "t.json", tmp_path / "R")
    assert not (tmp_path / "R").exists()


# Ranks
def test_a_rank_that_no_job_has_is_that_of_the_name_of_the_file(tmp_path):
    """A number of 5,000 digits was a traceback."""
    for at, rank in enumerate(("9" * 5000, "1" * 30, "7")):
        head = f'{{"distributedInfo": {{"rank": {rank}}}, "traceEvents": []}}'
        (tmp_path / f"rank{at}.json").write_text(head)
    jobs, _ = find_ranks([str(tmp_path)])
    assert [job.rank_id.rank for job in jobs] == [0, 1, 7]


def test_a_digit_that_is_no_decimal_in_a_name_is_text(tmp_path):
    for name in ("rank²0.json", "rank10.json"):
        (tmp_path / name).write_text('{"traceEvents": []}')
    assert len(find_ranks([str(tmp_path)])[0]) == 2


# Tables of times
@pytest.mark.parametrize("row", ["p,1,1e300", "p,9999999999999999,3", "p,1,1e18"])
def test_a_number_of_a_table_that_no_column_holds_is_refused(row, tmp_path):
    """It was a traceback."""
    (tmp_path / "t.csv").write_text(f"problem,batch,time_ms\n{row}\n")
    with pytest.raises(CurvescopeError, match=r"line 2: .* and at most"):
        import_profile(tmp_path / "t.csv", tmp_path / "R")


# What is packed
def test_what_is_read_whole_is_no_more_than_64_times_its_file(tmp_path):
    import gzip

    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(34 << 20)))
    with (
        Source(path) as source,
        pytest.raises(CurvescopeError, match="more than 32 MiB unpacked"),
    ):
        source.read_all(1 << 31)
