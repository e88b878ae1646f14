"""The gradient noise scale along a trajectory to the target, as ``noise_scale`` has recorded it.

A trial with the technique records at each evaluation the number of steps measured so far, and the
sums over them of unbiased estimates of |G|² and of tr(Σ). The noise scale of a window of steps is
the ratio of what both grow by within it (``results.noise_estimate``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.curves.units import TOKENS
from analysis.figure_data import FigureData
from analysis.fit.regimes import Regimes
from results.errors import ResultsError
from results.noise_estimate import NoiseEstimate, Row, estimate
from results.targets.target import Target

RECORDED = ("train_noise_steps", "train_noise_gradient", "train_noise_variance")
WINDOWS = {"path": (0.0, 1.0), "beginning": (0.0, 0.25), "half": (0.4, 0.6), "end": (0.75, 1.0)}
"""Parts of the trajectory to the target, as shares of its steps."""
BEST = 3
NEAR = 1.25
"""So many trials count beside each other, if they took at most so many times the fewest steps."""
_SQL = """SELECT row, step, value FROM evaluations
WHERE isfinite(value) AND step <= reached ORDER BY row, step"""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """The trajectory to the target of the best trials at one batch size of a curve."""

    curve: Curve
    point: Point
    trials: tuple[str, ...]
    tokens: int | None
    """Those of an example, where batch sizes are counted in tokens; noise scales are then too."""
    recorded: pd.DataFrame
    """A row an evaluation, trial by trial: ``trial``, ``step``, ``share`` (of the trial's steps to
    the target), how much has been recorded since the last one (``steps``, ``gradient``,
    ``variance``), and by how much the target's metric has improved since then (``improved``)."""

    def between(self, low: float, high: float) -> NoiseEstimate | None:
        """The noise scale of evaluations whose share is in (low, high]; None: nothing is measured
        there."""
        of_window = self.recorded[self.recorded["share"].between(low, high, inclusive="right")]
        return _estimate(of_window, self.tokens)

    def by_improvement(self) -> NoiseEstimate | None:
        """That of the whole trajectory, steps weighted by how the target's metric improves in them.

        It has no interval: the weights are random too.
        """
        rows = self.recorded[self.recorded["steps"] > 0]
        weights = rows["improved"] / rows["steps"]
        gradient, variance = (float((rows[c] * weights).sum()) for c in ("gradient", "variance"))
        if not gradient:
            return None
        return NoiseEstimate(
            noise_scale=(self.tokens or 1) * variance / gradient,
            low=None,
            high=None,
            gradient_norm_squared=gradient,
            covariance_trace=variance,
            steps=int(rows["steps"].sum()),
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.noise_scales`` returns it."""
        parts = {name: self.between(*ends) for name, ends in WINDOWS.items()}
        parts["by_improvement"] = self.by_improvement()
        return {
            "batch_size": self.point.batch_size,
            "steps": self.point.steps,
            "trials": list(self.trials),
            **{name: None if part is None else _answer(part) for name, part in parts.items()},
        }

    def doublings(self) -> list[tuple[float, float, NoiseEstimate]]:
        """Windows that double the share, in their order, with their ends and noise scales: those
        with an interval, or the whole trajectory where there is none."""
        windows: list[tuple[float, float, NoiseEstimate]] = []
        high = 1.0
        while (each := self.between(high / 2, high)) and not each.low is each.high is None:
            windows.insert(0, (high / 2, high, each))
            high /= 2
        whole = self.between(0.0, 1.0)
        return windows or ([] if whole is None else [(0.0, 1.0, whole)])


def trajectories(data: FigureData) -> list[Trajectory]:
    """Of each curve and batch size where a trial that recorded its noise scale reached the target.

    Raises:
        ResultsError: no trial has.
    """
    chosen: list[tuple[Curve, Point, list[tuple[str, float]]]] = []
    for curve in data.curves:
        for point in curve.points:
            reached = sorted(
                (each.steps, each.trial)
                for each in point.trial_outcomes
                if each.became == "reached" and each.steps and each.trial
            )
            best = [(trial, steps) for steps, trial in reached if steps <= NEAR * reached[0][0]]
            if best:
                chosen.append((curve, point, best[:BEST]))
    recorded: dict[Target | None, pd.DataFrame] = {}
    for target in {curve.target for curve, *_ in chosen}:
        # A trial can be on the curves of two targets, with other steps to each.
        trials = {t: n for curve, _, best in chosen if curve.target == target for t, n in best}
        recorded[target] = _recorded(data, target, trials)
    tokens = _tokens(data) if data.query.unit == TOKENS else {}
    made = []
    for curve, point, best in chosen:
        rows, names = recorded[curve.target], tuple(trial for trial, _ in best)
        rows, of_example = rows[rows["trial"].isin(names)], tokens.get(names[0])
        if len(rows):
            made.append(
                Trajectory(curve=curve, point=point, trials=names, tokens=of_example, recorded=rows)
            )
    if not made:
        raise ResultsError(
            "no trial that reached its target has recorded its noise scale",
            hint="sweep with technique: noise_scale, and keep the measurements",
        )
    return made


def _tokens(data: FigureData) -> dict[str, int]:
    """Those of an example of each trial."""
    trials = pd.concat([source.trials[["trial", "tokens_per_example"]] for source in data.opened])
    return {str(trial): int(n) for trial, n in trials.dropna().itertuples(index=False)}


def _recorded(data: FigureData, target: Target | None, trials: dict[str, float]) -> pd.DataFrame:
    """``Trajectory.recorded`` of all trials, given with their steps to the target."""
    names = [*trials]
    wanted = {"trial": names, "reached": [trials[name] for name in names]}

    def column(metric: str) -> pd.Series:
        return data.evaluations.select(_SQL, wanted, metric).set_index(["row", "step"])["value"]

    columns = [column(metric) for metric in RECORDED]
    sums = pd.concat(columns, axis=1, join="inner", keys=["steps", "gradient", "variance"])
    rows = sums - sums.groupby(level="row").shift(fill_value=0.0)
    rows["improved"] = 0.0
    if target is not None:
        change = column(target.metric).groupby(level="row").diff()
        falls = -change if target.lower_is_better else change
        rows["improved"] = falls.reindex(rows.index).fillna(0.0)
    rows = rows.reset_index()
    rows["trial"] = [names[row] for row in rows.pop("row")]
    rows["share"] = rows["step"] / rows["trial"].map(trials)
    return rows


def by_curve(data: FigureData) -> list[tuple[Curve, Regimes | None, list[Trajectory]]]:
    """Each curve with such trajectories, its regimes, and the trajectories by batch size.

    Raises:
        ResultsError: as ``trajectories``.
    """
    every = trajectories(data)
    of_curves = [(c, fit, [w for w in every if w.curve is c]) for c, fit in data.pairs]
    return [each for each in of_curves if each[2]]


def _answer(part: NoiseEstimate) -> dict[str, Any]:
    numbers = {"value": part.noise_scale, "low": part.low, "high": part.high}
    return {**numbers, "measured_steps": part.steps, "notes": list(part.notes)}


def _estimate(rows: pd.DataFrame, tokens: int | None) -> NoiseEstimate | None:
    measured = rows.loc[rows["steps"] > 0, ["steps", "gradient", "variance"]]
    if measured.empty or not np.isfinite(measured.to_numpy()).all():
        return None
    given: list[Row] = [(int(n), g, v) for n, g, v in measured.itertuples(index=False)]
    return estimate(given, tokens_per_example=tokens)
