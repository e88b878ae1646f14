"""When no study has reached the target: the best value of each, and a target that half reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from experiments.errors import ExperimentError
from experiments.plan import Study
from experiments.records.recorded import best_values
from results.counts import agreeing, count
from results.store import Store
from results.targets.target import Target

_LISTED = 8


def no_target(
    store: Store,
    studies: Sequence[Study],
    labels: Mapping[str, str],
    trials: int,
    ends: Mapping[str, int],
) -> ExperimentError:
    """The error after ``trials`` trials a study, by how far their measurements are from the target.

    Args:
        labels: of the studies, by id.
        ends: how many trials there are of each stop reason.
    """
    target = studies[0].targets[-1]
    rows = store.trials(columns=["study", "trial"])
    of_studies = rows["trial"][rows["study"].isin(labels.keys())]
    by_study = best_values(store, target, of_studies, by="study")
    best = {labels[str(study)]: float(value) for study, value in by_study.items()}
    none = f"no study has reached {target} in its first {count(trials, 'trial')}"
    if not best:
        diverged, failed = ends.get("diverged", 0), ends.get("error", 0)
        how = "every trial diverged"
        if failed:
            how = f"{count(diverged, 'trial')} diverged, {failed:,} failed"
        hint = "lower the learning rates of the search"
        hint += "; the failures are listed above" if failed else ""
        if studies[0].workload.program is not None:
            hint += "; batchscale check finds a program that reports NaN where it measures nothing"
        return ExperimentError(f"{none}: none was measured at all, {how}", hint=hint)
    ranked = sorted(best, key=lambda label: best[label])
    if not target.lower_is_better:
        ranked.reverse()
    listed = ", ".join(f"{label}: {best[label]:.4g}" for label in ranked[:_LISTED])
    more = f", and {len(ranked) - _LISTED} more" if len(ranked) > _LISTED else ""
    easier = _easier(target, best.values())
    many = sum(1 for value in best.values() if easier.hit(value))
    return ExperimentError(
        f"{none}; best {target.metric} of each: {listed}{more}",
        hint=f"{many} of {count(len(ranked), 'study')} {agreeing(many, 'have')} reached "
        f"{easier}: set it as the target, or raise the budget; or give the same command "
        "again to continue unchanged",
    )


def _easier(target: Target, best: Iterable[float]) -> Target:
    """A target of two digits that half of the studies or more have reached."""
    ranked = sorted(best, reverse=not target.lower_is_better)
    middle = ranked[(len(ranked) - 1) // 2]
    sign = 1 if target.lower_is_better else -1
    unit = 10.0 ** (math.floor(math.log10(abs(middle))) - 1) if middle else 0.01
    value = float(f"{(math.floor(sign * middle / unit) + 1) * sign * unit:.2g}")
    return replace(target, value=value)
