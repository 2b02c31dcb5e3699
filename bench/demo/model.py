"""A language model of the shape of GPT-2 over bytes, written with torch.nn alone.

Nothing here knows of Frostline: it is the training code that a user already has.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # every byte is a token


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Softmax attention in which no position sees a later one; all of [batch, heads, time, size].

    PyTorch before 2.0 has no fused form; there the probabilities are saved as well.
    """
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    time = q.shape[-2]
    future = torch.ones(time, time, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.shape[-1]))
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v


class Attention(nn.Module):
    """Multi-head self-attention, [batch, time, width] to the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = causal_attention(q, k, v)
        return self.project(mixed.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """One pre-norm transformer layer, [batch, time, width] to the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class ByteLanguageModel(nn.Module):
    """Predicts the next byte. There is no dropout, so that a run can be repeated bit by bit."""

    def __init__(self, layers: int, width: int, heads: int, context: int):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        """GPT-2's start: small normal weights, no bias."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats per byte; both arguments are int64 [batch, time].

        With 256 tokens the logits are [batch, time, 256]: less than one activation of a layer.
        """
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
