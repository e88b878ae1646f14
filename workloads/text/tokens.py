"""A split of text: one long tensor of token ids, cut into windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TokenStream:
    """One long text whose examples are windows of ``context`` tokens.

    Example i has the tokens from ``i * context`` on as inputs, and as targets the tokens that
    follow each of them: the windows do not overlap, and every token but the first is predicted once
    an epoch. What is left at the end and fills no window is not used. A batch is a pair (inputs,
    targets), each of shape (B, context) and of the type of ``tokens``: ``transform`` makes int64 of
    it where a model needs that. The stream lies on the device whole, and windows are gathered
    there.
    """

    tokens: Tensor
    """Token ids, shape (T,): uint8 or uint16 (the smallest); int32 or int64."""
    context: int
    """Tokens in a window."""

    def __len__(self) -> int:
        """The number of windows."""
        return max(0, len(self.tokens) - 1) // self.context if self.context > 0 else 0

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of one window, (context,) each."""
        if not 0 <= index < len(self):
            raise IndexError(f"no window {index}: there are {len(self)}")
        inputs, targets = self.windows(torch.tensor([index], device=self.tokens.device))
        return inputs[0], targets[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens."""
        return self.tokens.nbytes

    def to(self, device: torch.device | str) -> TokenStream:
        """The same stream on ``device``."""
        return TokenStream(self.tokens.to(device), self.context)

    def windows(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the windows ``indices`` (int64, on the device of the tokens)."""
        wide = self.tokens.dtype == torch.uint16  # not every device indexes that type
        tokens: Any = self.tokens.view(torch.int16) if wide else self.tokens
        drawn = tokens.unfold(0, self.context + 1, self.context)[indices]
        drawn = drawn.view(torch.uint16) if wide else drawn
        return drawn[:, :-1], drawn[:, 1:]
