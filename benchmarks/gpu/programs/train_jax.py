"""Trains a small convolutional network of JAX, as a user's script does: no word of a profiler.

Arguments: --batch-size, --steps.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp

CHANNELS = (3, 64, 128, 256)
CLASSES = 100
LAYOUT = ("NHWC", "HWIO", "NHWC")  # of images, weights and results
Parameters = dict[str, jax.Array]


def parameters(key: jax.Array) -> Parameters:
    sizes = dict(enumerate(pairwise(CHANNELS), 1))
    keys = jax.random.split(key, len(sizes) + 1)
    made = {
        f"conv{n}": jax.random.normal(keys[n - 1], (3, 3, *size)) * 0.05
        for n, size in sizes.items()
    }
    return {**made, "head": jax.random.normal(keys[-1], (CHANNELS[-1], CLASSES)) * 0.05}


def loss_of(weights: Parameters, images: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = images
    for n in range(1, len(CHANNELS)):
        with jax.named_scope(f"conv{n}"):
            hidden = jax.lax.conv_general_dilated(
                hidden, weights[f"conv{n}"], (2, 2), "SAME", dimension_numbers=LAYOUT
            )
            hidden = jax.nn.relu(hidden)
    with jax.named_scope("head"):
        logits = hidden.mean((1, 2)) @ weights["head"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -chosen.mean()


@partial(jax.jit, donate_argnums=0)
def update(
    weights: Parameters, images: jax.Array, labels: jax.Array
) -> tuple[Parameters, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda one, slope: one - 0.01 * slope, weights, gradients), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    key = jax.random.key(0)
    weights = parameters(key)
    images = jax.random.normal(key, (args.batch_size, 128, 128, 3))
    labels = jax.random.randint(key, (args.batch_size,), 0, CLASSES)
    for step in range(1, args.steps + 1):
        weights, loss = update(weights, images, labels)
        if step % 20 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
