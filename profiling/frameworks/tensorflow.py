"""TensorFlow, and Keras on it: on a GPU a call returns before its work is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from .adapter import Adapter

_CONTEXT = "tensorflow.python.eager.context"


class TensorFlow(Adapter):
    """TensorFlow."""

    name = "tensorflow"
    modules = ("tensorflow", "keras")
    distributions = ("tensorflow", "tensorflow-cpu")
    waiting = "tf.test.experimental.sync_devices()"
    out_of_memory = ("OOM when allocating", "failed to allocate memory", "Out of memory")
    profiles = True
    errors = ("ResourceExhaustedError", "InternalError")

    def is_used(self) -> bool:
        """Whether its runtime has begun: other packages import it without a need, e.g. to look for
        it.
        """
        if self.module is None:
            return False
        context = getattr(sys.modules.get(_CONTEXT), "_context", None)
        return context is not None and bool(getattr(context, "_initialized", True))

    def threads(self) -> int:
        """The threads of one operator; by default one for each core that the process may use."""
        set_to = self.module.config.threading.get_intra_op_parallelism_threads()
        usable = getattr(os, "sched_getaffinity", None)
        return int(set_to) or (len(usable(0)) if usable else os.cpu_count() or 1)

    def profile(self, run: Callable[[], object], folder: str) -> None:
        """Record by tf.profiler."""
        profiler = self.module.profiler.experimental
        profiler.start(folder)
        try:
            with profiler.Trace("step", step_num=0, _r=1):
                run()
        finally:
            profiler.stop()

    def wait(self, result: object, device: str) -> None:
        """Wait for all its devices."""
        del result, device
        self.module.test.experimental.sync_devices()
