"""Print the tables and write the figures of docs/case-studies. `python benchmarks/case_studies.py` takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fitting.published import predict, read_deepbench
from network_sweeps import alexnet_ungrouped
from scatter import Series, write_curves

from curvescope.analysis.cost_model.choice import get_library
from curvescope.analysis.cost_model.constants import constants_for, load_fitted
from curvescope.analysis.cost_model.frameworks import FRAMEWORKS
from curvescope.analysis.cost_model.networks import Step, estimate_step, load_operations
from curvescope.analysis.cost_model.recording import machine_for, usual_library
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"
GIB = 2**30
# TensorFlow's rules for memory, but the library asked instead of every algorithm timed.
ASKING = replace(FRAMEWORKS["tensorflow"], name="tensorflow, asking the library", autotuned=False)


def modelled(
    network: str | Mapping[str, Any],
    batches: list[int],
    device: str,
    framework: Any,
    kind: str = "forward+backward",
    memory_bytes: float | None = None,
    library: str | None = None,
) -> Step:
    """Steps on a GPU, with the library of its time if none is named."""
    gpu = get_device(device)
    operations = load_operations(network) if isinstance(network, str) else network
    chosen = get_library(library or usual_library(gpu))
    return estimate_step(operations, batches, machine_for(gpu), chosen, kind, memory_bytes, framework)


def vgg_on_gtx1080() -> None:
    """Case 1."""
    print("VGG on GTX 1080; published 420.28 and 899.86 ms, excess +59.30 ms")
    rules = (FRAMEWORKS["torch"], ASKING, FRAMEWORKS["tensorflow"], FRAMEWORKS["caffe"])
    print("| network | rules | GPU memory | T(64) ms | T(128) ms | excess ms | held at 128, GiB |")
    for network in ("vgg_a", "vgg16", "vgg19"):
        for rule in rules:
            usable = (None, 12 * GIB, 7.2 * GIB, 6.8 * GIB) if network == "vgg_a" else (None, 12 * GIB)
            for memory in usable:
                step = modelled(network, [64, 128], "gtx1080", rule, memory_bytes=memory)
                small, large = step.time_s * 1e3
                fits, card = step.fits[1], "8 GB" if memory is None else f"{memory / GIB:g} GiB"
                print(
                    f"| {network} | {rule.name} | {card} | {small:.0f} | "
                    f"{f'{large:.0f}' if fits else 'does not fit'} | {f'{large - 2 * small:+.1f}' if fits else ''} | "
                    f"{step.memory_bytes[1] / GIB:.2f} |"
                )
    batches = list(range(16, 137, 4))
    curves = []
    for memory, name in ((None, "8 GB, modelled"), (12 * GIB, "12 GB, modelled")):
        step = modelled("vgg_a", batches, "gtx1080", FRAMEWORKS["torch"], memory_bytes=memory)
        kept = step.fits
        curves.append(Series(name, list(step.batches[kept]), list((step.time_s * 1e3 / step.batches)[kept])))
    curves.append(Series("published, VGG", [64, 128], [420.28 / 64, 899.86 / 128]))
    write_curves(FIGURES / "case_vgg_gtx1080.svg", "VGG-A, forward + backward, GTX 1080", "ms per sample", curves)
    step = modelled("vgg_a", [64, 128], "gtx1080", FRAMEWORKS["torch"])
    print("terms that change algorithm from 64 to 128:")
    for term in step.terms:
        if term.kernel[0] != term.kernel[1]:
            excess = (term.time_s[1] - 2 * term.time_s[0]) * 1e3
            print(f"  {term.layer} {term.kernel[0]} -> {term.kernel[1]}: excess {excess:+.1f} ms")


def curvature_at_8() -> None:
    """Case 2."""
    print("\nCurvature at batch 8: of time per sample over log2(batch), in ms/sample, and of T over the batch")
    for device in ("k40", "titanx_pascal"):
        curves = []
        for network in ("alexnet", "overfeat", "vgg_a", "googlenet"):
            for rule in (FRAMEWORKS["tensorflow"], ASKING):
                step = modelled(network, [1, 2, 4, 8, 16, 32, 64], device, rule)
                times = dict(zip(step.batches.astype(int), step.time_s * 1e3, strict=True))
                per_sample = {b: t / b for b, t in times.items()}
                log2 = per_sample[16] - 2 * per_sample[8] + per_sample[4]
                linear = ((times[16] - times[8]) / 8 - (times[8] - times[4]) / 4) / 6
                print(f"| {device} | {network} | {rule.name} | {log2:+.3f} | {linear:+.4f} | "
                      f"{(times[16] - times[8]) / 8:.2f} vs {(times[8] - times[4]) / 4:.2f} |")  # fmt: skip
            curves.append(Series(network, list(step.batches), list(step.time_s * 1e3 / step.batches)))
        write_curves(FIGURES / f"case_curvature_{device}.svg", f"Modelled, {device}", "ms per sample", curves)


def conv3_1() -> None:
    """Case 3."""
    print("\nVGG's conv3_1, 56×56, 128→256, 3×3: published and modelled ms at batch 8 and 16")
    fitted = load_fitted().constants
    print("| GPU | library | phase | published 8 | 16 | ratio | modelled 8 | 16 | ratio | algorithms |")
    for group in read_deepbench(HERE / "published"):
        rows = group.names == "56x56x128x256x3x3x1"
        if group.kind == "product" or not rows.any():
            continue
        one = group.take(rows)
        time_s, names = predict(one, constants_for(one.architecture, fitted))
        order = np.argsort(one.batches)
        published, says = one.time_s[order] * 1e3, time_s[order] * 1e3
        print(
            f"| {one.device} | {one.library} | {one.kind} | {published[0]:.2f} | {published[1]:.2f} | "
            f"{published[1] / published[0]:.1f} | {says[0]:.2f} | {says[1]:.2f} | {says[1] / says[0]:.1f} | "
            f"{' → '.join(names[order])} |"
        )


def alexnet_on_k40m() -> None:
    """Case 4."""
    print("\nAlexNet (group=1) on K40m")
    table = pd.read_csv(HERE / "published" / "k40m_batch_sweeps.csv")
    table = table[table.network.str.startswith("AlexNet")]
    curves = []
    for framework, rows in table.groupby("framework"):
        rows = rows.sort_values("batch")
        curves.append(
            Series(f"{str(framework).split()[0]}, published", list(rows.batch), list(rows.time_ms / rows.batch))
        )
        for (b1, t1), (b2, t2) in pairwise(zip(rows.batch, rows.time_ms, strict=True)):
            print(f"  {framework} {b1}->{b2}: {t1:.0f} -> {t2:.0f}, excess {t2 - b2 / b1 * t1:+.0f} ms")
    batches = [64, 128, 256, 512]
    for rule, kind in (
        (FRAMEWORKS["tensorflow"], "training"),
        (FRAMEWORKS["paddle"], "training"),
        (FRAMEWORKS["caffe"], "forward+backward"),
    ):
        step = modelled(alexnet_ungrouped(), batches, "k40", rule, kind, library="cudnn5.1")
        times, held = np.round(step.time_s * 1e3), np.round(step.memory_bytes / GIB, 2)
        print(f"  modelled, {rule.name}, {kind}: {times} ms, excess {times[3] - 2 * times[2]:+.0f}, held {held} GiB")
        for term in step.terms:
            if term.op == "convolution" and term.kernel[2] != term.kernel[3]:
                print(f"    {term.layer} {term.kernel[2]} -> {term.kernel[3]} at 512")
        curves.append(Series(f"{rule.name}, modelled", batches, list(step.time_s * 1e3 / step.batches)))
    write_curves(FIGURES / "case_alexnet_k40m.svg", "AlexNet, forward + backward, K40m", "ms per sample", curves)


if __name__ == "__main__":
    vgg_on_gtx1080()
    curvature_at_8()
    conv3_1()
    alexnet_on_k40m()
