"""A decoder Transformer: pre-norm, GELU, causal attention (Radford et al. 2019; nanoGPT)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from workloads.errors import WorkloadError
from workloads.layout_plan import LayoutPlan, SequencePlan
from workloads.text.language_model import SMALL_DRAW, LanguageModel

PACKAGED = {
    "lm-transformer": ("LMTransformer", "decoder Transformer, a language model on any text"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 31

_ROTARY_BASE = 10_000.0


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, rotary: bool) -> None:
        super().__init__()
        self.head, self.dropout, self.rotary = width // heads, dropout, rotary
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x)
        examples, length, size = parts.shape  # of all heads, or of a rank's share of them
        parts = parts.view(examples, length, 3, size // (3 * self.head), self.head)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()
        if self.rotary:
            q, k = _rotated(q), _rotated(k)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(examples, length, size // 3))


def _rotated(x: Tensor) -> Tensor:
    """Pairs (i, i + d/2) of entries, turned by an angle that grows with the position: (…, T, d).

    Rotary positions (Su et al. 2021, arXiv:2104.09864): the angle at position t is t·10000^(-2i/d).
    """
    length, size = x.shape[-2:]
    places = torch.arange(size // 2, device=x.device, dtype=x.dtype)
    rates = _ROTARY_BASE ** (places * (-2 / size))
    positions = torch.arange(length, device=x.device, dtype=x.dtype)
    angles = positions[:, None] * rates
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, rotary: bool) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _Attention(width, heads, dropout, rotary)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class _Transformer(nn.Module):
    def __init__(self, of: LMTransformer) -> None:
        super().__init__()
        vocabulary, width, rotary = of.vocabulary_size, of.width, of.positions == "rotary"
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = None if rotary else nn.Embedding(of.context, width)
        self.dropout = nn.Dropout(of.dropout)
        blocks = (_Block(width, of.heads, of.dropout, rotary) for _ in range(of.layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = None if of.tied else nn.Linear(width, vocabulary, bias=False)
        self._initialize()

    def _initialize(self) -> None:
        """As nanoGPT: N(0, 0.02²), where a block adds to the stream divided by √(2 layers); zero
        biases."""
        added = ("attention.out.weight", "mlp.2.weight")
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                residual = name.startswith("blocks.") and name.endswith(added)
                scale = (2 * len(self.blocks)) ** -0.5 if residual else 1.0
                nn.init.normal_(parameter, std=SMALL_DRAW * scale)

    def forward(self, ids: Tensor) -> Tensor:
        x = ids
        if not ids.is_floating_point():  # a later stage of a pipeline has features
            x = self.token_embedding(ids)
            if self.position_embedding is not None:
                x = x + self.position_embedding.weight[: ids.shape[1]]
            x = self.dropout(x)
        for block in self.blocks:
            x = block(x)
        if self.norm is None:  # in the last stage alone
            return x
        head = self.token_embedding if self.head is None else self.head
        return F.linear(self.norm(x), head.weight)


class LMTransformer(LanguageModel):
    """``layers`` blocks of ``width``, attention with ``heads``, and an MLP of 4 × ``width``."""

    model_name = "transformer"
    version = "1"
    layers: Annotated[int, Field(ge=1)] = 2
    width: Annotated[int, Field(ge=1)] = 64
    heads: Annotated[int, Field(ge=1)] = 4
    tied: bool = True
    """Whether the output layer has the weights of the token embedding."""
    positions: Literal["learned", "rotary"] = "learned"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of embeddings, attention weights, and what each block adds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise WorkloadError(
                f"workload {self.name}: field 'width' is {self.width}, and field 'heads', "
                f"{self.heads}, does not divide it",
                hint=f"for {self.heads} heads a width of {self._wider(self.heads)}",
            )
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise WorkloadError(
                f"workload {self.name}: rotary positions turn pairs, and field 'width', "
                f"{self.width}, over {self.heads} heads is odd",
                hint=f"for {self.heads} heads a width of {self._wider(2 * self.heads)}",
            )

    def _wider(self, unit: int) -> int:
        """The least multiple of ``unit`` that is at least the field ``width``."""
        return -(-self.width // unit) * unit

    def layout_plan(self) -> LayoutPlan:
        """Attention by its heads, the MLP by its hidden features; embeddings, norms and the output
        layer are whole on every rank."""
        return LayoutPlan(
            blocks=("blocks.*",),
            pipeline=(
                ("token_embedding", "position_embedding", "dropout"),
                "blocks.*",
                ("norm", "token_embedding" if self.tied else "head"),
            ),
            columns={"blocks.*.attention.qkv": 3, "blocks.*.mlp.0": 1},
            rows=("blocks.*.attention.out", "blocks.*.mlp.2"),
            multiples={"heads": self.heads},
            sequence=SequencePlan(
                first="blocks.0",
                after="norm",
                norms=("blocks.*.attention_norm", "blocks.*.mlp_norm"),
                length=self.context,
            ),
        )

    def model(self) -> nn.Module:
        """A new model: ids (B, context) to logits (B, context, vocabulary)."""
        return _Transformer(self)
