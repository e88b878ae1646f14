"""A hidden Markov language: endless windows of tokens whose least cross entropy is known.

A hidden state moves by a Markov chain; each state emits a token from a distribution of its own
(Rabiner 1989, doi:10.1109/5.18626). An example is a window of ``context + 1`` tokens that begins in
the stationary distribution; a model predicts each token but the first from those before it in its
window. Windows are computed from their index, so that none occurs twice in a trial.

**What is known.** With H(n) the entropy of n tokens in a row, the least loss of any model, per
token, is ``(H(context + 1) - H(1)) / context`` (``irreducible_loss``, by enumeration of all
windows). A longer context comes closer to the entropy rate h of the language, which has no closed
form; it lies between two sums that are exact and approach each other exponentially (Cover & Thomas
2006, theorem 4.5.1): ``H(X_n | X_1 … X_{n-1}, S_1) ≤ h ≤ H(X_n | X_1 … X_{n-1})``.

All probabilities are multiples of 2^-16 and tokens are drawn by comparing integers: a window has
the same tokens on every device. All entropies are in nats.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from workloads.base import Batch, Workload
from workloads.errors import WorkloadError
from workloads.generated.counters import fields_of, key_of, random_bits
from workloads.generated.split import GeneratedSplit

PACKAGED = {
    "markov": ("Markov", "MLP on a hidden Markov language, endless data; entropy known"),
}
"""Name -> class and what it is (``workloads.registry``)."""
PLACE = 22
VALIDATION = 2048
"""Windows of the validation split."""
_UNITS = 2**16
_DRAWN = 2**32
_LARGEST = 2**22
"""Largest number of windows, times states, that are enumerated."""


@dataclass(frozen=True)
class Language:
    """A hidden Markov chain, float64: ``start`` (S,), ``transition`` (S, S), ``emission`` (S, V).

    The state emits a token, then moves. Rows add up to 1.
    """

    start: Tensor
    transition: Tensor
    emission: Tensor

    @classmethod
    @functools.lru_cache(maxsize=16)
    def random(cls, states: int, tokens: int, seed: int) -> Language:
        """A language in its stationary distribution, with multiples of 2^-16 as probabilities.

        Rows are drawn from Dirichlet distributions that favour a few successors and tokens, with
        a small share of all the others.
        """
        draw = np.random.RandomState(seed)  # numpy's frozen generator
        moves = draw.dirichlet(np.full(states, 0.1), states) * 0.98 + 0.02 / states
        transition = np.stack([_in_units(row, _UNITS) for row in moves]) / _UNITS
        emitted = draw.dirichlet(np.full(tokens, 0.1), states) * 0.95 + 0.05 / tokens
        emission = np.stack([_in_units(row, _UNITS) for row in emitted]) / _UNITS
        values, vectors = np.linalg.eig(transition.T)
        stationary = np.abs(np.real(vectors[:, np.argmax(np.real(values))]))
        start = _in_units(stationary / stationary.sum(), _DRAWN) / _DRAWN
        return cls(*(torch.from_numpy(part) for part in (start, transition, emission)))

    def block_entropy(self, length: int) -> float:
        """The entropy of the first ``length`` tokens, by enumeration."""
        return float(_entropy(self._block_probabilities(self.start[None], length)))

    def conditional_entropy(self, length: int) -> tuple[float, float]:
        """Entropy of token ``length`` given all before it, with and without the first state.

        The first is a lower bound of the entropy rate, the second an upper one.
        """
        states = torch.diag(self.start)  # one row for each first state
        joint, shorter = (self._block_probabilities(states, n) for n in (length, length - 1))
        without = float(_entropy(joint.sum(0)) - _entropy(shorter.sum(0)))
        return float(_entropy(joint) - _entropy(shorter)), without

    def entropy_rate(self) -> tuple[float, float]:
        """The interval that holds the entropy rate, nats a token: as long as can be enumerated."""
        states, tokens = self.emission.shape
        length = 1
        while states**2 * tokens ** (length + 1) <= _LARGEST:
            length += 1
        return self.conditional_entropy(length)

    def _block_probabilities(self, starts: Tensor, length: int) -> Tensor:
        """Of all sequences of ``length`` tokens, for each row of ``starts`` (R, S): (R, V^length).

        ``starts`` may be joint probabilities: a row adds up to that of its sequences.
        """
        states, tokens = self.emission.shape
        if len(starts) * states * tokens**length > _LARGEST:
            raise WorkloadError(
                f"{tokens}^{length} sequences are too many to enumerate",
                hint="Language.entropy_rate() gives bounds from shorter ones",
            )
        forward = starts.unsqueeze(1)  # (R, sequences, S)
        for _ in range(length):
            emitted = forward.unsqueeze(2) * self.emission.T  # (R, sequences, V, S)
            forward = (emitted @ self.transition).flatten(1, 2)
        return forward.sum(-1)

    def predictions(self, windows: Tensor) -> Tensor:
        """The best prediction of each token but the first, given those before it.

        Args:
            windows: int64 (N, T + 1).

        Returns:
            Probabilities of the next token, float64 (N, T, V).
        """
        start, transition, emission = (
            part.to(windows.device) for part in (self.start, self.transition, self.emission)
        )
        belief, predicted = start.expand(len(windows), -1), []
        for tokens in windows[:, :-1].unbind(1):
            joint = belief * emission.T[tokens]
            belief = (joint / joint.sum(1, keepdim=True)) @ transition
            predicted.append(belief @ emission)
        return torch.stack(predicted, dim=1)


class Markov(Workload):
    """An MLP of one hidden layer predicts each token from those before it in the window."""

    target = "validation_excess_loss < 0.01"
    dataset = "markov"
    model_name = "mlp"
    example_unit = "sequence"
    version = "1"
    tokens: Annotated[int, Field(ge=2, le=256)] = 4
    """Tokens of the language."""
    states: Annotated[int, Field(ge=1, le=256)] = 8
    """Hidden states."""
    context: Annotated[int, Field(ge=1, le=1024)] = 8
    """Tokens that are predicted in a window, each from all before it."""
    width: Annotated[int, Field(ge=1)] = 64
    """Hidden units of the model."""
    language_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 2
    """Which language."""

    @property
    def tokens_per_example(self) -> int:  # type: ignore[override]
        """Tokens that are predicted in a window."""
        return self.context

    @property
    def language(self) -> Language:
        """The hidden Markov chain."""
        return Language.random(self.states, self.tokens, self.language_seed)

    @property
    def irreducible_loss(self) -> float:
        """The least expected cross entropy of any model of these windows, nats a token, exact.

        Raises:
            WorkloadError: the windows are too many to enumerate (more than 2^22 / states).
        """
        language = self.language
        whole = language.block_entropy(self.context + 1)
        return (whole - language.block_entropy(1)) / self.context

    def data(self) -> Mapping[str, Batch | Dataset[Any]]:
        """Endless windows, int64 (N, context + 1), and 2,048 fixed ones for validation, which come
        with their best predictions, float32 (N, context, tokens)."""
        given = (self.states, self.tokens, self.context, self.language_seed)
        fixed = MarkovData(*given, stream="validation").examples(torch.arange(VALIDATION))
        return {
            "train": MarkovData(*given, stream="train"),
            "validation": (*fixed, self.language.predictions(fixed[0]).float()),
        }

    def model(self) -> nn.Module:
        """A new model, float logits (B, context, tokens) of windows (B, context)."""
        return _WindowMLP(self.tokens, self.context, self.width)

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        """Logits of each token but the first, (B, context, tokens)."""
        logits: Tensor = model(batch[0][:, :-1])
        return logits

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Cross entropy, the mean over the window's predicted tokens, nats, shape (B,)."""
        chosen = output.log_softmax(-1).gather(-1, batch[0][:, 1:, None])
        return -chosen.squeeze(-1).mean(-1)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Means over the window's predicted tokens, nats, shape (B,).

        ``excess_loss``: the divergence of the model's prediction from the best one, whose least
        value is 0; ``cross_entropy``: the expected cross entropy, given the tokens before.
        """
        best = batch[1] if len(batch) > 1 else self.language.predictions(batch[0])
        best = best.to(output.dtype)
        cross_entropy = -(best * output.log_softmax(-1)).sum(-1).mean(-1)
        entropy = -torch.xlogy(best, best).sum(-1).mean(-1)
        return {"excess_loss": cross_entropy - entropy, "cross_entropy": cross_entropy}


class MarkovData(GeneratedSplit):
    """Windows of the language: int64 (N, context + 1)."""

    def __init__(self, states: int, tokens: int, context: int, seed: int, *, stream: str) -> None:
        self.language = Language.random(states, tokens, seed)
        self.length = context + 1
        self._key = key_of("markov", seed, stream)
        self._thresholds: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    def examples(self, indices: Tensor) -> Batch:
        """The windows of these indices."""
        start, transition, emission = self._on(indices.device)
        drawn = fields_of(random_bits(self._key, indices, self.length + 1), 32).unsqueeze(-1)
        state, window = (drawn[:, 0] >= start).sum(1), []
        for place in range(2, 2 * self.length + 2, 2):
            window.append((drawn[:, place] >= emission[state]).sum(1))
            state = (drawn[:, place + 1] >= transition[state]).sum(1)
        return (torch.stack(window, dim=1),)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Where each outcome begins, as numbers of 32 bits, but for the first outcome."""
        if device not in self._thresholds:
            language = self.language
            parts = (language.start, language.transition, language.emission)
            start, transition, emission = (
                (part.cumsum(-1)[..., :-1] * _DRAWN).round().long().to(device) for part in parts
            )
            self._thresholds[device] = start, transition, emission
        return self._thresholds[device]


class _WindowMLP(nn.Module):
    """A hidden layer over the tokens so far, one of ``tokens`` each, the latest last."""

    def __init__(self, tokens: int, context: int, width: int) -> None:
        super().__init__()
        self.tokens, self.context = tokens, context
        self.hidden = nn.Linear(context * tokens, width)
        self.output = nn.Linear(width, tokens)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits (B, context, tokens) of int64 (B, context)."""
        values = torch.arange(self.tokens, device=windows.device)
        indicators = (windows.unsqueeze(-1) == values).to(self.hidden.weight.dtype)
        # Before the window there is no token: all zeros.
        padded = F.pad(indicators, (0, 0, self.context - 1, 0))
        past = torch.stack(
            [padded[:, i : i + self.context].flatten(1) for i in range(self.context)], dim=1
        )
        logits: Tensor = self.output(self.hidden(past).relu())
        return logits


def _entropy(probabilities: Tensor) -> Tensor:
    """-Σ p log p, in nats."""
    return -torch.xlogy(probabilities, probabilities).sum()


def _in_units(probabilities: np.ndarray, units: int) -> np.ndarray:
    """The nearest whole numbers, at least 1, that add up to ``units``."""
    whole = np.maximum(1, np.rint(probabilities * units)).astype(np.int64)
    whole[np.argmax(whole)] += units - whole.sum()
    return whole
