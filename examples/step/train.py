"""A training script with its own data loader, bf16 autocast, AdamW, a schedule and gradient
clipping.

Only `make_step` was added: `curvescope diagnose --step train:make_step --batch 8..64` measures the
step.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build_model() -> nn.Module:
    """A small network of two convolutions."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(4),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    ).to(DEVICE)  # fmt: skip


def load_data(batch_size: int) -> DataLoader:
    """Random images, in batches."""
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(10, (512,))
    return DataLoader(TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True)


def train_step(model, optimizer, schedule, images, labels):
    """One step of mixed precision with clipped gradients."""
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    return loss


def make_step(batch):
    """The step that Curvescope measures."""
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    batches = itertools.chain.from_iterable(itertools.repeat(load_data(batch)))

    def step():
        train_step(model, optimizer, schedule, *next(batches))

    step.module = model
    return step


if __name__ == "__main__":
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    for images, labels in load_data(64):
        print(float(train_step(model, optimizer, schedule, images, labels)))
