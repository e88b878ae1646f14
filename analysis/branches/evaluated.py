"""What branches came to at the parts of their window after which all of them were evaluated.

A branch at k times the batch size that began at step b has seen k (s - b) steps of the trial at its
step s. Programs evaluate when they choose; nothing is interpolated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.branches.critical import Losses
from results.errors import ResultsError

_PARTS = (0.25, 0.5, 0.75, 1.0)
_RATES = ("learning_rate", "lr")
"""Names under which a program reports the learning rate."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A branch."""

    times: int
    began: int
    measured: Mapping[int, Mapping[str, float]]
    """Its metrics after so many steps of the trial from where it began."""
    diverged: bool


def losses(runs: Sequence[Run], metric: str, window: int) -> list[Losses]:
    """What branches from one step came to, about each part of a window; infinite where one has
    diverged before.

    Args:
        runs: by seed.
        window: in steps of the trial.

    Raises:
        ResultsError: after no examples all were evaluated.
    """
    alive = [
        {at for at, metrics in run.measured.items() if at > 0 and metric in metrics}
        for run in runs
        if not run.diverged
    ]
    common = sorted(set.intersection(*alive)) if alive else [window]
    if not common:
        raise ResultsError(
            f"from step {runs[0].began:,} on, branches have {metric} after the same examples "
            "nowhere within the window",
            hint="evaluate more often, and save checkpoints at evaluations; or give a window of at "
            "least the steps between evaluations times the largest of --by",
        )
    parts = {min(common, key=lambda at: abs(at - part * window)) for part in _PARTS}
    return [
        Losses(
            step=runs[0].began,
            window=part,
            by_times={
                k: [run.measured.get(part, {}).get(metric, math.inf) for run in of_k]
                for k, of_k in _by_times(runs)
            },
        )
        for part in sorted(parts)
    ]


def check(runs: Sequence[Run], factors: Mapping[int, float]) -> None:
    """Whether a program has taken what was changed in its branches, by what it has reported.

    Args:
        factors: of the learning rate, by k.

    Raises:
        ResultsError: two seeds agree, so that there would be no interval; or the learning rate is
            not what it should be after the same examples.
    """
    for k, of_k in _by_times([run for run in runs if not run.diverged]):
        if any(a.measured == b.measured for a, b in itertools.combinations(of_k, 2)):
            raise ResultsError(
                f"branches of two seeds at {k} times the batch size agree to the last digit: the "
                "program does not take {seed} where it goes on",
                hint="let it draw data by a seed that is not its checkpoint's; or --seeds 1",
            )
    for a, b in itertools.product([run for run in runs if run.times == 1], runs):
        for at, name in itertools.product(a.measured.keys() & b.measured.keys(), _RATES):
            base, rate = (run.measured[at].get(name, math.nan) for run in (a, b))
            if abs(rate - factors[b.times] * base) > 0.01 * abs(rate):
                raise ResultsError(
                    f"{name} at {b.times} times the batch size is {rate:.4g} from step {b.began:,} "
                    f"on, and not {factors[b.times]:.4g} times {base:.4g}, after the same examples",
                    hint="let the program apply its arguments after it has loaded its checkpoint; "
                    "its schedule must be constant over the window, or run in examples",
                )


def _by_times(runs: Sequence[Run]) -> list[tuple[int, list[Run]]]:
    ordered = sorted(runs, key=lambda run: run.times)
    return [(k, [*of_k]) for k, of_k in itertools.groupby(ordered, key=lambda run: run.times)]
