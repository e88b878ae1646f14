"""Who evaluates the trials of a pack: the process that trains them, or one beside it."""

from experiments.training.evaluation.evaluator import Evaluator

__all__ = ["Evaluator"]
