"""The keys that say how a study is searched: known words, and what can be meant together."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments import search
from experiments.errors import nearest
from experiments.search import adaptive

if TYPE_CHECKING:
    from experiments.config.combinations import Combination
    from experiments.config.experiment import Experiment

_BEST_OF = 10
_WHY_NOT = {
    "grid": "a grid has its own levels",
    "points": "its points are chosen by hand",
}
_ADAPTIVE = "its points are drawn where the earlier ones were good"
"""Why a method cannot fill what is added to a space."""
_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+)\s*%")


def check(experiment: Experiment) -> None:
    """The keys of the search, each by itself and against the others.

    Raises:
        ExperimentError: one that cannot be.
    """
    method = experiment.search_method
    if method not in search.METHODS:
        raise experiment.error(
            ("method",), f"unknown method {method!r}", nearest(method, search.METHODS)
        )
    if experiment.points is None and method == "points":
        raise experiment.error(
            ("method",), "method points, and no points", "points: [{learning_rate: 0.1}, …]"
        )
    if experiment.points is not None and method != "points":
        raise experiment.error(
            ("points",), f"points are given, and method is {method}", "keep one of the two"
        )
    if experiment.extend and method not in search.ENLARGEABLE:
        raise experiment.error(
            ("extend",),
            f"extend does not go with method {method}: {_WHY_NOT.get(method, _ADAPTIVE)}",
            f"method: {' or '.join(search.ENLARGEABLE)}; or widen the ranges of search",
        )
    _check_estimator(experiment, method)
    _ = experiment.refine_ratio


def check_spaces(experiment: Experiment, found: Sequence[Combination]) -> None:
    """Whether the method can search what is tuned.

    Raises:
        ExperimentError: CMA-ES of fewer than two ranges, which would draw at random.
    """
    if experiment.search_method != "optuna:cmaes":
        return
    for one in found:
        ranges = [name for name, entry in one.space.items() if entry.scale != "discrete"]
        if len(ranges) < 2:
            raise experiment.error(
                ("method",),
                f"method optuna:cmaes needs two ranges: {one.optimizer.label} tunes "
                f"{' and '.join(ranges) or 'nothing'} alone",
                "method: optuna:tpe, or tune more",
            )


def check_installed(experiment: Experiment) -> None:
    """What searches must be installed; a recorded experiment is read without it.

    Raises:
        ExperimentError: it is not.
    """
    lacking = adaptive.missing(experiment.search_method)
    if lacking:
        raise experiment.error(
            ("method",),
            f"method {experiment.search_method} needs {' and '.join(lacking)}, which cannot be "
            "imported",
            f"pip install {' '.join(lacking)}",
        )


def _check_estimator(experiment: Experiment, method: str) -> None:
    if experiment.estimator != "best_of_10":
        return
    path = ("estimator",)
    if method == "points" or search.block(method):
        raise experiment.error(
            path,
            f"estimator best_of_10 is of trials that are drawn alike, not of method {method}",
            "estimator: minimum, or method: sobol or random",
        )
    if experiment.keep is not None and experiment.keep < _BEST_OF:
        raise experiment.error(
            path,
            f"estimator best_of_10 needs the {_BEST_OF} best trials exact: keep is "
            f"{experiment.keep}",
            f"keep: {_BEST_OF}, or off",
        )
    if experiment.trials < _BEST_OF:
        raise experiment.error(
            path,
            f"estimator best_of_10 needs at least {_BEST_OF}: trials is {experiment.trials}",
            f"trials: {_BEST_OF} or more",
        )


def refine_ratio(experiment: Experiment) -> float | None:
    """The ratio of the finer grid that ``refine: 1%`` (or ``0.01``) asks for; ``None``: off.

    Raises:
        ExperimentError: no share, or one that is not finer than the evaluations are.
    """
    share = _share(experiment.refine)
    path = ("refine",)
    if share is None:
        return None
    if not math.isfinite(share) or share <= 0:
        raise experiment.error(
            path, f"refine {experiment.refine!r} is not a share", "for example: refine: 1%, or off"
        )
    ratio = round(1 + share, 12)
    if not 1 < ratio < experiment.evaluation_ratio:
        raise experiment.error(
            path,
            f"refine {experiment.refine} is not finer than evaluation_ratio "
            f"{experiment.evaluation_ratio:g}: looks stand {experiment.evaluation_ratio - 1:.3g} "
            "apart already",
            "for example: refine: 1%",
        )
    return ratio


def _share(value: Any) -> float | None:
    """NaN where it is none."""
    if value is None or value is False or value == "off":
        return None
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value.strip())
        return float(match[1]) / 100 if match else math.nan
    return float(value) if isinstance(value, (int, float)) and value is not True else math.nan
