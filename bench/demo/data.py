"""The batches cut from the text that the demo trains on: the same bytes in the same order."""

from __future__ import annotations

import torch


class Batches:
    """Batches of (tokens, targets), both int64 [batch, context]; targets are the next bytes.

    Batch `i` depends on the text, the seed and the batches before it, and on nothing else: the
    generator is its own, so that drawing a batch does not disturb the model's random numbers.
    """

    def __init__(self, text: bytes, batch: int, context: int, seed: int):
        if len(text) <= context:
            raise ValueError(f"the text has {len(text)} bytes; more than {context} are needed")
        self._tokens = torch.tensor(list(text), dtype=torch.int64)
        self._batch = batch
        self._context = context
        self._generator = torch.Generator().manual_seed(seed)

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        last_start = len(self._tokens) - self._context
        starts = torch.randint(last_start, (self._batch, 1), generator=self._generator)
        places = starts + torch.arange(self._context)
        return self._tokens[places], self._tokens[places + 1]
