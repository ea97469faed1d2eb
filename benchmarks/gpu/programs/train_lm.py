"""Trains a small language model of PyTorch, as a user's script does: no word of a profiler.

Arguments: --batch-size, --steps. On a CPU the model is smaller.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

VOCABULARY, TOKENS = 8192, 256


class Model(nn.Module):
    """A decoder with learned positions."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(TOKENS, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        hidden = self.words(tokens) + self.positions(places)
        return self.head(self.blocks(hidden, mask, is_causal=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    model = Model(*(512, 8) if gpu else (128, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    samples = torch.randint(VOCABULARY, (4096, TOKENS + 1))
    loader = DataLoader(TensorDataset(samples), args.batch_size, shuffle=True, drop_last=True)
    step = 0
    while step < args.steps:
        for (batch,) in loader:
            tokens = batch.to(device)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.3f}", flush=True)
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
