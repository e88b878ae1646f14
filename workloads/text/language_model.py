"""What language models share: the text, windows of it as examples, and the loss per token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from workloads.base import Batch, Workload
from workloads.text.sources import FILE, Text, check_source, read_text
from workloads.text.tokens import TokenStream

SMALL_DRAW = 0.02
"""Standard deviation of initial weights, as GPT-2 (Radford et al. 2019) and nanoGPT have it."""


class LanguageModel(Workload):
    """The next token of a text. A subclass brings ``model``: ids (B, context) to logits (B,
    context, ``vocabulary_size``).

    An example is a *sequence*, a window of ``context`` tokens. The loss of a sequence and the
    metric ``cross_entropy`` are means over its tokens, in nats; all sequences have the same length,
    so that their mean is that of the tokens.
    """

    target = "validation_cross_entropy < 2.4"
    example_unit = "sequence"
    version = "1"
    text: str = "stdlib"
    """Where the text comes from: ``stdlib``, ``shakespeare``, ``wikitext2``, ``lm1b``, each with
    ``-bpe`` or without, or ``file:PATH`` (relative to the experiment file)."""
    vocabulary: int | None = None
    """Tokens of byte-level BPE. Without it tokens are bytes (``shakespeare``: characters), or for a
    name with ``-bpe`` there are 8,192."""
    context: Annotated[int, Field(ge=1)] = 64
    """Tokens in a sequence."""
    validation_tokens: Annotated[int, Field(ge=1)] = 65_536
    """The validation split is so many tokens from its start, or all if it has fewer."""

    def __post_init__(self) -> None:
        check_source(self.text, self.vocabulary)

    @property
    def _tokens(self) -> Text:
        return read_text(self.text, self.vocabulary, self.experiment_folder)

    def data_files(self) -> tuple[str, ...]:
        """The PATH of a text ``file:PATH``."""
        return (self.text.removeprefix(FILE),) if self.text.startswith(FILE) else ()

    @property
    def vocabulary_size(self) -> int:
        """How many different tokens there are."""
        return self._tokens.vocabulary

    @property
    def dataset(self) -> str:  # type: ignore[override]
        """The text's name; with the start of its fingerprint, unless it is a published data set."""
        return self._tokens.dataset

    @property
    def tokens_per_example(self) -> int:  # type: ignore[override]
        """The field ``context``."""
        return self.context

    @property
    def data_fingerprint(self) -> str:
        """SHA-256 of the tokens: part of a trial's identity."""
        return self._tokens.fingerprint

    def data(self) -> Mapping[str, TokenStream]:
        """Train, validation and test as windows of ``context`` tokens."""
        splits = dict(self._tokens.splits)
        # One more: the target of the last.
        splits["validation"] = splits["validation"][: self.validation_tokens + 1]
        return {name: TokenStream(tokens, self.context) for name, tokens in splits.items()}

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Inputs and targets as int64, (B, context) each."""
        return tuple(ids.long() for ids in batch)

    def parameter_groups(
        self, named_parameters: Mapping[str, Tensor]
    ) -> Mapping[str, Mapping[str, float]]:
        """No weight decay for biases, the weights of norms, and embeddings: parameters of fewer
        than two dimensions, or with ``embedding`` in their name. Embeddings and the output layer,
        ``head``, are not hidden: muon leaves them to AdamW (Jordan et al. 2024)."""
        groups: dict[str, dict[str, float]] = {}
        for name, parameter in named_parameters.items():
            embedding = "embedding" in name
            group = {"weight_decay": 0.0} if parameter.dim() < 2 or embedding else {}
            if embedding or name.startswith("head."):
                group["hidden"] = False
            if group:
                groups[name] = group
        return groups

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Cross entropy in nats, the mean over the tokens of each sequence, shape (B,)."""
        targets = batch[1]
        each = F.cross_entropy(output.flatten(0, 1), targets.flatten(), reduction="none")
        return each.view(targets.shape).mean(1)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Any]:
        """``cross_entropy`` in nats per token, shape (B,)."""
        return {"cross_entropy": self.loss(output, batch)}
