"""A callback for Lightning and Hugging Face's Trainer that puts steps and layers into NVTX ranges.

Both libraries call methods by name, so one object serves both, and neither has to be installed. The
ranges are visible to `curvescope record -- python train.py`, Nsight Systems and Nsight Compute.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ..attribution.range_names import OWN_DOMAIN
from .annotate import annotate


class TrainerCallback:
    """Pass one to `Trainer(callbacks=[...])` of either library, for one training."""

    state_key = _legacy_state_key = "curvescope"  # Lightning's, of the state, which is empty

    def __init__(self) -> None:
        import nvtx

        self._domain = nvtx.get_domain(OWN_DOMAIN)
        self._step = self._domain.get_event_attributes(message="step")
        self._layers = ExitStack()
        self._in_step = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start of training in Lightning: mark the layers of its module."""
        del trainer
        self._begin(pl_module)

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Start of training in Hugging Face's Trainer: mark the layers of its `model`."""
        del args, state, control
        if named.get("model") is not None:
            self._begin(named["model"])

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """Start of a Lightning step, or of a Hugging Face step with all its accumulated passes."""
        self.on_train_batch_end()  # an exception may have skipped the end of the previous step
        self._domain.push_range(self._step)
        self._in_step = True

    on_step_begin = on_train_batch_start

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """End of a step in either library."""
        if self._in_step:
            self._domain.pop_range()
            self._in_step = False

    on_step_end = on_train_batch_end

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """End of training in either library, or failure in Lightning's: remove the hooks."""
        self.on_train_batch_end()
        self._layers.close()

    on_exception = on_train_end

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: none."""
        return {}

    def __getattr__(self, name: str) -> Any:
        # Both libraries call every hook they define, more with each version; those not named above
        # do nothing.
        if name.startswith("on_") or name in ("setup", "teardown", "load_state_dict"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def _begin(self, model: Any) -> None:
        self._layers.close()
        self._layers.enter_context(annotate(model))
