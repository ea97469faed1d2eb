"""Tables of published times: what is read, and what is refused with its line."""

import os

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.readers.time_table import import_table
from curvescope.profiling.recording.store import open_recording


def imported(tmp_path, text, **options):
    source = tmp_path / "times.csv"
    source.write_text(text)
    return open_recording(import_table(source, tmp_path / "run", **options).path)


def test_rows_become_steps_with_their_problem_device_and_number_of_runs(tmp_path):
    recording = imported(
        tmp_path,
        "problem,device,batch,time_us,n,spread\n"
        '"conv, 3x3",K40,8,1500,100,0.02\n"conv, 3x3",K40,8,1501,,\nfc,,1,2.5,,\n',
        noise=0.1,
    )
    steps = recording.frame("steps")
    assert steps["problem"].tolist() == ["conv, 3x3", "conv, 3x3", "fc"]
    assert steps["duration_ns"].tolist() == [1_500_000, 1_501_000, 2_500]
    assert steps["round"].tolist() == [0, 1, 0]
    assert steps["averaged_steps"].isna().tolist() == [False, True, True]
    assert steps["relative_spread"].iloc[0] == 0.02
    assert steps["device_name"].isna().tolist() == [False, False, True]
    assert recording.meta["noise"] == 0.1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks batch and problem"),
        ("problem,batch,time\na,1,2\n", "lacks one of time_ns"),
        ("problem,batch,time_ms,time_s\na,1,2,3\n", "lacks one of time_ns"),
        ("problem,batch,time_ms,gpu\na,1,2,x\n", "unknown columns: gpu"),
        ("problem,batch,time_ms\n", "has no rows"),
        ("problem,batch,time_ms\na,1,2\na,2\n", "line 3: the number of values"),
        ("problem,batch,time_ms\na,1.5,2\n", "line 2: batch is '1.5'; it must be a whole number"),
        ("problem,batch,time_ms\na,1,-2\n", "line 2: time_ms is '-2'"),
        ("problem,batch,time_ms\na,1,nan\n", "line 2: time_ms is 'nan'"),
        ("problem,batch,time_ms\na,1,inf\n", "line 2: time_ms is 'inf'"),
        ('problem,batch,time_ms\n"a,1,2\n', "not CSV"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(tmp_path, text, message):
    with pytest.raises(CurvescopeError, match=message):
        imported(tmp_path, text)
    assert not (tmp_path / "run").exists()


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "times.csv")
    with pytest.raises(CurvescopeError, match=r"times\.csv is no regular file"):
        import_table(tmp_path / "times.csv", tmp_path / "r")
