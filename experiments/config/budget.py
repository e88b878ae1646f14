"""The budget of a study in steps, and what it must be."""

from __future__ import annotations

from experiments.config.amounts import LARGEST_BUDGET, AmountError
from experiments.config.schema import ExperimentFile
from experiments.training import evaluation_grid
from results.counts import count
from workloads import Workload

_MOST_EVALUATIONS = 1_000_000


def budget_in_steps(
    file: ExperimentFile, batch_size: int, train_size: int | None, workload: Workload
) -> int:
    """The budget of a study, in steps of its batch size.

    Args:
        train_size: examples of the training set; ``None`` if it has no end.

    Raises:
        ExperimentError: it is less than a step or too many, makes too many evaluations, or is
            over one pass where data are not to be repeated.
    """
    try:
        steps = file.parsed_budget.in_steps(batch_size, train_size, workload.tokens_per_example)
    except AmountError as error:
        raise file.error(("budget",), str(error), error.hint) from None
    if steps < 1:
        message = f"budget {file.budget} is less than one step at batch size {batch_size}"
        raise file.error(("budget",), message, "add steps: 50 epochs + 2000 steps")
    if steps > LARGEST_BUDGET:
        message = f"budget {file.budget} is {count(steps, 'step')} at batch size {batch_size}"
        raise file.error(("budget",), message, f"at most {LARGEST_BUDGET:,}")
    _check_repetition(file, steps, batch_size, train_size)
    ratio = file.evaluation_ratio
    if (evaluations := evaluation_grid.count(ratio, steps)) > _MOST_EVALUATIONS:
        usual = evaluation_grid.count(1.05, steps)
        raise file.error(
            ("evaluation_ratio",),
            f"evaluation_ratio {ratio:.16g} makes about {evaluations:,.0f} evaluations of a "
            f"trial of {count(steps, 'step')}",
            f"at most {_MOST_EVALUATIONS:,}; 1.05 makes {usual:,.0f}",
        )
    return steps


def _check_repetition(
    file: ExperimentFile, steps: int, batch_size: int, train_size: int | None
) -> None:
    """Where data are not to be repeated, the budget is at most one pass."""
    if file.repeat_data or train_size is None or steps <= train_size // batch_size:
        return
    raise file.error(
        ("budget",),
        f"budget {file.budget} is {count(steps, 'step')} at batch size {batch_size}, and one "
        f"pass over the training set ({count(train_size, 'example')}) is "
        f"{train_size // batch_size:,}",
        "budget: 1 epoch, or repeat_data: true",
    )
