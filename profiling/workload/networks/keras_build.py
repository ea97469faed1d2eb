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
from collections.abc import Callable
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
    operators = _Operators(keras)
    layers: dict[str, Any] = {}  # by path, those whose weights others share
    for number, row in enumerate(description.rows):
        inputs = [values[at] for at in row.inputs]
        if "weight_of" in row.settings:
            inputs.append(layers[row.settings["weight_of"]])
        make = getattr(operators, row.op)
        values[number] = make(replace(row, layer=names[number]), *inputs)
        if row.op == "embedding":
            layers[f"{row.layer}.weight"] = values[number]._keras_history.operation
    outputs = [values[at] for at in description.outputs]
    if description.vocabulary is None:
        (outputs,) = outputs
    return keras.Model(values[-1], outputs, name="network")


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
    policy = "float32" if precision == "fp32" else "mixed_bfloat16"
    keras.mixed_precision.set_global_policy(policy)
    model = build_model(keras, description)
    samples, targets = _data(keras, description, model, batch)
    losses = losses_of(keras, description)
    if mode == "forward+backward":
        gradients = _gradients_of(backend, model, losses)
        return lambda: gradients(samples, targets)
    optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
    if len(losses) == 1:
        (losses,) = losses
        (targets,) = targets
    model.compile(optimizer=optimizer, loss=losses)
    if mode == "forward":
        return lambda: model.predict_on_batch(samples)
    return lambda: model.train_on_batch(samples, targets)


def losses_of(keras: Any, description: Description, dtype: str | None = None) -> list[Any]:
    """The loss of each output: cross-entropy, or the mean square where nothing is predicted."""
    if description.vocabulary is not None and not description.predicts_words:
        return [keras.losses.MeanSquaredError(dtype=dtype) for _ in description.outputs]
    losses = []
    for number, _ in enumerate(description.outputs):
        is_of_words = description.vocabulary is not None and number == 0
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=IGNORED if is_of_words else None, dtype=dtype
        )
        losses.append(loss)
    return losses


def _data(keras: Any, description: Description, model: Any, batch: int) -> tuple[Any, list[Any]]:
    """Random samples, and targets for each output."""
    if description.vocabulary is None:
        channels, *pixels = description.input_shape
        images = keras.random.normal((batch, *pixels, channels))
        classes = keras.random.randint((batch,), 0, description.classes)
        return images, [classes]
    convert = keras.ops.convert_to_tensor
    tokens, *targets = map(convert, text_of(description, batch))
    if description.predicts_words:
        return tokens, targets
    zeros = [keras.ops.zeros((batch, *output.shape[1:])) for output in model.outputs]
    return tokens, zeros


def _gradients_of(backend: str, model: Any, losses: list[Any]) -> Callable[..., Any]:
    """A compiled function of samples and the targets of each output that gives the loss and the
    gradients of the variables.
    """

    def loss(targets: Any, outputs: Any) -> Any:
        outputs = outputs if isinstance(outputs, list) else [outputs]
        each = []
        for loss_of, target, output in zip(losses, targets, outputs, strict=True):
            each.append(loss_of(target, output))
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


class _Operators:
    """Makes the layer of a row, by a method of its operator's name in `description.OPERATORS`."""

    def __init__(self, keras: Any) -> None:
        self._layers = keras.layers
        self._ops = keras.ops

    def convolution(self, row: Row, x: Any) -> Any:
        settings = row.settings
        size = settings["size"]
        padding = settings["padding"]
        is_odd = all(extent % 2 for extent in size)
        halves = [extent // 2 for extent in size]
        same = is_odd and padding == halves and settings["stride"] == [1, 1]
        if not same and any(padding):
            x = self._layers.ZeroPadding2D(tuple(padding), name=f"{row.layer}.padding")(x)
        layer = self._layers.Conv2D(
            settings["width"],
            tuple(size),
            tuple(settings["stride"]),
            padding="same" if same else "valid",
            use_bias=settings["bias"],
            name=row.layer,
        )
        return layer(x)

    def linear(self, row: Row, x: Any, shared: Any = None) -> Any:
        """A product, maybe with the transposed weights of an embedding."""
        width, has_bias = row.settings["width"], row.settings["bias"]
        if shared is None:
            layer = self._layers.Dense(width, use_bias=has_bias, name=row.layer)
            return layer(x)
        ops = self._ops

        class Shared(self._layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
            def build(self, _: Any) -> None:
                if has_bias:
                    self.bias = self.add_weight((width,), initializer="zeros", name="bias")

            def call(self, x: Any) -> Any:
                made = ops.matmul(x, ops.transpose(shared.embeddings))
                if has_bias:
                    return made + self.bias
                return made

        return Shared(name=row.layer)(x)

    def batch_norm(self, row: Row, x: Any) -> Any:
        momentum = 1 - row.settings["momentum"]
        epsilon = row.settings["epsilon"]
        layer = self._layers.BatchNormalization(momentum=momentum, epsilon=epsilon, name=row.layer)
        return layer(x)

    def relu(self, row: Row, x: Any) -> Any:
        return self._layers.ReLU(name=row.layer)(x)

    def _pool(self, row: Row, kind: Any, x: Any) -> Any:
        """A pool over padding with zeros: the largest of a window of outputs of ReLU is the same
        with -inf.
        """
        around = padding_around(row, tuple(x.shape[1:3]))
        if any(map(any, around)):
            x = self._layers.ZeroPadding2D(tuple(around), name=f"{row.layer}.padding")(x)
        size = tuple(row.settings["size"])
        stride = tuple(row.settings["stride"])
        return kind(size, stride, name=row.layer)(x)

    def max_pool(self, row: Row, x: Any) -> Any:
        return self._pool(row, self._layers.MaxPooling2D, x)

    def average_pool(self, row: Row, x: Any) -> Any:
        return self._pool(row, self._layers.AveragePooling2D, x)

    def _compute(self, row: Row, function: Callable[..., Any], *inputs: Any) -> Any:
        """A layer without parameters that computes a function."""

        class Computed(self._layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
            def call(self, *inputs: Any) -> Any:
                return function(*inputs)

        return Computed(name=row.layer)(*inputs)

    def local_norm(self, row: Row, x: Any) -> Any:
        settings = row.settings
        ops = self._ops
        size = settings["size"]
        before = size // 2

        def normalise(x: Any) -> Any:
            width = x.shape[-1]
            around = [[0, 0]] * 3 + [[before, size - 1 - before]]
            squares = ops.pad(ops.square(x), around)
            together = sum(squares[..., at : at + width] for at in range(size))
            level = settings["k"] + settings["alpha"] / size * together
            return x * ops.power(level, -settings["beta"])

        return self._compute(row, normalise, x)

    def dropout(self, row: Row, x: Any) -> Any:
        return self._layers.Dropout(row.settings["rate"], name=row.layer)(x)

    def mean(self, row: Row, x: Any) -> Any:
        return self._layers.GlobalAveragePooling2D(keepdims=True, name=row.layer)(x)

    def flatten(self, row: Row, x: Any) -> Any:
        return self._layers.Flatten(name=row.layer)(x)

    def concatenate(self, row: Row, *parts: Any) -> Any:
        return self._layers.Concatenate(name=row.layer)(list(parts))

    def add(self, row: Row, *parts: Any) -> Any:
        return self._layers.Add(name=row.layer)(list(parts))

    def positions(self, row: Row, tokens: Any) -> Any:
        """One row, which all samples share."""
        return self._compute(row, lambda x: self._ops.arange(x.shape[1])[None], tokens)

    def zeros(self, row: Row, tokens: Any) -> Any:
        return self._compute(row, self._ops.zeros_like, tokens)

    def embedding(self, row: Row, at: Any) -> Any:
        count, width = row.settings["count"], row.settings["width"]
        return self._layers.Embedding(count, width, name=row.layer)(at)

    def layer_norm(self, row: Row, x: Any) -> Any:
        epsilon = row.settings["epsilon"]
        return self._layers.LayerNormalization(epsilon=epsilon, name=row.layer)(x)

    def gelu(self, row: Row, x: Any) -> Any:
        return self._compute(row, lambda x: self._ops.gelu(x, approximate=False), x)

    def tanh(self, row: Row, x: Any) -> Any:
        return self._compute(row, self._ops.tanh, x)

    def split_last(self, row: Row, x: Any) -> Any:
        parts = row.settings["parts"]
        *kept, last = x.shape[1:]
        return self._reshape(row, x, (-1, *kept, parts, last // parts))

    def swap(self, row: Row, x: Any) -> Any:
        axes = row.settings["axes"]
        return self._compute(row, lambda x: self._ops.swapaxes(x, *axes), x)

    def join_last(self, row: Row, x: Any) -> Any:
        *kept, first, last = x.shape[1:]
        return self._reshape(row, x, (-1, *kept, first * last))

    def _reshape(self, row: Row, x: Any, shape: tuple[int, ...]) -> Any:
        return self._compute(row, lambda x: self._ops.reshape(x, shape), x)

    def attention(self, row: Row, *inputs: Any) -> Any:
        """By its parts: `keras.ops.dot_product_attention` has no dropout."""
        ops, layers = self._ops, self._layers

        class Attention(layers.Layer):  # type: ignore[misc, name-defined, unused-ignore]
            def __init__(self) -> None:
                super().__init__(name=row.layer)
                self.dropout = layers.Dropout(row.settings["rate"])

            def call(self, query: Any, key: Any, value: Any, training: Any = None) -> Any:
                product = ops.matmul(query, ops.swapaxes(key, -1, -2))
                scores = product / math.sqrt(query.shape[-1])
                dtype = self.compute_dtype
                wide = "float32" if dtype == "bfloat16" else dtype
                shares = ops.softmax(ops.cast(scores, wide))
                kept = self.dropout(ops.cast(shares, dtype), training=training)
                return ops.matmul(kept, value)

        return Attention()(*inputs)

    def take_first(self, row: Row, x: Any) -> Any:
        return self._compute(row, lambda x: x[:, 0], x)
