"""Evaluates trials for the training loop."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.engines.base import Engine


class Evaluator:
    """Measures trials of an engine on the splits that their study evaluates."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """The metrics of each of these trials (positions in the engine) as they are now."""
        metrics: list[dict[str, float]] = [{} for _ in rows]
        for split in self.engine.context.evaluated:
            means = self.engine.evaluate(split, rows)
            for of_row, of_split in zip(metrics, means, strict=True):
                of_row |= {f"{split}_{name}": value for name, value in of_split.items()}
        return metrics
