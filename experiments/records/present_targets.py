"""Trials in terms of the target that their study has now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from results.reader import Results
from results.targets.retarget import measured_steps
from results.targets.target import Target


def at_present_targets(
    trials: pd.DataFrame, targets: Mapping[str, Target], results: Callable[[], Results]
) -> pd.DataFrame:
    """``trials`` with their steps to the targets of their studies, and the column ``moved``:
    whether they were recorded with another target, so that their measurements have the steps.

    Args:
        targets: by study. Trials of other studies, and those without a target, have not moved.
        results: opens the dataset, where any have.
    """
    metric, value = (
        trials["study"].map({study: getattr(target, name) for study, target in targets.items()})
        for name in ("metric", "value")
    )
    differs = metric.ne(trials["target_metric"]) | value.ne(trials["target_value"])
    moved = trials["target_metric"].notna() & metric.notna() & differs
    steps = trials["steps_to_target"].astype(float)
    for target, rows in trials[moved].groupby(trials["study"][moved].map(targets)):
        measured = measured_steps(results(), rows["trial"], target)["steps_to_target"]
        steps.loc[rows.index] = rows["trial"].map(measured)
    return trials.assign(steps_to_target=steps, moved=moved)
