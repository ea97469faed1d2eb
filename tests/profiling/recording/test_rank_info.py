"""Ranks as launchers give them."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.recording.rank_info import (
    RankInfo,
    describe_rank,
    find_launched_rank,
    first_host,
    rank_info_of,
    rendezvous,
)

from ...tables import ask_each

TORCHRUN = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1"}
SLURM = {"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1"}


@ask_each(
    ("environment", "expected"),
    [
        *(
            (one, RankInfo(9, 16, 1))
            for one in (TORCHRUN, SLURM, {**SLURM, **TORCHRUN, "SLURM_PROCID": "0"})
        ),
        ({}, None),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0"},
            None,
        ),  # a batch script: before srun
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None),
    ],
)
def test_rank_is_the_launchers(environment, expected):
    assert find_launched_rank(environment) == expected
    with pytest.raises(CurvescopeError, match="LOCAL_RANK"):
        find_launched_rank({"RANK": "0", "WORLD_SIZE": "2"})


def test_ranks_meet_where_they_are_told_or_on_the_first_node_of_slurm():
    slurm = {"SLURM_STEP_NODELIST": "gpu[003-005],gpu9", "SLURM_JOB_ID": "12007"}
    assert rendezvous(slurm) == ("gpu003", 20_007)
    assert rendezvous({**slurm, "MASTER_ADDR": "here", "MASTER_PORT": "5"}) == ("here", 5)
    with pytest.raises(CurvescopeError, match="MASTER_ADDR"):
        rendezvous({"MASTER_ADDR": "here"})


@ask_each(
    ("nodes", "first"),
    [("node7", "node7"), ("a1,a2", "a1"), ("gpu[09,11]", "gpu09"), ("n[1-2]-ib,m3", "n1-ib")],
)
def test_first_host_of_a_node_list(nodes, first):
    assert first_host(nodes) == first


def test_entry_of_a_recording_comes_back():
    info = RankInfo(3, 4, 1, node=1)
    assert rank_info_of({"distributed": info.entry()}) == info
    assert rank_info_of({}) is None
    with pytest.raises(CurvescopeError, match="damaged"):
        rank_info_of({"distributed": {"rank": 3}})


def test_what_is_recorded_as_it_is_says_its_place_where_that_is_sure():
    entry = {"rank": 9, "world_size": 16, "local_rank": 1, "node": 1}
    assert describe_rank({**TORCHRUN, "GROUP_RANK": "1"}) == {"distributed": entry}
    assert describe_rank({**SLURM, "SLURM_NODEID": "1"}) == {"distributed": entry}
    assert describe_rank(TORCHRUN) == {"distributed": {**entry, "node": None}}
    assert (
        describe_rank({"RANK": "0", "WORLD_SIZE": "2"}) == {}
    )  # nodes of a job whose ranks torchrun will make
    assert describe_rank({}) == {}
