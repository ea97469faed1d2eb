"""Steps of a named network in another framework than PyTorch, built from its description."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...base.errors import BackendMissingError, CurvescopeError
from ..recording.axis import TOKENS, Axis
from .networks.description import Row, read_description
from .networks.keras_build import load_keras
from .own_step import OwnStep

_NUMBER = re.compile(r"_\d+$")
# TensorFlow's operators that compute a convolution or a product with what follows it.
_FUSED_PRODUCT = re.compile(r"_?(MklNative)?(PadWith)?Fused(Conv2D|MatMul)")
_PRODUCTS = ("convolution", "linear")
_FUSED_AFTER = ("relu", "batch_norm", "add", "gelu", "tanh")
TORCH = "torch"
TORCH_COMPILE = "torch-compile"
_KERAS = ".networks.keras_build"
# Builders by the name of `--framework`: the module, what must be installed, how, and settings of
# `make_step`.
_BUILDERS: dict[str, tuple[str, tuple[str, ...], str, dict[str, str]]] = {
    "jax": (".networks.jax_build", ("jax",), "'curvescope[jax]'", {}),
    "keras-tensorflow": (
        _KERAS,
        ("keras", "tensorflow"),
        "'curvescope[tensorflow]'",
        {"backend": "tensorflow"},
    ),
    "keras-jax": (_KERAS, ("keras", "jax"), "'curvescope[jax]' keras", {"backend": "jax"}),
    "onnxruntime": (
        ".networks.onnx_build",
        ("torch", "onnxscript", "onnxruntime"),
        "'curvescope[torch,onnx]'",
        {},
    ),
}
FRAMEWORKS = (TORCH, TORCH_COMPILE, *_BUILDERS)
# What each runs: layout, compilation, products, memory. Threads and the time of compilation are
# measured.
CONDITIONS = {
    TORCH: "channels first; not compiled; fp32 products exact",
    TORCH_COMPILE: "channels first; compiled by torch.compile; fp32 products exact",
    "jax": "channels last; whole step compiled by jax.jit; fp32 products exact (highest); "
    "reserves most of a GPU's memory",
    "keras-tensorflow": "channels last; train_on_batch as a graph, through XLA where Keras "
    "chooses it; fp32 products by TensorFlow's default (TF32 on a GPU); "
    "reserves all of a GPU's memory",
    "keras-jax": "channels last; train_on_batch compiled by jax.jit; fp32 products by JAX's "
    "default; reserves most of a GPU's memory",
    "onnxruntime": "channels first, or as ONNX Runtime stores them; exported by torch.onnx, its "
    "graph optimized before the first step; forward alone, on the CPU",
}
# How a step that trains writes its parameters.
_IN_PLACE = "parameters updated in place"
UPDATES = {
    TORCH: _IN_PLACE,
    TORCH_COMPILE: _IN_PLACE,
    "jax": "parameters donated",
    "keras-tensorflow": _IN_PLACE,
    "keras-jax": "state donated",
}


def list_cache_variables(framework: str, folder: Path) -> dict[str, str]:
    """Variables by which processes of a framework after the first take compiled functions from a
    folder; empty where it keeps them itself, or the environment names a folder.
    """
    if framework not in ("jax", "keras-jax") or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return {}
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def check_framework(framework: str, *, elsewhere: bool = False) -> None:
    """Refuse a framework that is unknown, or not installed where it would run here."""
    if "," in framework:
        raise CurvescopeError(
            f"--framework {framework}: name one here; `compare` and `sweep` take several."
        )
    if framework not in FRAMEWORKS:
        near = [name for name in FRAMEWORKS if framework and framework.lower() in name]
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        frameworks = ", ".join(FRAMEWORKS)
        raise CurvescopeError(f"--framework {framework}: {hint}Choose from {frameworks}.")
    if elsewhere or framework in (TORCH, TORCH_COMPILE):
        return
    _, packages, what, _ = _BUILDERS[framework]
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise BackendMissingError(
            f"--framework {framework} needs {' and '.join(missing)}: `pip install {what}`, in an "
            "environment of its own."
        )


class FrameworkStep(OwnStep):
    """Steps of a described network in a framework, with the data, the loss and the optimizer of
    `network_step`.
    """

    def __init__(
        self,
        network: str,
        framework: str,
        mode: str = "training",
        precision: str = "fp32",
        *,
        sequence_length: int | None = None,
        axis: Axis | None = None,
        fixed: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare; the framework is loaded with the first step.

        A network of text has another number of tokens than published by `sequence_length`, or as
        `axis`, as for `network_step.Workload`.
        """
        check_framework(framework)
        module, _, _, settings = _BUILDERS[framework]
        builder = importlib.import_module(module, __package__)
        description = read_description(network, sequence_length)

        def make_step(batch: int = 1, tokens: int | None = None) -> Callable[[], object]:
            made = description
            if tokens is not None:
                made = read_description(network, tokens)
            step: Callable[[], object] = builder.make_step(
                made, batch, mode=mode, precision=precision, **settings
            )
            return step

        super().__init__(make_step, name=network, spec=network, axis=axis, fixed=fixed)
        self.framework = framework
        self.mode = mode
        self.precision = precision
        self._tokens = description.input_shape[0] if description.vocabulary else None
        self._layers = {row.layer for row in description.rows}
        self._products = products_before(description.rows)

    def load_libraries(self) -> None:
        """Import the framework, and let it begin."""
        _, packages, _, settings = _BUILDERS[self.framework]
        if backend := settings.get("backend"):
            load_keras(backend)
        loaded = {package: importlib.import_module(package) for package in packages}
        if jax := loaded.get("jax"):
            jax.devices()

    @property
    def spec(self) -> dict[str, Any]:
        """Entries of `recording.json`, see `AnyWorkload.spec`."""
        return {
            "network": self.name,
            "sequence_length": None if TOKENS in self._arguments(1) else self._tokens,
            "runs_in": self.framework,
            "mode": self.mode,
            "precision": self.precision,
            "compiled": False,
            "axis": self.axis.entry,
            "fixed": self.fixed,
            "torch_device": self.device,
        }

    def layer_of(self, path: str, operator: str | None = None) -> str:
        """The innermost described layer in a scope; frameworks put the model's name before it and a
        number after, and so does Keras's builder where a layer has several rows.

        TensorFlow names a product that it computes with its bias and ReLU after the ReLU: it
        belongs to the product's layer.
        """
        for piece in reversed(path.split("/")):
            once = _NUMBER.sub("", piece)
            for name in (piece, once, _NUMBER.sub("", once)):
                if name not in self._layers:
                    continue
                if operator is not None and _FUSED_PRODUCT.fullmatch(operator):
                    return self._products.get(name, name)
                return name
        return path

    def try_step(self, batch: int) -> None:
        """Run one step, see `OwnStep.try_step`; an error is one of the network in this
        framework.
        """
        self.load(batch)
        self._synchronize(self.submit())


def products_before(rows: Sequence[Row]) -> dict[str, str]:
    """The layer of the convolution or product that each layer of another kind takes its input from,
    through normalisations, sums and activations.

    Of a sum it is the later of the two: the other one's result has to wait for it.
    """
    named: list[str | None] = []
    for row in rows:
        if row.op in _PRODUCTS:
            named.append(row.layer)
        elif row.op in _FUSED_AFTER and max(row.inputs) >= 0:
            named.append(named[max(row.inputs)])
        else:
            named.append(None)
    products = {}
    for row, product in zip(rows, named, strict=True):
        if product is not None:
            products[row.layer] = product
    return products
