"""The one table of lost data: names, how much each matters, and what the user reads."""

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.profiling.recording.lost import describe_lost
from curvescope.profiling.recording.store import RecordingWriter, Status, open_recording


def record_lost(folder, *counts):
    with RecordingWriter(folder, {}) as writer:
        for count in counts:
            writer.count_lost(*count)
    return open_recording(folder).meta


def test_a_name_of_the_table_brings_its_sentence(tmp_path):
    lost = record_lost(tmp_path / "r", ("stray_commas", 2))["lost"]
    assert describe_lost(lost) == [
        "Repaired: 2 lists or objects that end in a comma, which JSON does not allow; nothing was "
        "lost (stray_commas)."
    ]


def test_an_unknown_name_is_an_error_even_where_nothing_is_counted(tmp_path):
    with pytest.raises(CurvescopeError, match="called 'stray_comas': pass a sentence"):
        record_lost(tmp_path / "r", ("stray_comas", 0))


@pytest.mark.parametrize(
    ("count", "status"),
    [
        (("nvtx_dropped", 1), Status.INCOMPLETE),
        (("nvtx_dropped", 0), Status.COMPLETE),
        (("ranges_cut", 1), Status.COMPLETE),
        (("device_work_without_launch", 1), Status.COMPLETE),
        (("of_a_plugin", 1, "runs that failed"), Status.COMPLETE),
        # An import of a recording brings its own sentence; the table says how much it matters.
        (("nvtx_dropped", 1, "an old sentence."), Status.INCOMPLETE),
    ],
)
def test_a_recording_is_complete_only_where_no_recorded_data_is_gone(tmp_path, count, status):
    assert record_lost(tmp_path / "r", count)["status"] == status


def test_an_old_recording_keeps_its_sentence_and_one_lost_thing_is_one_of_what_the_sentence_lists():
    old = {
        "nvtx_dropped": {"count": 3, "sentence": "Ranges came faster than they could be written."}
    }
    assert describe_lost(old) == [
        "Lost: 3 nvtx_dropped (Ranges came faster than they could be written)."
    ]
    lost = {
        "nvtx_unclosed": {
            "count": 1,
            "severity": "partial",
            "sentence": "ranges without a recorded end",
        }
    }
    assert describe_lost(lost) == [
        "Lost: 1 of these: ranges without a recorded end (nvtx_unclosed)."
    ]
