"""Builds described networks in Keras 3, on TensorFlow or JAX: a functional model with a layer for
each row.

Images are channels last, as TensorFlow needs them on a CPU. A training step is `train_on_batch` of
a compiled model.
"""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from ....base.errors import CurvescopeError
from .bert import IGNORED
from .channels_last import LEARNING_RATE, MOMENTUM, SEED, padding_around
from .description import Description, Row
from .text_sample import text_of


def load_keras(backend: str) -> Any:
    """Keras on a backend; refused if this process has it on another."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    if keras.backend.backend() != backend:
        raise CurvescopeError(
            f"Keras runs on {keras.backend.backend()} in this process, and a process has one "
            "backend."
        )
    return keras


def build_model(keras: Any, description: Description) -> Any:
    """The model, with layers of the description's names; it returns logits, or all outputs of a
    network of text.
    """
    if description.vocabulary is not None:
        values = {-1: keras.Input(description.input_shape, dtype="int32")}
    else:
        channels, *pixels = description.input_shape
        values = {-1: keras.Input((*pixels, channels))}
    names = _names(description)
    layers: dict[str, Any] = {}  # by path, those whose weights others share
    for number, row in enumerate(description.rows):
        inputs = [values[at] for at in row.inputs]
        if "weight_of" in row.settings:
            inputs.append(layers[row.settings["weight_of"]])
        values[number] = _OPERATORS[row.op](keras, replace(row, layer=names[number]), *inputs)
        if row.op == "embedding":
            layers[f"{row.layer}.weight"] = values[number]._keras_history.operation
    outputs = [values[at] for at in description.outputs]
    of_text = description.vocabulary is not None
    return keras.Model(values[-1], outputs if of_text else outputs[0], name="network")


def _names(description: Description) -> list[str]:
    """Names of the layers, each its own: those with parameters have their paths, others maybe a
    number behind.
    """
    taken = {row.layer for row in description.rows if row.parameters}
    names = []
    for row in description.rows:
        name = row.layer or row.op
        number = 0
        while name in taken and not row.parameters:
            number += 1
            name = f"{row.layer or row.op}_{number}"
        taken.add(name)
        names.append(name)
    return names


def set_weights(model: Any, description: Description, weights: Mapping[str, Any]) -> None:
    """Give a model the parameters that `channels_last.weights_of` made."""
    for row in description.rows:
        if row.parameters:
            variables = model.get_layer(row.layer).trainable_variables
            for name, variable in zip(row.parameters, variables, strict=True):
                variable.assign(weights[f"{row.layer}.{name}"])


def make_step(
    description: Description, batch: int, mode: str, precision: str = "fp32", *, backend: str
) -> Callable[[], object]:
    """A function that runs one step.

    Raises:
        CurvescopeError: the precision is another than fp32 and bf16, or the process has another
            backend.
    """
    if precision not in ("fp32", "bf16"):
        raise CurvescopeError(f"--precision {precision}: networks in Keras run in fp32 and bf16.")
    keras = load_keras(backend)
    keras.utils.set_random_seed(SEED + batch)
    keras.mixed_precision.set_global_policy("float32" if precision == "fp32" else "mixed_bfloat16")
    model = build_model(keras, description)
    samples, targets = _data(keras, description, model, batch)
    losses = losses_of(keras, description)
    if mode == "forward+backward":
        gradients = _gradients_of(backend, model, losses)
        return lambda: gradients(samples, targets)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
    single = len(losses) == 1
    model.compile(optimizer=optimizer, loss=losses[0] if single else losses)
    if mode == "forward":
        return lambda: model.predict_on_batch(samples)
    return lambda: model.train_on_batch(samples, targets[0] if single else targets)


def losses_of(keras: Any, description: Description, dtype: str | None = None) -> list[Any]:
    """The loss of each output: cross-entropy, or the mean square where nothing is predicted."""
    if description.vocabulary is not None and not description.predicts_words:
        return [keras.losses.MeanSquaredError(dtype=dtype) for _ in description.outputs]
    ignored = None if description.vocabulary is None else IGNORED
    kinds = [ignored] + [None] * (len(description.outputs) - 1)  # the first is that of the words
    return [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=kind, dtype=dtype)
        for kind in kinds
    ]


def _data(keras: Any, description: Description, model: Any, batch: int) -> tuple[Any, list[Any]]:
    """Random samples, and targets for each output."""
    if description.vocabulary is None:
        channels, *pixels = description.input_shape
        images = keras.random.normal((batch, *pixels, channels))
        return images, [keras.random.randint((batch,), 0, description.classes)]
    convert = keras.ops.convert_to_tensor
    tokens, *targets = map(convert, text_of(description, batch))
    if description.predicts_words:
        return tokens, targets
    return tokens, [keras.ops.zeros((batch, *output.shape[1:])) for output in model.outputs]


def _gradients_of(backend: str, model: Any, losses: list[Any]) -> Callable[..., Any]:
    """A compiled function of samples and the targets of each output that gives the loss and the
    gradients of the variables.
    """

    def loss(targets: Any, outputs: Any) -> Any:
        outputs = outputs if isinstance(outputs, list) else [outputs]
        each = [of(*both) for of, *both in zip(losses, targets, outputs, strict=True)]
        return reduce(operator.add, each)

    if backend == "tensorflow":
        import tensorflow as tf

        def both(samples: Any, targets: Any) -> Any:
            with tf.GradientTape() as tape:
                value = loss(targets, model(samples, training=True))
            return value, tape.gradient(value, model.trainable_variables)

        return tf.function(both)  # type: ignore[no-any-return]
    import jax

    def value_of(trained: Any, others: Any, samples: Any, targets: Any) -> Any:
        logits, others = model.stateless_call(trained, others, samples, training=True)
        return loss(targets, logits), others

    compiled = jax.jit(jax.value_and_grad(value_of, has_aux=True))

    def run(samples: Any, targets: Any) -> Any:
        trained = [variable.value for variable in model.trainable_variables]
        others = [variable.value for variable in model.non_trainable_variables]
        (value, _), slopes = compiled(trained, others, samples, targets)
        return value, slopes

    return run


def _convolution(keras: Any, row: Row, x: Any) -> Any:
    settings = row.settings
    size = settings["size"]
    padding = settings["padding"]
    is_odd = all(extent % 2 for extent in size)
    halves = [extent // 2 for extent in size]
    same = is_odd and padding == halves and settings["stride"] == [1, 1]
    if not same and any(padding):
        x = keras.layers.ZeroPadding2D(tuple(padding), name=f"{row.layer}.padding")(x)
    made = keras.layers.Conv2D(
        settings["width"],
        tuple(size),
        tuple(settings["stride"]),
        padding="same" if same else "valid",
        use_bias=settings["bias"],
        name=row.layer,
    )
    return made(x)


def _linear(keras: Any, row: Row, x: Any, shared: Any = None) -> Any:
    """A product, maybe with the transposed weights of an embedding."""
    of = row.settings
    ops = keras.ops
    if shared is None:
        return keras.layers.Dense(of["width"], use_bias=of["bias"], name=row.layer)(x)

    class Shared(keras.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def build(self, _: Any) -> None:
            if of["bias"]:
                self.bias = self.add_weight((of["width"],), initializer="zeros", name="bias")

        def call(self, x: Any) -> Any:
            made = ops.matmul(x, ops.transpose(shared.embeddings))
            return made + self.bias if of["bias"] else made

    return Shared(name=row.layer)(x)


def _batch_norm(keras: Any, row: Row, x: Any) -> Any:
    of = row.settings
    made = keras.layers.BatchNormalization(
        momentum=1 - of["momentum"], epsilon=of["epsilon"], name=row.layer
    )
    return made(x)


def _relu(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.ReLU(name=row.layer)(x)


def _pool(keras: Any, row: Row, kind: Any, x: Any) -> Any:
    """A pool over padding with zeros: the largest of a window of outputs of ReLU is the same with
    -inf.
    """
    around = padding_around(row, tuple(x.shape[1:3]))
    if any(map(any, around)):
        x = keras.layers.ZeroPadding2D(tuple(around), name=f"{row.layer}.padding")(x)
    size = tuple(row.settings["size"])
    stride = tuple(row.settings["stride"])
    return kind(size, stride, name=row.layer)(x)


def _max_pool(keras: Any, row: Row, x: Any) -> Any:
    return _pool(keras, row, keras.layers.MaxPooling2D, x)


def _average_pool(keras: Any, row: Row, x: Any) -> Any:
    return _pool(keras, row, keras.layers.AveragePooling2D, x)


def _compute(keras: Any, row: Row, function: Callable[..., Any], *inputs: Any) -> Any:
    """A layer without parameters that computes a function."""

    class Computed(keras.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def call(self, *inputs: Any) -> Any:
            return function(*inputs)

    return Computed(name=row.layer)(*inputs)


def _local_norm(keras: Any, row: Row, x: Any) -> Any:
    settings = row.settings
    ops = keras.ops
    size = settings["size"]
    before = size // 2

    def normalise(x: Any) -> Any:
        width = x.shape[-1]
        around = [[0, 0]] * 3 + [[before, size - 1 - before]]
        squares = ops.pad(ops.square(x), around)
        together = sum(squares[..., at : at + width] for at in range(size))
        level = settings["k"] + settings["alpha"] / size * together
        return x * ops.power(level, -settings["beta"])

    return _compute(keras, row, normalise, x)


def _dropout(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.Dropout(row.settings["rate"], name=row.layer)(x)


def _mean(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.GlobalAveragePooling2D(keepdims=True, name=row.layer)(x)


def _flatten(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.Flatten(name=row.layer)(x)


def _concatenate(keras: Any, row: Row, *parts: Any) -> Any:
    return keras.layers.Concatenate(name=row.layer)(list(parts))


def _add(keras: Any, row: Row, *parts: Any) -> Any:
    return keras.layers.Add(name=row.layer)(list(parts))


def _positions(keras: Any, row: Row, tokens: Any) -> Any:
    """One row, which all samples share."""
    return _compute(keras, row, lambda x: keras.ops.arange(x.shape[1])[None], tokens)


def _zeros(keras: Any, row: Row, tokens: Any) -> Any:
    return _compute(keras, row, keras.ops.zeros_like, tokens)


def _embedding(keras: Any, row: Row, at: Any) -> Any:
    of = row.settings
    return keras.layers.Embedding(of["count"], of["width"], name=row.layer)(at)


def _layer_norm(keras: Any, row: Row, x: Any) -> Any:
    return keras.layers.LayerNormalization(epsilon=row.settings["epsilon"], name=row.layer)(x)


def _gelu(keras: Any, row: Row, x: Any) -> Any:
    return _compute(keras, row, lambda x: keras.ops.gelu(x, approximate=False), x)


def _tanh(keras: Any, row: Row, x: Any) -> Any:
    return _compute(keras, row, keras.ops.tanh, x)


def _split_last(keras: Any, row: Row, x: Any) -> Any:
    parts = row.settings["parts"]
    *kept, last = x.shape[1:]
    return _reshape(keras, row, x, (-1, *kept, parts, last // parts))


def _swap(keras: Any, row: Row, x: Any) -> Any:
    return _compute(keras, row, lambda x: keras.ops.swapaxes(x, *row.settings["axes"]), x)


def _join_last(keras: Any, row: Row, x: Any) -> Any:
    *kept, first, last = x.shape[1:]
    return _reshape(keras, row, x, (-1, *kept, first * last))


def _reshape(keras: Any, row: Row, x: Any, shape: tuple[int, ...]) -> Any:
    return _compute(keras, row, lambda x: keras.ops.reshape(x, shape), x)


def _attention(keras: Any, row: Row, *inputs: Any) -> Any:
    """By its parts: `keras.ops.dot_product_attention` has no dropout."""
    ops = keras.ops

    class Attention(keras.layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
        def __init__(self) -> None:
            super().__init__(name=row.layer)
            self.dropout = keras.layers.Dropout(row.settings["rate"])

        def call(self, query: Any, key: Any, value: Any, training: Any = None) -> Any:
            product = ops.matmul(query, ops.swapaxes(key, -1, -2))
            scores = product / math.sqrt(query.shape[-1])
            dtype = self.compute_dtype
            wide = "float32" if dtype == "bfloat16" else dtype
            shares = ops.softmax(ops.cast(scores, wide))
            kept = self.dropout(ops.cast(shares, dtype), training=training)
            return ops.matmul(kept, value)

    return Attention()(*inputs)


def _take_first(keras: Any, row: Row, x: Any) -> Any:
    return _compute(keras, row, lambda x: x[:, 0], x)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "convolution": _convolution,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "mean": _mean,
    "local_norm": _local_norm,
    "dropout": _dropout,
    "flatten": _flatten,
    "concatenate": _concatenate,
    "add": _add,
    "positions": _positions,
    "zeros": _zeros,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "gelu": _gelu,
    "tanh": _tanh,
    "split_last": _split_last,
    "swap": _swap,
    "join_last": _join_last,
    "attention": _attention,
    "take_first": _take_first,
}
