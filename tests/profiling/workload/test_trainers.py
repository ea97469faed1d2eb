"""What hangs in other people's training loops: torch.profiler's handler, and the callback for
trainers.
"""

import pytest
import torch
from torch import nn

import curvescope
from curvescope.profiling.recording.store import list_recordings

from .test_annotate import domain

__all__ = ["domain"]  # a fixture


def train(handler, steps):
    model = nn.Linear(6, 3)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        on_trace_ready=handler,
        record_shapes=True,
        acc_events=True,
    ) as profiler:
        for _ in range(steps):
            model(torch.zeros(5, 6)).sum().backward()
            profiler.step()


def test_every_trace_becomes_a_recording_and_none_is_overwritten(tmp_path):
    train(curvescope.trace_handler(tmp_path / "runs"), steps=6)
    recordings = list_recordings(tmp_path / "runs")
    assert len(recordings) == 2  # in the same second
    for recording in recordings:
        assert recording.complete
        assert list(recording.frame("steps")["batch"]) == [5, 5]
        assert "aten::linear" in set(recording.frame("kernels")["op"])


def test_training_goes_on_where_a_trace_cannot_be_recorded(tmp_path):
    handler = curvescope.trace_handler(tmp_path)

    class Broken:
        def export_chrome_trace(self, path):
            raise RuntimeError("no trace")

    with pytest.warns(RuntimeWarning, match="this trace was not recorded: no trace"):
        handler(Broken())
    (tmp_path / "file").write_text("")
    with pytest.raises(curvescope.CurvescopeError, match="could not be written"):
        curvescope.trace_handler(tmp_path / "file" / "runs")


class Lightning:
    """Calls every hook by name with positional arguments, as Lightning's `_call_callback_hooks`
    does.
    """

    def fit(self, callback, module, batches):
        assert callback.state_key == "curvescope"
        assert not callback.state_dict()
        for name in ("setup", "on_fit_start", "on_train_start", "on_train_epoch_start"):
            getattr(callback, name)(self, module, *(["fit"] if name == "setup" else []))
        for number, batch in enumerate(batches):
            callback.on_train_batch_start(self, module, batch, number)
            loss = module(batch).sum()
            callback.on_before_backward(self, module, loss)
            loss.backward()
            callback.on_train_batch_end(self, module, None, batch, number)
        callback.on_train_end(self, module)


class HuggingFace:
    """Calls every event by name with (args, state, control) and the rest by keyword, as
    `CallbackHandler` does.
    """

    def fit(self, callback, model, batches):
        def call(event):
            return getattr(callback, event)("args", "state", "control", model=model, optimizer=None)

        for event in ("on_init_end", "on_train_begin", "on_epoch_begin"):
            assert call(event) is None  # a value would replace the trainer's control
        for batch in batches:
            assert call("on_step_begin") is None
            model(batch).sum().backward()
            call("on_optimizer_step")
            assert call("on_step_end") is None
        call("on_train_end")


@pytest.mark.parametrize("trainer", [Lightning(), HuggingFace()])
def test_callback_marks_steps_and_layers_and_leaves_the_model_as_it_was(domain, trainer):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    trainer.fit(curvescope.TrainerCallback(), model, [torch.ones(2, 4)] * 2)
    one = ["step", "step/0", "step/1", "step/1 backward", "step/0 backward"]
    assert [line for line in domain.log if line in one][: len(one)] == one
    assert domain.log.count("step") == 2
    assert domain.open == []
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_callback_is_no_more_than_its_hooks(domain):
    callback = curvescope.TrainerCallback()
    with pytest.raises(AttributeError):
        callback.optimizer  # noqa: B018
    callback.on_train_batch_start(None, None, None, 0)
    callback.on_exception(None, None, ValueError())
    assert domain.open == []
