"""`curvescope scale read`: many recordings, on a disk and on S3, in one process and on a cluster
that loses workers.
"""

import json
import logging
import os
import signal
import sys

import pytest

import curvescope
from curvescope.analysis.ranks import jobs as rank_jobs
from curvescope.analysis.ranks.jobs import Reducer, find_ranks
from curvescope.analysis.ranks.tables import TABLES
from curvescope.base.errors import BackendMissingError
from curvescope.profiling.recording.remote_store import as_path
from curvescope.profiling.recording.store import RecordingWriter, open_recording

from ..analysis.ranks.planted_ranks import write_ranks
from ..profiling.recording.s3_server import s3_server

RANKS = 12


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_ranks(tmp_path_factory.mktemp("job"), RANKS)


def same(one, other):
    return one.unreadable == other.unreadable and all(
        one[name].equals(other[name]) for name in TABLES
    )


def reduced(arguments, **options):
    jobs, _ = find_ranks([str(a) for a in arguments])
    with Reducer(len(jobs), **options) as reducer:
        return reducer.reduce(jobs)


def test_a_slow_rank_is_found_and_explained(job, document_of):
    found = document_of("scale", "read", job)
    (one,) = found["stragglers"]
    assert (one["rank"], one["node"], one["terms"][0]["layer"]) == (5, 1, "conv2")
    (difference,) = found["differences"]
    assert difference["name"] == "rank 5"
    assert difference["ranks"] == [1, RANKS - 1]
    shares = {
        (p["key"]["layer"], p["key"]["kind"]): p["value"]["value"] for p in difference["shares"]
    }
    assert shares["conv2", "kernels"] == pytest.approx(0.3, abs=0.03)
    assert shares[None, "communication"] == pytest.approx(-0.3, abs=0.03)
    assert sum(shares.values()) == pytest.approx(difference["value"]["value"], abs=1e-9)


@pytest.mark.slow
def test_it_is_shown(job, text_of):
    text = " ".join(text_of("scale", "read", job / "rank*").split())
    assert text.startswith("Rank 5 delays the others: without communication its step takes 0.")
    assert ", most of it in conv2" in text
    assert "12 ranks on 3 nodes, 8 steps, 384 kernels" in text
    assert "Stragglers: 1" in text
    assert "rank 5 (1 rank) less the others (11 ranks): 0 ms a step" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ranks", "expected"),
    [
        (["--explain", "5"], [1, 11], 0.3),
        (["--explain", "4-6", "--against", "0-2,8"], [3, 4], 0.1),
        (["--explain", "node:1"], [4, 8], 0.075),
        (["--explain", "5", "--against", "node:0"], [1, 4], 0.3),
    ],
)
def test_groups_of_ranks_are_explained(job, options, ranks, expected, document_of):
    (difference,) = document_of("scale", "read", job, *options)["differences"]
    assert difference["ranks"] == ranks
    assert difference["own"]["value"] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--explain", "99"], "no such rank; there are 0 to 11"),
        (["--explain", "a-b"], "write ranks, e.g. 3 or 0-7,12"),
        (["--explain", "0-4", "--against", "4-5"], "the two lists share a rank"),
        (["--explain", "0-11"], "there are none to compare with"),
        (["--against", "3"], "--against needs --explain"),
        (["--workers", "0"], "at least one"),
    ],
)
def test_what_cannot_be_explained_is_refused(job, options, message, refusal_of):
    assert message in refusal_of("scale", "read", job, *options)


def test_ranks_that_cannot_be_read_are_named_and_the_rest_goes_on(
    tmp_path, refusal_of, document_of
):
    write_ranks(tmp_path, ranks=4)
    part = tmp_path / "rank1" / "kernels" / "00000.parquet"
    part.write_bytes(part.read_bytes()[:50])
    (tmp_path / "rank2" / "recording.json").write_text("{")
    with RecordingWriter(tmp_path / "zz_again", {"distributed": {"rank": 3}}):
        pass
    found = document_of("scale", "read", tmp_path)
    assert found["ranks"] == 2
    reasons = {place.rsplit("/", 1)[-1]: reason for place, reason in found["unreadable"]}
    assert "is damaged" in reasons["rank1"]
    assert "cannot be read" in reasons["rank2"]
    assert len(reasons) == 3
    for rank in (0, 3):
        part = tmp_path / f"rank{rank}" / "kernels" / "00000.parquet"
        part.write_bytes(b"")
    (tmp_path / "zz_again" / "recording.json").unlink()
    assert "None of 4 recordings could be read" in refusal_of("scale", "read", tmp_path)


def test_no_rank_can_be_explained_where_none_can_be_read(tmp_path, refusal_of):
    """It ended in an IndexError."""
    (tmp_path / "notes").write_text("no recording")
    said = refusal_of("scale", "read", tmp_path / "notes", "--explain", "0")
    assert "None of 1 recording could be read" in said


def test_ranks_that_do_not_say_their_number_have_it_from_their_names(tmp_path, refusal_of):
    write_ranks(tmp_path, ranks=11, name="rank-{}_a7", said=False)
    jobs, _ = find_ranks([str(tmp_path)])
    assert [(job.rank_id.rank, job.path.name) for job in jobs] == [
        (rank, f"rank-{rank}_a7") for rank in range(11)
    ]
    assert "cannot be read" in refusal_of("scale", "read", tmp_path / "nothing")
    assert "no recording found" in refusal_of("scale", "read", tmp_path / "nothing*")


def write_trace(path, rank, all_reduce_us):
    """A trace of the PyTorch profiler: two steps of a product, and an all-reduce of two groups of
    ranks.
    """
    events = []
    for step in range(2):
        at = 1000 * step
        first = rank // 2 * 2
        group = {"Process Group Name": "1", "Process Group Ranks": str([first, first + 1])}
        events.append(
            {
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": at,
                "dur": 900,
                "tid": 1,
            }
        )
        for number, (name, ts, dur, stream, more) in enumerate(
            [
                ("sgemm", at + 10, 800 - all_reduce_us, 7, {}),
                (
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    at + 810 - all_reduce_us,
                    all_reduce_us,
                    20,
                    group,
                ),
            ]
        ):
            launch = {"correlation": at + number}
            args = {
                **launch,
                "device": 0,
                "stream": stream,
                "grid": [1, 1, 1],
                "block": [1, 1, 1],
                **more,
            }
            call = {
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": at + 1 + number,
                "dur": 1,
                "tid": 1,
            }
            events.append({**call, "args": launch})
            events.append(
                {"cat": "kernel", "name": name, "ts": ts, "dur": dur, "tid": stream, "args": args}
            )
    document = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
        "traceEvents": [{"ph": "X", "pid": 1, **event} for event in events],
    }
    path.write_text(json.dumps(document))


@pytest.mark.slow
def test_traces_of_the_pytorch_profiler_tell_their_rank_and_groups(tmp_path, document_of):
    for rank, all_reduce_us in enumerate((50, 60, 200, 250)):
        write_trace(tmp_path / f"host7_{9 - rank}.json", rank, all_reduce_us)
    found = document_of("scale", "read", tmp_path)
    assert (found["ranks"], found["unreadable"]) == (4, [])
    # Of each group its own shortest counts: 10 us wait for rank 0, 50 for rank 2; over all four it
    # were 200.
    waits = {w["channel"]: w for w in found["waits"]}
    assert set(waits) == {"1 [0, 1]", "1 [2, 3]"}
    assert waits["1 [0, 1]"]["last"] == [[0, pytest.approx(0.010)]]
    assert waits["1 [2, 3]"]["last"] == [[2, pytest.approx(0.050)]]


def test_interrupted_it_shows_what_it_has(job, monkeypatch, document_of):
    original, calls = rank_jobs.reduce_jobs, []

    def interrupted(jobs):
        calls.append(jobs)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(jobs)

    monkeypatch.setattr(rank_jobs, "reduce_jobs", interrupted)
    found = document_of("scale", "read", job, "--workers", 1, code=130)
    assert (found["interrupted"], found["ranks"], found["asked"]) == (True, 4, RANKS)


@pytest.mark.slow
def test_ranks_on_s3_give_what_they_give_on_a_disk(tmp_path):
    write_ranks(tmp_path, ranks=3)
    with s3_server("ranks"):
        write_ranks(as_path("s3://ranks/job=1"), ranks=3)
        remote = reduced(["s3://ranks/job=1/rank*/"], workers=1)
        assert len(find_ranks(["s3://ranks/job=1"])[0]) == 3
    assert same(remote, reduced([tmp_path], workers=1))


@pytest.fixture(scope="module")
def cluster():
    """A user's own."""
    from distributed import LocalCluster

    with LocalCluster(
        2,
        threads_per_worker=1,
        host="127.0.0.1",
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        silence_logs=logging.CRITICAL,
    ) as started:
        yield started


@pytest.mark.slow
def test_a_killed_worker_costs_no_result(job, cluster):
    jobs, _ = find_ranks([str(job)])
    many = [
        rank_jobs.Job(rank_jobs.RankId(j.rank_id.rank + RANKS * i), j.path)
        for j in jobs
        for i in range(5)
    ]
    expected = rank_jobs.reduce_jobs(many)
    killed = []
    with Reducer(len(many), scheduler=cluster.scheduler_address) as reducer:

        def kill(done):
            if not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        assert same(reducer.reduce(many, kill), expected)
    assert killed


@pytest.mark.slow
def test_a_cluster_elsewhere_answers_the_same(job, cluster, document_of):
    alone = document_of("scale", "read", job, "--workers", 1)
    assert document_of("scale", "read", job, "--scheduler", cluster.scheduler_address) == alone


def test_a_scheduler_that_is_not_there_is_said(job, monkeypatch, refusal_of):
    import distributed

    def refuse(*_, **__):
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", refuse)
    assert "no Dask scheduler answers there" in refusal_of(
        "scale", "read", job, "--scheduler", "tcp://127.0.0.1:1"
    )


@pytest.mark.slow
def test_a_recording_that_kills_every_worker_is_left_out_and_its_neighbours_count(job, monkeypatch):
    """A fake of Dask's edge: what it raises when a task has lost its worker too often."""
    import distributed

    jobs, _ = find_ranks([str(job)])

    class Future:
        def __init__(self, chunk):
            self.chunk = chunk

        def result(self):
            if any(job.rank_id.rank == 7 for job in self.chunk):
                raise distributed.KilledWorker("task", None, 3)
            return rank_jobs.reduce_jobs(self.chunk)

    class Completed:
        def __init__(self, futures):
            self.futures = futures

        def add(self, future):
            self.futures.append(future)

        def __iter__(self):
            while self.futures:
                yield self.futures.pop(0)

    class Client:
        def submit(self, function, chunk, pure):
            return Future(chunk)

        def nthreads(self):
            return {}

    monkeypatch.setattr(distributed, "as_completed", Completed)
    reducer = Reducer(len(jobs), scheduler="tcp://nowhere")
    reducer._client = Client()
    check_without_7(reducer.reduce(jobs), job)


def check_without_7(found, job):
    assert found.column("ranks", "rank").tolist() == [rank for rank in range(RANKS) if rank != 7]
    ((place, reason),) = found.unreadable
    assert place == str(job / "rank7")
    assert "was killed" in reason


def reduce_and_end_at_7(jobs):
    if any(job.rank_id.rank == 7 for job in jobs):
        os.kill(os.getpid(), signal.SIGKILL)
    return original_reduce_jobs(jobs)


original_reduce_jobs = rank_jobs.reduce_jobs


@pytest.mark.slow
def test_a_recording_that_kills_its_process_is_left_out_and_its_neighbours_count(job, monkeypatch):
    jobs, _ = find_ranks([str(job)])
    monkeypatch.setattr(rank_jobs, "reduce_jobs", reduce_and_end_at_7)
    with Reducer(len(jobs), workers=2) as reducer:
        check_without_7(reducer.reduce(jobs), job)


@pytest.mark.slow
def test_several_processes_give_what_one_gives(job):
    jobs, _ = find_ranks([str(job)])
    with Reducer(len(jobs), workers=2) as reducer:
        assert reducer.description == "with 2 workers"
        assert same(reducer.reduce(jobs), rank_jobs.reduce_jobs(jobs))


@pytest.mark.slow
def test_a_scheduler_alone_needs_dask(job, monkeypatch, document_of):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert document_of("scale", "read", job)["ranks"] == RANKS
    with pytest.raises(BackendMissingError, match=r"curvescope\[cluster\]"):
        Reducer(RANKS, scheduler="tcp://127.0.0.1:1")


@pytest.mark.slow
def test_a_recording_finds_the_stragglers_of_its_job(job):
    rank = curvescope.open_recording(job / "rank0")
    for rows in (
        rank.ranks(),
        rank.ranks(*(open_recording(job / f"rank{n}") for n in (3, 4, 5, 6))),
    ):
        (row,) = rows.to_dict("records")
        assert (row["rank"], row["node"]) == (5, 1)
        assert row["low_ms"] < row["excess_ms"] < row["high_ms"]
