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
from curvescope.analysis.cost_model.networks import CONTEXT_BYTES, Step, estimate_step, load_operations
from curvescope.analysis.cost_model.recording import machine_for, usual_library
from curvescope.analysis.decompose.functionals import curvature
from curvescope.profiling.hardware.devices import get_device

HERE = Path(__file__).parent
FIGURES = HERE.parent / "docs" / "figures"
GIB = 2**30
MEMORY_OF_LOG = 7.26 * GIB + CONTEXT_BYTES  # a published log of a GTX 1080 has 7.26 GiB free (tensorflow#7187)
MEMORIES = {None: "8 GB", MEMORY_OF_LOG: "7.26 GiB free", 12 * GIB: "12 GiB"}
# TensorFlow's rules for memory, but the library asked instead of every algorithm timed.
ASKING = replace(FRAMEWORKS["tensorflow"], name="tensorflow, asking the library", autotuned=False)
RULES = (FRAMEWORKS["tensorflow1.0"], FRAMEWORKS["tensorflow"], ASKING, FRAMEWORKS["torch"], FRAMEWORKS["caffe"])


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
    """Case 1: every list of algorithms and every amount of memory, not the best of them."""
    print("VGG on GTX 1080; published 420.28 and 899.86 ms, excess +59.30 ms")
    print("| network | rules | GPU memory | T(64) ms | T(128) ms | excess ms | held at 128, GiB |")
    for network in ("vgg_a", "vgg16"):
        for rule in RULES:
            for memory, card in MEMORIES.items():
                step = modelled(network, [64, 128], "gtx1080", rule, memory_bytes=memory)
                small, large = step.time_s * 1e3
                fits = step.fits[1]
                print(
                    f"| {network} | {rule.name} | {card} | {small:.0f} | "
                    f"{f'{large:.0f}' if fits else 'does not fit'} | {f'{large - 2 * small:+.0f}' if fits else ''} | "
                    f"{step.memory_bytes[1] / GIB:.2f} |"
                )
    print("VGG-16 at batch 16, measured 182.8 ms (cuDNN 5.1, GTX 1080, jcjohnson/cnn-benchmarks):")
    for rule in RULES:
        print(f"  {rule.name}: {modelled('vgg16', [16], 'gtx1080', rule).time_s[0] * 1e3:.0f} ms")
    batches = list(range(16, 137, 4))
    curves = []
    for memory, name in MEMORIES.items():
        step = modelled("vgg_a", batches, "gtx1080", FRAMEWORKS["tensorflow1.0"], memory_bytes=memory)
        kept = step.fits
        curves.append(
            Series(f"{name}, modelled", list(step.batches[kept]), list((step.time_s * 1e3 / step.batches)[kept]))
        )
    curves.append(Series("published, VGG", [64, 128], [420.28 / 64, 899.86 / 128]))
    write_curves(FIGURES / "case_vgg_gtx1080.svg", "VGG-A, forward + backward, GTX 1080", "ms per sample", curves)
    step = modelled("vgg_a", [64, 128], "gtx1080", FRAMEWORKS["tensorflow1.0"], memory_bytes=MEMORY_OF_LOG)
    print("terms that change algorithm from 64 to 128 under TensorFlow 1.0 with 7.26 GiB free:")
    for term in step.terms:
        if term.kernel[0] != term.kernel[1]:
            excess = (term.time_s[1] - 2 * term.time_s[0]) * 1e3
            print(f"  {term.layer} {term.kernel[0]} -> {term.kernel[1]}: excess {excess:+.1f} ms")


# The post's networks and cards, and what it says of their curvature at batch 8.
POST = {"k40": {}, "titanx_pascal": {"alexnet": "up", "overfeat": "up"}}
NETWORKS = ("alexnet", "overfeat", "vgg_a", "googlenet", "resnet50", "resnet101")


def curvature_at_8() -> None:
    """Case 2: the signs on the axis of throughput, for all networks and lists, and what "down" alone would score."""
    print("\nCurvature at batch 8: of throughput over log2(batch), in samples/s, and of time per sample, in ms/sample")
    right: dict[str, int] = {}
    for device, up in POST.items():
        curves = []
        for network in NETWORKS:
            published = up.get(network, "down")
            for rule in (FRAMEWORKS["tensorflow1.0"], FRAMEWORKS["tensorflow"], ASKING):
                step = modelled(network, [1, 2, 4, 8, 16, 32, 64], device, rule)
                times = dict(zip(step.batches.astype(int), step.time_s * 1e3, strict=True))
                throughput, per_sample = (
                    sum(w * ((1e3 / times[b]) if axis == "throughput" else times[b]) for b, w in f.coefficients)
                    for axis in ("throughput", "log2")
                    for f in (curvature(4, 8, 16, axis),)
                )
                says = "up" if throughput > 0 else "down"
                right[rule.name] = right.get(rule.name, 0) + (says == published)
                print(f"| {device} | {network} | {rule.name} | {published} | {says} | {throughput:+.1f} | "
                      f"{per_sample:+.3f} |")  # fmt: skip
            curves.append(Series(network, list(step.batches), list(step.batches / step.time_s)))
        write_curves(FIGURES / f"case_curvature_{device}.svg", f"Modelled, {device}", "samples per second", curves)
    total = len(POST) * len(NETWORKS)
    down = total - sum(len(up) for up in POST.values())
    print(f"signs right, of {total}: {right}; saying down of all: {down}")


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
