"""Evaluates trials for the training loop: the interface, and evaluation in the training process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.engines.base import Engine


class Evaluator:
    """Evaluates trials of an engine, one evaluation at a time; this one before ``begin`` returns.

    One that evaluates elsewhere lets the loop train on until ``result``. Trials whose evaluation
    changes what they do next are then set back to it (``rewind``).
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._metrics: list[dict[str, float]] = []

    def begin(self, rows: Sequence[int]) -> None:
        """Begin to evaluate these trials (positions in the engine) as they are now."""
        self._metrics = [{} for _ in rows]
        for split in self.engine.context.evaluated:
            means = self.engine.evaluate(split, rows)
            for metrics, of_split in zip(self._metrics, means, strict=True):
                metrics |= {f"{split}_{name}": value for name, value in of_split.items()}

    @property
    def ready(self) -> bool:
        """Whether ``result`` returns at once."""
        return True

    def result(self) -> list[dict[str, float]]:
        """The metrics of each of the trials; waits for them."""
        return self._metrics

    def rewind(self, rows: Sequence[int]) -> None:
        """Set trials back to the step at which the evaluation began."""

    def copy(self, rows: Sequence[int]) -> list[Any]:
        """The engine's copies of trials as they were when the evaluation began."""
        return self.engine.copy(rows)

    def end(self) -> Mapping[int, int]:
        """Forget the evaluation; the steps by which trials were set back, by position, where they
        may have been."""
        return {}

    def close(self) -> None:
        """Release what the evaluator holds."""
