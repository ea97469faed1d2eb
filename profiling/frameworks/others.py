"""Frameworks of which Curvescope knows only how to wait, their versions, and their message without
memory.
"""

from __future__ import annotations

from .adapter import Adapter


class OnnxRuntime(Adapter):
    """ONNX Runtime: a run returns when it is done."""

    name = "onnxruntime"
    modules = ("onnxruntime",)
    distributions = ("onnxruntime", "onnxruntime-gpu")
    waiting = "session.run(…), without run_async"
    out_of_memory = ("Failed to allocate memory", "bad allocation", "BFCArena")
    errors = ("RuntimeException", "Fail")


class Paddle(Adapter):
    """PaddlePaddle."""

    name = "paddle"
    modules = ("paddle",)
    distributions = ("paddlepaddle", "paddlepaddle-gpu")
    waiting = "paddle.device.synchronize()"
    out_of_memory = ("ResourceExhaustedError", "Out of memory")

    def wait(self, result: object, device: str) -> None:
        """Wait for its current device."""
        del result, device
        if str(self.module.device.get_device()) != "cpu":
            self.module.device.synchronize()


class Mlx(Adapter):
    """MLX, whose arrays are computed when they are asked for: a step must ask, with `mx.eval`."""

    name = "mlx"
    modules = ("mlx.core", "mlx")
    distributions = ("mlx",)
    waiting = "mx.eval(result)"

    def wait(self, result: object, device: str) -> None:
        """Compute the value of a step, and wait for it."""
        del device
        self.module.eval(result)
        self.module.synchronize()
