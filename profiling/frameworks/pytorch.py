"""PyTorch: work on a GPU goes on after a call returned; on a CPU it is done by then."""

from __future__ import annotations

from .adapter import Adapter


class PyTorch(Adapter):
    """PyTorch."""

    name = "torch"
    modules = ("torch",)
    distributions = ("torch",)
    waiting = "torch.cuda.synchronize()"
    # Of torch's allocators, oneDNN and the C++ library, and of cuBLAS and cuDNN, which allocate
    # past torch, or find no algorithm whose workspace fits.
    out_of_memory = (
        "out of memory",
        "can't allocate memory",
        "bad_alloc",
        "could not create a memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        # the first handle's workspace did not fit
        "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
        "CUDNN_STATUS_ALLOC_FAILED",
        "_HOST_ALLOCATION_FAILED",  # CUDNN_STATUS_INTERNAL_ERROR_… since cuDNN 9.0, as the next
        "_DEVICE_ALLOCATION_FAILED",
        "Unable to find a valid cuDNN algorithm",
        "unable to find an engine to execute this computation",
        # Where none is left PyTorch asks NVML who has it, and before 2.14 says only this if NVML
        # has no answer: with MIG, on a Jetson, in some containers.
        "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
    )

    def is_used(self) -> bool:
        """Whether it has begun to use a GPU: on a CPU there is nothing to wait for."""
        torch = self.module
        return torch is not None and bool(torch.cuda.is_initialized())

    def wait(self, result: object, device: str) -> None:
        """Wait for the CUDA device of the steps; for the current one if they were not known to use
        any.
        """
        del result
        self.module.cuda.synchronize(device if device.startswith("cuda") else None)
