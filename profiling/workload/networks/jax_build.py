"""Builds described networks in JAX: steps that are compiled by `jax.jit`, with scopes that name the
layers.

Images are stored as JAX prefers them, channels last, and so are weights. A step does as in
`network_step`: the loss of random images or text, and SGD with momentum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ....base.errors import CurvescopeError
from .bert import IGNORED
from .channels_last import LEARNING_RATE, MOMENTUM, SEED, convert_shape, padding_around
from .description import NORMALISATIONS, Description, Row
from .text_sample import text_of

Arrays = dict[str, Any]  # by layer and name, as `Description.parameters`
PRECISIONS = ("fp32", "bf16", "tf32")
_IMAGES = ("NHWC", "HWIO", "NHWC")  # layouts of inputs, weights and outputs of convolutions


def initial_parameters(description: Description) -> Arrays:
    """Random parameters, as torch begins with: uniform within the inverse root of the inputs of an
    output, normal for embeddings.
    """
    import jax

    keys = iter(jax.random.split(jax.random.key(SEED), len(description.parameters)))
    made: Arrays = {}
    for row in description.rows:
        for name, shape in row.parameters.items():
            path = f"{row.layer}.{name}"
            key = next(keys)
            if row.op in NORMALISATIONS:
                made[path] = jax.numpy.full(shape, 1.0 if name == "weight" else 0.0)
            elif row.op == "embedding":
                made[path] = jax.random.normal(key, shape)
            else:
                window = math.prod(row.settings.get("size", ()))
                inputs = row.settings["channels"] * window
                bound = 1 / math.sqrt(inputs)
                shape = convert_shape(row, shape)
                made[path] = jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    return made


def initial_state(description: Description) -> Arrays:
    """What training steps carry beside parameters: running means and variances, and the key of the
    dropouts.
    """
    import jax

    state: Arrays = {"key": jax.random.key(SEED)}
    for row in description.rows:
        if row.op == "batch_norm":
            width = row.settings["width"]
            state[f"{row.layer}.running_mean"] = jax.numpy.zeros(width)
            state[f"{row.layer}.running_var"] = jax.numpy.ones(width)
    return state


def forward(
    description: Description, parameters: Arrays, state: Arrays, samples: Any, *, trains: bool
) -> tuple[Any, Arrays]:
    """Outputs, and the state after it: of images, shape (batch, height, width, channels), the
    logits, shape (batch, classes); of tokens, shape (batch, tokens), a tuple.
    """
    import jax

    state = dict(state)
    operators = _Operators(parameters, state, trains)
    values = {-1: samples}
    for number, row in enumerate(description.rows):
        inputs = [values[at] for at in row.inputs]
        run = getattr(operators, row.op)
        scope = jax.named_scope(row.layer.replace("/", ".")) if row.layer else nullcontext()
        with scope:
            values[number] = run(row, *inputs)
    outputs = tuple(values[at] for at in description.outputs)
    if description.vocabulary is None:
        return outputs[0], state
    return outputs, state


def loss_of(outputs: Any, *targets: Any) -> Any:
    """Mean cross-entropy, of several outputs their sum; without targets the sum of their mean
    squares.
    """
    import jax

    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    with jax.named_scope("loss"):
        wide = [_widen(output) for output in outputs]
        if not targets:
            return sum(jax.numpy.square(output).mean() for output in wide)
        return sum(map(_cross_entropy, wide, targets))


def _cross_entropy(logits: Any, targets: Any) -> Any:
    """Mean over the targets that are not ignored."""
    import jax

    counted = targets != IGNORED
    at = jax.numpy.where(counted, targets, 0)[..., None]
    logarithms = jax.nn.log_softmax(logits)
    chances = jax.numpy.take_along_axis(logarithms, at, -1)
    chances = jax.numpy.where(counted, chances[..., 0], 0)
    return -chances.sum() / counted.sum()


def _widen(x: Any) -> Any:
    """In fp32, or more precise."""
    import jax

    return x.astype(jax.numpy.promote_types(x.dtype, "float32"))


def make_step(
    description: Description, batch: int, mode: str, precision: str = "fp32"
) -> Callable[[], object]:
    """A function that runs one step and waits for nothing: parameters and state are donated, so
    they are written over.

    Raises:
        CurvescopeError: JAX does not run this precision here.
    """
    import jax

    if precision not in PRECISIONS:
        able = ", ".join(PRECISIONS)
        raise CurvescopeError(f"--precision {precision}: networks in JAX run in {able}.")
    samples, *targets = _data(description, batch)
    parameters = initial_parameters(description)
    state = initial_state(description)
    if precision == "bf16" and not description.vocabulary:
        samples = samples.astype("bfloat16")
    data = samples, *targets

    def loss(parameters: Arrays, state: Arrays, samples: Any, *targets: Any) -> Any:
        if precision == "bf16":
            parameters = {name: array.astype("bfloat16") for name, array in parameters.items()}
        outputs, state = forward(description, parameters, state, samples, trains=True)
        return loss_of(outputs, *targets), state

    def infer(parameters: Arrays, state: Arrays, samples: Any) -> Any:
        outputs, _ = forward(description, parameters, state, samples, trains=False)
        return outputs

    gradients = jax.value_and_grad(loss, has_aux=True)

    def train(parameters: Arrays, momenta: Arrays, state: Arrays, *data: Any) -> Any:
        (value, state), slopes = gradients(parameters, state, *data)
        with jax.named_scope("optimizer"):
            momenta = {name: MOMENTUM * momenta[name] + slopes[name] for name in momenta}
            parameters = {
                name: parameters[name] - LEARNING_RATE * momenta[name] for name in momenta
            }
        return value, parameters, momenta, state

    if mode == "forward":
        run = _compile_step(infer, precision, parameters, state, samples)
        return lambda: run(parameters, state, samples)
    if mode == "forward+backward":
        run = _compile_step(gradients, precision, parameters, state, *data)
        return lambda: run(parameters, state, *data)
    momenta = jax.tree.map(jax.numpy.zeros_like, parameters)
    kept = [parameters, momenta, state]
    update = _compile_step(train, precision, *kept, *data, donated=(0, 1, 2))

    def step() -> object:
        value, *kept[:] = update(*kept, *data)
        return value

    return step


def _data(description: Description, batch: int) -> tuple[Any, ...]:
    """Random samples and their targets, where there are any."""
    import jax

    if description.vocabulary is not None:
        tokens, *targets = map(jax.numpy.asarray, text_of(description, batch))
        if description.predicts_words:
            return (tokens, *targets)
        return (tokens,)
    assert description.classes is not None
    key = jax.random.key(SEED + batch)
    channels, *pixels = description.input_shape
    images = jax.random.normal(key, (batch, *pixels, channels))
    targets = jax.random.randint(key, (batch,), 0, description.classes)
    return images, targets


def _compile_step(
    function: Any, precision: str, *arguments: Any, donated: tuple[int, ...] = ()
) -> Any:
    """A function compiled for arguments, so that no step compiles; `donated` ones are written over.

    A precision of products that the process sets, e.g. by JAX_DEFAULT_MATMUL_PRECISION, goes
    before.
    """
    import jax

    exact = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}[precision]
    config: Any = jax.config
    with jax.default_matmul_precision(config.jax_default_matmul_precision or exact):
        traced = jax.jit(function, donate_argnums=donated).lower(*arguments)
        return traced.compile()


class _Operators:
    """The operators of one forward pass, each a method of its name in `description.OPERATORS`."""

    def __init__(self, parameters: Arrays, state: Arrays, trains: bool) -> None:
        import jax

        self._parameters = parameters
        self._state = state  # which training writes
        self._trains = trains
        self._jax: Any = jax
        self._numpy: Any = jax.numpy

    def convolution(self, row: Row, x: Any) -> Any:
        settings = row.settings
        weight = self._parameters[f"{row.layer}.weight"]
        padding = [(extent, extent) for extent in settings["padding"]]
        made = self._jax.lax.conv_general_dilated(
            x, weight, settings["stride"], padding, dimension_numbers=_IMAGES
        )
        return self._with_bias(row, made)

    def linear(self, row: Row, x: Any) -> Any:
        shared = row.settings.get("weight_of")
        if shared:
            return self._with_bias(row, x @ self._parameters[shared].T)
        weight = self._parameters[f"{row.layer}.weight"]
        return self._with_bias(row, x @ weight)

    def _with_bias(self, row: Row, made: Any) -> Any:
        if row.settings["bias"]:
            return made + self._parameters[f"{row.layer}.bias"]
        return made

    def batch_norm(self, row: Row, x: Any) -> Any:
        mean_at = f"{row.layer}.running_mean"
        variance_at = f"{row.layer}.running_var"
        mean = self._state[mean_at]
        variance = self._state[variance_at]
        if self._trains:
            wide = _widen(x)
            axes = (0, 1, 2)
            count = x.size // x.shape[-1]
            mean = wide.mean(axes)
            variance = self._numpy.square(wide - mean).mean(axes)
            constant = self._jax.lax.stop_gradient
            unbiased = constant(variance) * (count / max(count - 1, 1))
            momentum = row.settings["momentum"]
            kept = 1 - momentum
            self._state[mean_at] = kept * self._state[mean_at] + momentum * constant(mean)
            self._state[variance_at] = kept * self._state[variance_at] + momentum * unbiased
        inverse = self._jax.lax.rsqrt(variance + row.settings["epsilon"])
        scale = self._parameters[f"{row.layer}.weight"] * inverse
        shift = self._parameters[f"{row.layer}.bias"] - mean * scale
        return x * scale.astype(x.dtype) + shift.astype(x.dtype)

    def relu(self, _: Row, x: Any) -> Any:
        return self._jax.nn.relu(x)

    def _pool(self, row: Row, x: Any, initial: float, combine: Any) -> Any:
        size = (1, *row.settings["size"], 1)
        stride = (1, *row.settings["stride"], 1)
        spread = [(0, 0), *padding_around(row, x.shape[1:3]), (0, 0)]
        begin = x.dtype.type(initial)
        return self._jax.lax.reduce_window(x, begin, combine, size, stride, spread)

    def max_pool(self, row: Row, x: Any) -> Any:
        return self._pool(row, x, -math.inf, self._jax.lax.max)

    def average_pool(self, row: Row, x: Any) -> Any:
        sums = self._pool(row, x, 0.0, self._jax.lax.add)
        return sums / math.prod(row.settings["size"])

    def local_norm(self, row: Row, x: Any) -> Any:
        settings = row.settings
        size = settings["size"]
        before = size // 2
        around = [(0, 0)] * 3 + [(before, size - 1 - before)]
        zero = x.dtype.type(0)
        window = (1, 1, 1, size)
        lax = self._jax.lax
        squares = lax.reduce_window(x * x, zero, lax.add, window, (1, 1, 1, 1), around)
        level = settings["k"] + settings["alpha"] / size * squares
        return x * level ** -settings["beta"]

    def dropout(self, row: Row, x: Any) -> Any:
        if not self._trains:
            return x
        random = self._jax.random
        self._state["key"], key = random.split(self._state["key"])
        kept = 1 - row.settings["rate"]
        stays = random.bernoulli(key, kept, x.shape)
        return self._numpy.where(stays, x / kept, 0)

    def mean(self, _: Row, x: Any) -> Any:
        return x.mean((1, 2), keepdims=True)

    def flatten(self, _: Row, x: Any) -> Any:
        return x.reshape(len(x), -1)

    def concatenate(self, _: Row, *parts: Any) -> Any:
        return self._numpy.concatenate(parts, -1)

    def add(self, _: Row, first: Any, second: Any) -> Any:
        return first + second

    def positions(self, _: Row, tokens: Any) -> Any:
        return self._numpy.arange(tokens.shape[1])

    def zeros(self, _: Row, tokens: Any) -> Any:
        return self._numpy.zeros_like(tokens)

    def embedding(self, row: Row, at: Any) -> Any:
        return self._parameters[f"{row.layer}.weight"][at]

    def layer_norm(self, row: Row, x: Any) -> Any:
        wide = _widen(x)
        centred = wide - wide.mean(-1, keepdims=True)
        variance = self._numpy.square(centred).mean(-1, keepdims=True)
        normal = centred * self._jax.lax.rsqrt(variance + row.settings["epsilon"])
        weight = self._parameters[f"{row.layer}.weight"]
        bias = self._parameters[f"{row.layer}.bias"]
        scaled = normal * weight + bias
        return scaled.astype(x.dtype)

    def gelu(self, _: Row, x: Any) -> Any:
        return self._jax.nn.gelu(x, approximate=False)

    def tanh(self, _: Row, x: Any) -> Any:
        return self._numpy.tanh(x)

    def split_last(self, row: Row, x: Any) -> Any:
        return x.reshape(*x.shape[:-1], row.settings["parts"], -1)

    def swap(self, row: Row, x: Any) -> Any:
        return x.swapaxes(*row.settings["axes"])

    def join_last(self, _: Row, x: Any) -> Any:
        return x.reshape(*x.shape[:-2], -1)

    def attention(self, row: Row, query: Any, key: Any, value: Any) -> Any:
        """By its parts: `jax.nn.dot_product_attention` has no dropout."""
        kind = self._numpy.promote_types(query.dtype, "float32")
        turned = key.swapaxes(-1, -2)
        scores = self._numpy.matmul(query, turned, preferred_element_type=kind)
        scaled = scores / math.sqrt(query.shape[-1])
        shares = self._jax.nn.softmax(scaled).astype(value.dtype)
        if row.settings["rate"]:
            shares = self.dropout(row, shares)
        return shares @ value

    def take_first(self, _: Row, x: Any) -> Any:
        return x[:, 0]
