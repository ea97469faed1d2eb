"""BERT-Base, with or without its pre-training heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from ....base.errors import CurvescopeError
from . import Network

if TYPE_CHECKING:
    import torch

_DROPOUT = 0.1
MASKED_SHARE = 0.15  # share of tokens to predict, section 3.1 of the paper
IGNORED = -100  # cross_entropy's label for positions without target


@dataclass(frozen=True)
class Size:
    """Extents of a BERT, by default of BERT-Base."""

    width: int = 768
    layers: int = 12
    heads: int = 12  # of each attention
    inner: int = 3072
    vocabulary: int = 30522
    positions: int = 512
    segments: int = 2


_BASE = Size()


def build(heads: bool, size: Size = _BASE) -> torch.nn.Module:
    """The module, with random weights; without `heads` it has none of the pre-training."""
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F

    width = size.width

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word = nn.Embedding(size.vocabulary, width)
            self.position = nn.Embedding(size.positions, width)
            self.segment = nn.Embedding(size.segments, width)
            self.norm = nn.LayerNorm(width, eps=1e-12)
            self.dropout = nn.Dropout(_DROPOUT)

        def forward(self, tokens: Tensor) -> Tensor:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            summed = self.word(tokens) + self.position(positions)
            summed = summed + self.segment(torch.zeros_like(tokens))
            embedded: Tensor = self.dropout(self.norm(summed))
            return embedded

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
            self.output = nn.Linear(width, width)
            self.dropout = nn.Dropout(_DROPOUT)
            self.norm = nn.LayerNorm(width, eps=1e-12)

        def forward(self, x: Tensor) -> Tensor:
            query = self.split_heads(self.query(x))
            key = self.split_heads(self.key(x))
            value = self.split_heads(self.value(x))
            dropout = _DROPOUT if self.training else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
            joined = mixed.transpose(1, 2).flatten(2)
            residual = self.dropout(self.output(joined))
            added: Tensor = self.norm(x + residual)
            return added

        def split_heads(self, x: Tensor) -> Tensor:
            split: Tensor = x.unflatten(-1, (size.heads, -1)).transpose(1, 2)
            return split

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Attention()
            self.intermediate = nn.Linear(width, size.inner)
            self.activation = nn.GELU()
            self.output = nn.Linear(size.inner, width)
            self.dropout = nn.Dropout(_DROPOUT)
            self.norm = nn.LayerNorm(width, eps=1e-12)

        def forward(self, x: Tensor) -> Tensor:
            x = self.attention(x)
            inner = self.activation(self.intermediate(x))
            residual = self.dropout(self.output(inner))
            added: Tensor = self.norm(x + residual)
            return added

    class Encoder(nn.Sequential):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Sequential(*(Layer() for _ in range(size.layers)))

    class WordHead(nn.Module):
        def __init__(self, embedding: nn.Embedding) -> None:
            super().__init__()
            self.transform = nn.Linear(width, width)
            self.norm = nn.LayerNorm(width, eps=1e-12)
            self.decoder = nn.Linear(width, size.vocabulary)
            self.decoder.weight = embedding.weight  # the output embedding is the input's

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.decoder(self.norm(F.gelu(self.transform(x))))
            return scores

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = Embeddings()
            self.encoder = Encoder()
            self.pooler = nn.Linear(width, width)
            if heads:
                self.words = WordHead(self.embeddings.word)
                self.next_sentence = nn.Linear(width, 2)

        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            encoded = self.encoder(self.embeddings(tokens))
            pooled = torch.tanh(self.pooler(encoded[:, 0]))
            if heads:
                return self.words(encoded), self.next_sentence(pooled)
            return encoded, pooled

    return Bert()


@dataclass(frozen=True)
class Bert(Network):
    """BERT with its own data: token ids, and with the heads masked words and next sentences to
    predict.
    """

    heads: bool = True
    size: Size = _BASE
    reads_text: ClassVar[bool] = True

    def with_sequence_length(self, length: int) -> Network:
        """The same network with `length` tokens per sample, 1 to 512 for BERT-Base."""
        most = self.size.positions
        if not 1 <= length <= most:
            raise CurvescopeError(f"BERT takes 1 to {most} tokens, and not {length}.")
        return replace(self, input_shape=(length,))

    def sample(
        self, batch: int, device: str, generator: torch.Generator
    ) -> tuple[tuple[torch.Tensor, ...], Any]:
        """Token ids, shape (batch, sequence); targets: words, shape (batch, sequence), and next,
        shape (batch,).
        """
        import torch

        shape = (batch, *self.input_shape)
        tokens = torch.randint(self.size.vocabulary, shape, device=device, generator=generator)
        if not self.heads:
            return (tokens,), None
        masked = torch.rand(shape, device=device, generator=generator) < MASKED_SHARE
        masked[:, 0] = True  # the mean over zero masked words would be NaN
        words = torch.where(masked, tokens, IGNORED)
        return (tokens,), (words, torch.randint(2, (batch,), device=device, generator=generator))

    def loss(self, output: Any, targets: Any) -> torch.Tensor:
        """Cross-entropies of masked words and of the next sentence, summed; without heads the mean
        square.
        """
        from torch.nn import functional as F

        if not self.heads:
            return super().loss(output, None)
        words, following = output
        true_words, true_following = targets
        lost_words = F.cross_entropy(
            words.flatten(0, 1), true_words.flatten(), ignore_index=IGNORED
        )
        return lost_words + F.cross_entropy(following, true_following)


_PAPER = "Devlin et al., BERT, arXiv:1810.04805 (2018), BERT-Base uncased"

NETWORKS = {}
for _name, _heads, _note in (
    ("bert_base", True, "with the pre-training heads"),
    ("bert_base_encoder", False, "embeddings, encoder and pooler alone"),
):
    _source = f"{_PAPER}, {_note}, 128 tokens by default"
    NETWORKS[_name] = Bert(_name, _source, (128,), partial(build, _heads), None, _heads)
