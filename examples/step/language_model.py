"""A small language model in bf16: a script that trains it, and two steps for Curvescope.

    curvescope diagnose --step language_model.py:train --batch 1..32
    curvescope diagnose --step language_model.py:decode --batch 1..64
    curvescope diagnose --batch 8..64 -- python language_model.py --batch-size {batch}

`--compile`, or the variable COMPILED for the steps, compiles the model. On a CPU it is smaller.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Width, layers, words and tokens. The words are those of GPT-2's table, an odd number.
WIDTH, LAYERS, WORDS, TOKENS = (512, 6, 50257, 256) if DEVICE == "cuda" else (128, 2, 1009, 32)
HEAD_WIDTH = 64


class Attention(nn.Module):
    """Causal attention; in decoding, of one token to those that the cache has."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, cache=None, place=None):
        """What the tokens of `x` take from those before them."""
        heads = x.shape[0], x.shape[1], WIDTH // HEAD_WIDTH, HEAD_WIDTH
        query, key, value = (
            part.view(heads).transpose(1, 2) for part in self.inputs(x).split(WIDTH, -1)
        )
        if cache is None:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            for kept, new in zip(cache, (key, value), strict=True):
                kept.index_copy_(2, place, new)
            seen = torch.arange(TOKENS, device=x.device) <= place
            mixed = scaled_dot_product_attention(query, *cache, attn_mask=seen[None])
        return self.output(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """Attention and two products, each after a norm and beside what it adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.products = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x, cache=None, place=None):
        """The input and what both parts add to it."""
        x = x + self.attention(self.norms[0](x), cache, place)
        return x + self.products(self.norms[1](x))


class Model(nn.Module):
    """A decoder with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, caches=(None,) * LAYERS, place=None):
        """A logit for each word after each token."""
        places = torch.arange(tokens.shape[1], device=tokens.device) if place is None else place
        hidden = self.words(tokens) + self.places(places)
        for block, cache in zip(self.blocks, caches, strict=True):
            hidden = block(hidden, cache, place)
        return self.head(hidden)


def build_model() -> nn.Module:
    """The model on the device, in bf16."""
    return Model().to(DEVICE, torch.bfloat16)


def train_step(model, optimizer, tokens):
    """One step; the last token is only a target."""
    optimizer.zero_grad(set_to_none=True)
    logits = model(tokens[:, :-1])
    loss = cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss


def train(batch):
    """A step of training on random tokens."""
    model = build_model()
    run = torch.compile(model, dynamic=False) if "COMPILED" in os.environ else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=DEVICE == "cuda")
    tokens = torch.randint(WORDS, (batch, TOKENS), device=DEVICE)

    def step():
        return train_step(run, optimizer, tokens)

    step.module = model
    return step


def decode(batch):
    """The next token of each sequence, with half of the cache in use."""
    model = build_model().eval()
    run = torch.compile(model, dynamic=False) if "COMPILED" in os.environ else model
    shape = batch, WIDTH // HEAD_WIDTH, TOKENS, HEAD_WIDTH
    caches = [
        [torch.zeros(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
        for _ in range(LAYERS)
    ]
    tokens = torch.zeros(batch, 1, dtype=torch.long, device=DEVICE)
    place = torch.full((1,), TOKENS // 2, device=DEVICE)

    @torch.no_grad()
    def step():
        tokens.copy_(run(tokens, caches, place)[:, -1:].argmax(-1))
        return tokens

    step.module = model
    return step


def main() -> None:
    """Train on random tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    model = build_model()
    run = torch.compile(model, dynamic=False) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    samples = torch.randint(WORDS, (4096, TOKENS))
    loader = DataLoader(TensorDataset(samples), args.batch_size, shuffle=True, drop_last=True)
    done = 0
    while done < args.steps:
        for (tokens,) in loader:
            loss = train_step(run, optimizer, tokens.to(DEVICE))
            done += 1
            if done % 20 == 0:
                print(f"step {done}: loss {loss.item():.3f}", flush=True)
            if done == args.steps:
                break


if __name__ == "__main__":
    main()
