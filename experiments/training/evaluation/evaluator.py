"""Evaluates trials for the training loop: on the whole split, or until a miss is certain.

A target needs one bit of an evaluation. A miss is mostly certain after a part of the split
(``misses``); a hit is always decided on the whole of it. So steps to target are those of full
evaluations, and evaluations are short but for those next to the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.engines.base import Engine
from experiments.training.evaluation.misses import MissTest, Sample
from experiments.training.evaluation.parts import Parts, split_parts
from experiments.training.study_context import StudyContext
from results.targets.target import Target

SMALLEST = 1_000
"""Examples of the smallest split of which a part is read."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The metrics of a trial on the splits that its study evaluates."""

    metrics: dict[str, float]
    sample: Sample | None = None
    """Set where only a part of the split was read, of which the metrics are."""


def parts_of(context: StudyContext) -> Parts | None:
    """The parts in which a study's evaluations read their split; ``None``: they read all of it."""
    study, split = context.study, context.splits[context.evaluated[0]]
    divided = (
        study.evaluate == "auto"
        and study.stop_at_target
        and len(context.evaluated) == 1
        and not context.workload.measures_split
        and not split.iterable
        and len(split) >= SMALLEST
    )
    return split_parts(len(split)) if divided else None


class Evaluator:
    """Measures trials of an engine on the splits that their study evaluates."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._parts = parts_of(engine.context)

    def __call__(self, rows: Sequence[int], targets: Sequence[Target | None]) -> list[Measured]:
        """Measure trials (positions in the engine) as they are now.

        Args:
            targets: of each the easiest target that it has not reached; ``None``: all of the split
                is read whatever comes out.
        """
        metrics: list[dict[str, float]] = [{} for _ in rows]
        samples: list[Sample | None] = [None] * len(rows)
        for split in self.engine.context.evaluated:
            tests = None
            if self._parts is not None:
                examples = len(self.engine.context.splits[split])
                tests = [MissTest(target, examples) for target in targets]
            means = self.engine.evaluate(split, rows, self._parts, tests or ())
            for of_row, of_split in zip(metrics, means, strict=True):
                of_row |= {f"{split}_{name}": value for name, value in of_split.items()}
            samples = [test.sample for test in tests] if tests else samples
        for of_row, recorded in zip(metrics, self.engine.recorded(rows), strict=True):
            of_row |= {f"train_{name}": value for name, value in recorded.items()}
        return [Measured(metrics=m, sample=s) for m, s in zip(metrics, samples, strict=True)]
