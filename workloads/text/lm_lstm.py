"""An LSTM language model (Hochreiter & Schmidhuber 1997), its cell in plain operations.

``torch.nn.LSTM`` is one operation that ``torch.func`` cannot batch: here each time step is a matrix
product and elementwise operations, which both engines train.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.layout_plan import LayoutPlan
from workloads.text.language_model import LanguageModel

PACKAGED = {"lm-lstm": ("LMLSTM", "LSTM of two layers, a language model on any text")}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 32


class _Layer(nn.Module):
    """One layer, (B, T, width) to (B, T, width), from a zero state; equal to ``torch.nn.LSTM``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 4 * width)
        self.hidden = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        given = self.input(x)  # of all steps at once
        cell = torch.zeros_like(x[:, 0])
        hidden = torch.zeros_like(cell)
        outputs = []
        for step in range(x.shape[1]):
            gates = given[:, step] + self.hidden(hidden) if step else given[:, 0]
            entered, kept, new, read = gates.chunk(4, dim=-1)
            cell = kept.sigmoid() * cell + entered.sigmoid() * new.tanh()
            hidden = read.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)


class _LSTM(nn.Module):
    def __init__(self, of: LMLSTM) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(of.vocabulary_size, of.width)
        self.layers = nn.ModuleList(_Layer(of.width) for _ in range(of.layers))
        self.dropout = nn.Dropout(of.dropout)
        self.head_bias = nn.Parameter(torch.zeros(of.vocabulary_size))
        self.head = None if of.tied else nn.Linear(of.width, of.vocabulary_size, bias=False)
        bound = of.width**-0.5
        for name, parameter in self.named_parameters():
            if name != "head_bias":
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.dropout(self.token_embedding(ids))
        for layer in self.layers:
            x = self.dropout(layer(x))
        head = self.token_embedding if self.head is None else self.head
        return F.linear(x, head.weight, self.head_bias)


class LMLSTM(LanguageModel):
    """``layers`` of ``width`` cells; a sequence starts from a zero state.

    All weights start uniform within ±1/√width, as torch's LSTM has them. Dropout is between layers
    (Zaremba et al. 2014, arXiv:1409.2329).
    """

    model_name = "lstm"
    version = "1"
    layers: Annotated[int, Field(ge=1)] = 2
    width: Annotated[int, Field(ge=1)] = 64
    tied: bool = False
    """Whether the output layer has the weights of the token embedding."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def layout_plan(self) -> LayoutPlan:
        """Its layers are sharded one by one."""
        return LayoutPlan(blocks=("layers.*",))

    def model(self) -> nn.Module:
        """A new model: ids (B, context) to logits (B, context, vocabulary)."""
        return _LSTM(self)
