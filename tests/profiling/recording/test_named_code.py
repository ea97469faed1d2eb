"""Code that a recording names runs again only for the user who named it."""

import json
import os
import stat

import pytest

from curvescope.base.errors import CurvescopeError
from curvescope.base.user_folders import data_folder
from curvescope.profiling.recording import named_code
from curvescope.profiling.recording.named_code import (
    SIGNATURE,
    check_recorded_code,
    describe_code,
    signature_entry,
)

from ...tables import ask_each

OWN_STEP = {
    "network": "mine",
    "step": "train.py:make_step",
    "step_module": None,
    "mode": "own",
    "axis": {"name": "batch", "unit": None},
    "fixed": {"length": 128},
    "torch_device": "cpu",
}
OWN_NETWORK = {
    "network": "my_model:build",
    "input_shape": [3, 4, 4],
    "mode": "training",
    "precision": "fp32",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(named_code, "_signed_here", set())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def recorded(spec):
    """The entries as `recording.json` gives them to another process later."""
    entries = json.loads(json.dumps({**spec, **signature_entry(describe_code(spec))}))
    named_code._signed_here.clear()
    return entries


def refuses(meta):
    with pytest.raises(CurvescopeError, match="--run-its-code") as caught:
        check_recorded_code("runs/x", meta, False)
    check_recorded_code("runs/x", meta, True)
    return str(caught.value)


@pytest.mark.parametrize("spec", [OWN_STEP, OWN_NETWORK])
def test_what_this_user_measured_runs_again(spec):
    check_recorded_code("runs/x", recorded(spec), False)


@ask_each("spec", [{"network": "alexnet"}, {"network": "vgg_a", "mode": "training"}, {}])
def test_networks_of_ours_need_no_signature(spec):
    assert SIGNATURE not in recorded(spec)
    check_recorded_code("runs/x", spec, False)
    assert not data_folder().exists()


def test_somebody_elses_recording_is_refused_and_its_code_named():
    message = refuses(OWN_STEP)
    assert f"train.py:make_step ({os.getcwd()}/train.py)" in message
    assert "has no signature" in message


@ask_each(
    "change",
    [
        {"step": "other.py:make_step"},
        {"step": "train.py:wipe"},
        {"network": "x:y"},
        {"fixed": {"length": 129}},
        {"axis": {"name": "path", "unit": None}},
        {"torch_device": "cuda:0"},
        {"step_module": "model"},
        {"code_signature": "0" * 64},
        {"code_signature": 7},
        {"code_signature": "é"},
    ],
)
def test_a_change_after_the_measurement_is_noticed(change):
    refuses({**recorded(OWN_STEP), **change})


def test_a_signature_holds_for_the_same_files_alone(tmp_path, monkeypatch):
    """Or a recording that its owner shared could be laid beside a file of another author."""
    meta, own = recorded(OWN_STEP), recorded(OWN_NETWORK)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "my_model.py").touch()
    monkeypatch.chdir(tmp_path / "other")
    assert "does not fit" in refuses(meta)
    assert str(tmp_path / "other" / "my_model.py") in refuses(own)


def test_a_signature_of_another_user_is_refused(tmp_path, monkeypatch):
    meta = recorded(OWN_STEP)
    monkeypatch.setenv("CURVESCOPE_DATA", str(tmp_path / "of another"))
    refuses(meta)
    recorded(OWN_NETWORK)  # now the other has a key, too
    refuses(meta)


def test_the_key_is_this_users_alone():
    meta = recorded(OWN_STEP)
    key = data_folder() / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [path.name for path in data_folder().iterdir()] == ["key"]
    key.chmod(0o640)
    with pytest.raises(CurvescopeError, match="no key that only you can read"):
        check_recorded_code("runs/x", meta, False)
    assert SIGNATURE not in recorded(OWN_STEP)
    key.chmod(0o600)
    check_recorded_code("runs/x", meta, False)
    data_folder().chmod(0o777)
    with pytest.raises(CurvescopeError, match="no key that only you can read"):
        check_recorded_code("runs/x", meta, False)


def test_a_link_in_place_of_the_key_is_refused(tmp_path):
    meta = recorded(OWN_STEP)
    key = data_folder() / "key"
    key.rename(tmp_path / "moved")
    key.symlink_to(tmp_path / "moved")
    with pytest.raises(CurvescopeError, match="cannot be read"):
        check_recorded_code("runs/x", meta, False)


def test_without_a_place_for_a_key_the_same_process_still_runs_what_it_measured(monkeypatch):
    monkeypatch.setenv("CURVESCOPE_DATA", "/proc/none")
    assert signature_entry(describe_code(OWN_STEP)) == {}
    check_recorded_code("runs/x", OWN_STEP, False)
    refuses({**OWN_STEP, "step": "other.py:make_step"})
