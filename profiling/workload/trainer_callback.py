"""A callback for Lightning and Hugging Face's Trainer: steps and layers in NVTX ranges, in a loop that is theirs.

Both call methods by name, so one object serves both, and neither has to be installed. What it marks is what `curvescope
record -- python train.py`, Nsight Systems and Nsight Compute see.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from .annotate import DOMAIN, annotate


class TrainerCallback:
    """Pass one to `Trainer(callbacks=[...])` of either library, for one training.

    Attributes:
        state_key: Lightning's name for the callback's state, of which there is none.
    """

    state_key = _legacy_state_key = "curvescope"

    def __init__(self) -> None:
        import nvtx

        self._domain = nvtx.get_domain(DOMAIN)
        self._step = self._domain.get_event_attributes(message="step")
        self._layers = ExitStack()
        self._in_step = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lightning begins: mark the layers of its module."""
        del trainer
        self._begin(pl_module)

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Hugging Face's Trainer begins: mark the layers of its `model`."""
        del args, state, control
        if named.get("model") is not None:
            self._begin(named["model"])

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Lightning's step begins."""
        self._push()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Hugging Face's step, all of its accumulated passes, begins."""
        self._push()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Lightning's step ends."""
        self._pop()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Hugging Face's step ends."""
        self._pop()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Training ends: the model is as it was."""
        self._pop()
        self._layers.close()

    def on_exception(self, *_: Any, **__: Any) -> None:
        """Lightning's training failed: the same."""
        self.on_train_end()

    def state_dict(self) -> dict[str, Any]:
        """Nothing to save in a checkpoint."""
        return {}

    def __getattr__(self, name: str) -> Any:
        # Both libraries call every hook they know, more with each version; those not named above do nothing.
        if name.startswith("on_") or name in ("setup", "teardown", "load_state_dict"):
            return _nothing
        raise AttributeError(name)

    def _begin(self, model: Any) -> None:
        self._layers.close()
        self._layers.enter_context(annotate(model))

    def _push(self) -> None:
        self._pop()  # a step that was left by an exception has no end
        self._domain.push_range(self._step)
        self._in_step = True

    def _pop(self) -> None:
        if self._in_step:
            self._domain.pop_range()
            self._in_step = False


def _nothing(*_: Any, **__: Any) -> None:
    """A hook that does nothing."""
