"""A module in the style of Hugging Face, without its package: a config object, named arguments,
output objects.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, fields

import torch
from torch import nn


@dataclass
class TinyConfig:
    vocab_size: int = 100
    hidden_size: int = 32
    num_attention_heads: int = 4
    num_hidden_layers: int = 2


class ModelOutput(OrderedDict):
    """Fields by name, by key and by position."""

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


@dataclass
class CausalOutput(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.attention = nn.MultiheadAttention(
            config.hidden_size, config.num_attention_heads, batch_first=True
        )
        self.mlp = nn.Sequential(
            nn.Linear(config.hidden_size, 4 * config.hidden_size),
            nn.GELU(),
            nn.Linear(4 * config.hidden_size, config.hidden_size),
        )

    def forward(self, hidden_states, attention_mask=None):
        normed = self.norm(hidden_states)
        mixed, _ = self.attention(
            normed, normed, normed, key_padding_mask=attention_mask, need_weights=False
        )
        return (hidden_states + mixed + self.mlp(normed),)


class TinyForCausalLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.num_hidden_layers)])
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.lm_head.weight = self.embed_tokens.weight  # tied, as in the real ones

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        hidden = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden = layer(hidden_states=hidden, attention_mask=attention_mask == 0)[0]
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            )
        return CausalOutput(loss=loss, logits=logits, hidden_states=(hidden,))


def make_step(batch=2, tokens=16):
    model = TinyForCausalLM(TinyConfig())
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(100, (batch, tokens))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}

    def step():
        outputs = model(**inputs)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step.module = model
    return step
