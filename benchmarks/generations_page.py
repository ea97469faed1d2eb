"""Write docs/generations.md: one convolution and one product on a card of every generation, from Kepler to Blackwell.

    python benchmarks/generations_page.py

Nothing runs on a GPU: registers and shared memory are those of our own kernels as compiled here, occupancy and waves
follow from them and the limits of the SM, times are the cost model's, and roofs follow from peaks and bandwidth.
"""

# ruff: noqa: E501 - lines of a Markdown table
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from curvescope.analysis.cost_model.choice import estimate_products_of, get_library
from curvescope.analysis.cost_model.convolution import estimate_algorithms
from curvescope.analysis.cost_model.problems import Convolutions, Products
from curvescope.analysis.cost_model.recording import machine_for, usual_library
from curvescope.analysis.cost_model.tensor_cores import (
    estimate_tensor_convolutions,
    estimate_tensor_products,
    tensor_machine,
)
from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.kernels.catalog import TILE, tile_grid
from curvescope.kernels.compile import compile_source, own_sources
from curvescope.kernels.conv import Conv
from curvescope.kernels.cubin import KernelResources, read_cubin
from curvescope.kernels.gemm import Gemm
from curvescope.profiling.hardware.devices import Device, get_device
from curvescope.profiling.hardware.occupancy import Occupancy, occupancy

PAGE = Path(__file__).parents[1] / "docs" / "generations.md"
CARDS = (
    *("k40", "k80", "titanx_maxwell", "gtx1080", "p100", "v100", "t4", "a100", "rtx3090", "l40s", "rtx4090", "h100"),
    *("h200", "b200", "rtx5090"),
)
# VGG's conv3_1 at batch 32, and a layer of 4096 outputs and inputs for 512 samples.
CONVOLUTION = Conv(32, 128, 56, 56, 256, 3, 3, padding=(1, 1))
PRODUCT = Gemm(4096, 512, 4096)
BLOCK_THREADS = 256
# Algorithms of the table, as the cost model calls them.
ALGORITHMS = {
    "IMPLICIT_PRECOMP_GEMM": "implicit GEMM",
    "WINOGRAD": "Winograd",
    "WINOGRAD_NONFUSED": "not fused",
    "FFT_TILING": "tiled FFT",
}


def kernel(source: str, name: str, device: Device) -> KernelResources | None:
    """Our kernel as compiled for the device; None if no compiler here knows its architecture."""
    text = next(one for one in own_sources() if one.name == source)
    try:
        compiled = compile_source(text, int(device.compute_capability.replace(".", "")))
    except BackendMissingError:
        return None
    return next(one for one in read_cubin(compiled.cubin).kernels if one.name == name)


def resident(device: Device, resources: KernelResources) -> Occupancy:
    """Blocks of the kernel that an SM holds."""
    architecture = int(device.compute_capability.replace(".", ""))
    return occupancy(architecture, BLOCK_THREADS, resources.registers_per_thread, resources.shared_bytes)


def roof_ms(device: Device, flops: int, size: int, precision: str, item_bytes: int) -> float | None:
    """The least time that peak and bandwidth allow; None if the device has no units for the precision."""
    native = device.tensor_flops_per_s(precision) or device.lane_flops_per_s(precision)
    peak = device.peak_products_per_s(precision)
    if not native or peak is None:
        return None
    return 1e3 * max(flops / peak, size * item_bytes / 4 / device.memory_bytes_per_s)


def problems() -> tuple[Convolutions, Products]:
    """The convolution and the product, as the model takes them."""
    conv = CONVOLUTION
    one = Convolutions(*(np.array([x]) for x in (conv.n, conv.c, conv.h, conv.w, conv.k, 3, 3, 1, 1, 1, 1)))
    return one, Products(*(np.array([x]) for x in (PRODUCT.m, PRODUCT.n, PRODUCT.k, False, 1)))


def modelled_ms(device: Device) -> tuple[dict[str, float], float]:
    """Times of the convolution by algorithm, and of the product, in fp32."""
    problem, product = problems()
    machine, library = machine_for(device), get_library(usual_library(device))
    times = estimate_algorithms("forward", problem, machine, ALGORITHMS)
    found = {name: 1e3 * float(one.time_s[0]) for name, one in times.items() if one.possible[0]}
    return found, 1e3 * float(estimate_products_of(product, machine, library).time_s[0])


def modelled_fp16_ms(device: Device) -> tuple[float, float] | tuple[None, None]:
    """Times of the convolution and of the product on tensor cores; None where the card has none for fp16."""
    try:
        machine = tensor_machine(device, "fp16")
    except CurvescopeError:
        return None, None
    problem, product = problems()
    convolution = estimate_tensor_convolutions("forward", problem, machine).time_s[0]
    return 1e3 * float(convolution), 1e3 * float(estimate_tensor_products(product, machine).time_s[0])


def figure(value: float | None) -> str:
    """Three digits; a dash for None."""
    return "-" if value is None else f"{value:.3g}"


def tables() -> Iterator[str]:
    """The page."""
    conv_work, gemm_work = CONVOLUTION.work, PRODUCT.work
    assert conv_work.flops is not None
    assert gemm_work.flops is not None
    pixels = CONVOLUTION.n * CONVOLUTION.h * CONVOLUTION.w
    grids = {
        "conv": int(np.prod(tile_grid(CONVOLUTION.k, pixels))),
        "product": int(np.prod(tile_grid(PRODUCT.m, PRODUCT.n))),
    }
    yield f"""# One convolution and one product over the generations

Written by `python benchmarks/generations_page.py`; nothing here ran on a GPU. The convolution is VGG's conv3_1 forward at batch
{CONVOLUTION.n} (56x56, 128 to 256 channels, 3x3; {conv_work.flops / 1e9:.1f} GFLOP), the product 4096 x 512 x 4096
({gemm_work.flops / 1e9:.1f} GFLOP).

## Registers, shared memory, occupancy and waves

Our own fp32 kernels `sgemm_nn` and `convolution_forward` (tiles of {TILE} x {TILE}, {BLOCK_THREADS} threads), compiled for each card: registers of a
thread and shared memory of a block, blocks that an SM holds at once and the share of its warps that they are, and waves: blocks of the
grid ({grids["product"]} and {grids["conv"]}) over those that the card holds. The last wave is mostly not full: 1.1 waves take the time of 2.
A dash: no compiler at hand knows the architecture.

| card | SMs | registers/SM | shared/SM | sgemm regs | shared | blocks/SM | warps | waves | conv regs | shared | blocks/SM | warps | waves |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""
    for device in map(get_device, CARDS):
        cells = [str(device.sm_count), f"{device.sm.registers:,}", f"{device.sm.shared_bytes // 1024} KiB"]
        for source, name, grid in (("gemm", "sgemm_nn", "product"), ("convolution", "convolution_forward", "conv")):
            resources = kernel(source, name, device)
            if resources is None:
                cells += ["-"] * 5
                continue
            held = resident(device, resources)
            waves = grids[grid] / (held.blocks * device.sm_count)
            shared = f"{resources.shared_bytes / 1024:.3g} KiB"
            cells += [
                str(resources.registers_per_thread),
                shared,
                str(held.blocks),
                f"{held.fraction:.0%}",
                f"{waves:.2f}",
            ]
        yield f"| {device.name} | {' | '.join(cells)} |"
    yield f"""
## Time by algorithm, and roofs

Milliseconds. *Modelled*: by the cost model ([validation](cost-model-validation.md)) for the forward algorithms of cuDNN and for cuBLAS in
fp32, and for both on tensor cores in fp16. Cards newer than Volta are predictions with Volta's constants, and fp16 is fitted to one V100
only; a dash where a card has no tensor cores for fp16. *Roof*: the least time that peak and DRAM bandwidth allow for the
FLOPs of the direct algorithm, each operand moved once: in fp32, in fp16 and fp8 through tensor cores (dense). Winograd and FFT do fewer
FLOPs, so they may lie below the fp32 roof; implicit GEMM lies up to 8 % below it from Volta on, which is
[an error of the fit](cost-model.md#known-limits). Sources of peaks: [devices](reference/devices.md).

| card | {" | ".join(ALGORITHMS.values())} | fp16 modelled | roof fp32 | fp16 | fp8 | product, modelled | fp16 modelled | roof fp32 | fp16 | fp8 |
|---|{"--:|" * (len(ALGORITHMS) + 9)}"""
    for device in map(get_device, CARDS):
        by_algorithm, product_ms = modelled_ms(device)
        cells = [figure(by_algorithm.get(name)) for name in ALGORITHMS]
        for work, fp32_ms, fp16_ms in zip(
            (conv_work, gemm_work), (None, product_ms), modelled_fp16_ms(device), strict=True
        ):
            cells += [figure(fp32_ms)] if fp32_ms is not None else []
            cells.append(figure(fp16_ms))
            for precision, item_bytes in (("fp32", 4), ("fp16", 2), ("fp8", 1)):
                tensor = precision == "fp32" or device.tensor_flops_per_s(precision)
                least = roof_ms(device, work.flops or 0, work.bytes_compulsory or 0, precision, item_bytes)
                cells.append(figure(least if tensor else None))
        yield f"| {device.name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text("\n".join(tables()) + "\n")
