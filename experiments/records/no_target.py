"""When no study has reached the target: the best value of each, and a target that half reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.errors import ExperimentError
from experiments.plan import Study
from experiments.records.recorded import best_values
from results.counts import agreeing, count
from results.store import Store
from results.targets.target import Target

_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class NoTarget:
    """The best value of the target's metric in each study, by its label."""

    target: Target
    best: Mapping[str, float]

    def error(self, trials: int, ends: Mapping[str, int]) -> ExperimentError:
        """The error after ``trials`` trials a study.

        Args:
            ends: how many trials there are of each stop reason.
        """
        none = f"no study has reached {self.target} in its first {count(trials, 'trial')}"
        if not self.best:
            diverged, failed = ends.get("diverged", 0), ends.get("error", 0)
            how = "every trial diverged"
            if failed:
                how = f"{count(diverged, 'trial')} diverged, {failed:,} failed"
            return ExperimentError(
                f"{none}: none was measured at all, {how}",
                hint="lower the learning rates of the search"
                + ("; the failures are listed above" if failed else ""),
            )
        ranked = sorted(self.best, key=lambda label: self.best[label])
        if not self.target.lower_is_better:
            ranked.reverse()
        listed = ", ".join(f"{label}: {self.best[label]:.4g}" for label in ranked[:_LISTED])
        more = f", and {len(ranked) - _LISTED} more" if len(ranked) > _LISTED else ""
        easier = self.suggest()
        many = sum(1 for value in self.best.values() if easier.hit(value))
        return ExperimentError(
            f"{none}; best {self.target.metric} of each: {listed}{more}",
            hint=f"{many} of {count(len(ranked), 'study')} {agreeing(many, 'have')} reached "
            f"{easier}: set it as the target, or raise the budget; or give the same command "
            "again to continue unchanged",
        )

    def suggest(self) -> Target:
        """A target of two digits that half of the studies or more have reached."""
        ranked = sorted(self.best.values(), reverse=not self.target.lower_is_better)
        middle = ranked[(len(ranked) - 1) // 2]
        sign = 1 if self.target.lower_is_better else -1
        unit = 10.0 ** (math.floor(math.log10(abs(middle))) - 1) if middle else 0.01
        value = float(f"{(math.floor(sign * middle / unit) + 1) * sign * unit:.2g}")
        return Target(
            metric=self.target.metric,
            value=value,
            lower_is_better=self.target.lower_is_better,
        )


def no_target(store: Store, studies: Sequence[Study], labels: Mapping[str, str]) -> NoTarget:
    """Read how far the studies are from the target, from their measurements."""
    target = studies[0].targets[-1]
    ids = {study.id for study in studies}
    rows = store.trials(columns=["study", "trial"])
    best = best_values(store, target, rows["trial"][rows["study"].isin(ids)], by="study")
    return NoTarget(
        target=target, best={labels[str(study)]: float(value) for study, value in best.items()}
    )
