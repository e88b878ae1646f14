"""The three regimes of one curve, located with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit import definitions
from analysis.fit.estimate import BENT_FROM, Fitted
from analysis.fit.forms import Form, forms, sentence
from analysis.fit.interval import Interval
from analysis.fit.knee import (
    BATCH,
    BEND,
    BY_EXAMPLES,
    GROWS,
    QUANTITIES,
    SLOPE,
    STEPS,
    log_steps,
    sharp,
)
from analysis.fit.located import LACK_OF_FIT, Located, Points, located, slope
from analysis.formatting import interval as text_of
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError
from results.targets.target import Target

FEW_BEYOND = 2
"""Points beyond a sharp knee up to which a note says how few they are. Simulated with one search
three noise deviations above the plateau, intervals at 90 % held the least steps in 41 and 64 % of
the curves with one and two points there, in about 75 % with three or four
(tests/analysis/test_sharp.py)."""


class TooFewBatchSizesError(ResultsError):
    """A curve needs three distinct batch sizes at which the target was reached."""


@dataclass(frozen=True, kw_only=True)
class Regimes:
    """Where perfect scaling ends and maximal data parallelism begins, with the fit behind them."""

    group: Mapping[str, Any]
    label: str
    perfect_scaling_until: Interval
    maximal_parallelism_from: Interval
    critical_batch_size: Interval
    min_steps: Interval
    min_examples: Interval
    level: float
    tolerance: float
    batch_sizes: tuple[int, ...]
    trials: int
    target: Target | None
    example_unit: str
    """The unit of a batch size: ``image``, ``sequence``."""
    censored: tuple[int, ...]
    left_out: tuple[int, ...]
    """Batch sizes whose points rise off the plateau and are not in the fit."""
    estimator: str
    """The estimator of a batch size; ``run`` if every run is a separate point."""
    points: tuple[Mapping[str, Any], ...]
    """The fitted points and their columns, a row a batch size: ``Curve.tabulate``."""
    best: Mapping[str, Any]
    """The fitted form: ``form`` (a label), ``k``, ``a``, ``min_steps``, ``critical_batch_size``,
    ``noise`` (standard deviation of log steps), ``points``."""
    forms: tuple[Form, ...]
    """Every form that was fitted, the best by its criterion first (``analysis.fit.forms``)."""
    notes: tuple[str, ...]
    definition: str | None = None
    """The definition of ``defined``, a critical batch size: ``definitions``."""
    defined: Interval | None = None
    grows: bool = False  # as Curve.grows
    best_batch_size: Interval | None = None
    """The batch size of fewest examples, where examples rise again at small batch sizes
    (``analysis.fit.penalty``): perfect scaling is then measured from it. None where they do not."""
    small_batch_penalty: float | None = None
    """Then: fitted examples at the smallest batch size over the fewest."""
    fitted: Fitted | None = field(default=None, compare=False, repr=False)
    """The curve as it was fitted, one row: from it follow intervals of other levels."""

    @property
    def fitted_over(self) -> tuple[int, int]:
        """The least and the largest batch size at which the target was reached."""
        hit = set(self.batch_sizes) - set(self.censored)
        return min(hit), max(hit)

    def steps(self, batch_sizes: Any) -> np.ndarray:
        """Fitted steps to target at ``batch_sizes`` (n,); (n,)."""
        best = self.best
        params = np.array([0.0, 0.0, np.log(best["k"]), best["a"]])
        params[STEPS] = np.log(best["min_steps"])
        params[BATCH] = np.log(best["critical_batch_size"])
        return np.exp(log_steps(np.log(np.asarray(batch_sizes, dtype=float)), params))

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it."""
        return {
            **self.group,
            **{name: getattr(self, name).to_dict() for name in QUANTITIES},
            **defined(self.definition, self.defined),
            "level": self.level,
            "tolerance": self.tolerance,
            "batch_sizes": list(self.batch_sizes),
            "trials": self.trials,
            "target": None if self.target is None else str(self.target),
            "example_unit": self.example_unit,
            "censored": list(self.censored),
            "estimator": self.estimator,
            "points": [dict(point) for point in self.points],
            "best": dict(self.best),
            "forms": [form.to_dict() for form in self.forms],
            **penalized(self.best_batch_size, self.small_batch_penalty),
            "notes": list(self.notes),
        }


def defined(definition: str | None, interval: Interval | None) -> dict[str, Any]:
    """A critical batch size by another's definition as ``to_dict`` has it; nothing without one."""
    if definition is None:
        return {}
    return {definitions.PREFIX + definition: (interval or Interval()).to_dict()}


def penalized(best: Interval | None, factor: float | None) -> dict[str, Any]:
    """A small-batch penalty as ``to_dict`` has it; nulls without one."""
    return {
        "best_batch_size": (best or Interval()).to_dict(),
        "small_batch_penalty": factor,
    }


def regimes(
    curve: Curve, *, tolerance: float = 0.2, level: float = 0.9, definition: str | None = None
) -> Regimes:
    """Locate the regimes of ``curve`` (see docs/regimes.md for the estimator).

    Args:
        curve: from ``analysis.curves``.
        tolerance: the overhead over perfect scaling, and over the least steps, that a regime
            allows; 0.2 is that of Zhang et al. 2024 (arXiv:2410.21676).
        level: coverage of the intervals.
        definition: also the critical batch size by another's definition, ``zhang2024`` or
            ``mccandlish2018`` (``analysis.fit.definitions``).

    Raises:
        TooFewBatchSizesError: fewer than three distinct batch sizes reached the target.
        ResultsError: a tolerance or a level that cannot be, or no such definition.
    """
    (answer,) = regimes_of([curve], tolerance=tolerance, level=level, definition=definition)
    if isinstance(answer, TooFewBatchSizesError):
        raise answer
    return answer


def regimes_of(
    curves: Sequence[Curve],
    *,
    tolerance: float = 0.2,
    level: float = 0.9,
    definition: str | None = None,
) -> list[Regimes | TooFewBatchSizesError]:
    """``regimes`` of each of many curves, sooner, or why it has none. The same to the last bit.

    Raises:
        ResultsError: as there.
    """
    if definition is not None:
        definitions.named(definition)  # raises
    if not (np.isfinite(tolerance) and 0 < tolerance <= 10):
        raise ResultsError(f"tolerance {tolerance:g} is not above 0 and at most 10", hint="try 0.2")
    if not 0 < level < 1:
        raise ResultsError(f"level {level:g} is not between 0 and 1", hint="try 0.9")
    points = [_logs(curve) for curve in curves]
    able = [
        (curve, logs)
        for curve, logs in zip(curves, points, strict=True)
        if not isinstance(logs, TooFewBatchSizesError)
    ]
    coarse = [None if curve.coarse is None else _logs(curve.coarse) for curve, _ in able]
    fits = iter(
        located(
            [logs for _, logs in able],
            [None if isinstance(each, TooFewBatchSizesError) else each for each in coarse],
            [curve.grows for curve, _ in able],
            tolerance=tolerance,
            level=level,
        )
    )
    return [
        logs
        if isinstance(logs, TooFewBatchSizesError)
        else _regimes(curve, next(fits), tolerance, level, definition)
        for curve, logs in zip(curves, points, strict=True)
    ]


def _regimes(
    curve: Curve, fit: Located, tolerance: float, level: float, definition: str | None
) -> Regimes:
    answer, lack, tested, penalized = fit.answer, fit.lack, fit.penalty, fit.penalized
    best = _best(answer.fitted, straight=fit.straight)
    logs = answer.value, answer.low, answer.high
    intervals = {name: Interval.of_logs(*(each[name][0] for each in logs)) for name in QUANTITIES}
    if curve.grows:
        intervals |= dict.fromkeys(BY_EXAMPLES, Interval())
    best_size, factor = None, None
    if penalized:
        until, best_size, critical = (
            Interval.of_logs(*(float(end[0]) for end in each))
            for each in (tested.until, tested.best, tested.critical)
        )
        intervals |= {"perfect_scaling_until": until, "critical_batch_size": critical}
        factor = float(tested.factor[0])
    compared = forms(answer.fitted.data, fits=fit.knees, level=level)
    notes = _notes(curve, answer.fitted, intervals, lack)
    if best_size is not None and factor is not None:
        notes = [_penalty_note(curve, answer.fitted, best_size, factor), *notes]
    elif answer.fitted.data.sloped[0]:
        notes.insert(0 if answer.fitted.data.bent[0] else 1, _slope_note(answer.fitted, level))
    if (form_note := sentence(compared)) is not None:
        notes.append(form_note)
    if curve.grows:
        notes.append(GROWS)
    notes += curve.notes
    if fit.thinned is not None:
        notes += _coarse_notes(fit.thinned, intervals)
    by_other = None
    if definition is not None and not curve.grows:  # both definitions count examples as B·S
        other = definitions.named(definition)
        sizes, steps = np.rint(np.exp(fit.points[0])), np.exp(fit.points[1])
        value, low, high = definitions.critical_batch_size(other, sizes, steps, level=level)
        by_other = Interval(value=value, low=low, high=high)
        notes += definitions.notes(other, sizes, best["form"])
    return Regimes(
        group=curve.group,
        label=curve.label,
        **intervals,
        level=level,
        tolerance=tolerance,
        batch_sizes=tuple(curve.batch_sizes),
        trials=curve.trials,
        target=curve.target,
        example_unit=curve.example_unit,
        censored=tuple(curve.censored),
        left_out=_left_out(answer.fitted),
        estimator=curve.named,
        points=tuple(curve.tabulate()),
        best=best,
        forms=compared,
        notes=tuple(notes),
        definition=definition,
        defined=by_other,
        grows=curve.grows,
        best_batch_size=best_size,
        small_batch_penalty=factor,
        fitted=answer.fitted,
    )


def too_few(batch_sizes: int) -> str:
    """Why a curve of fewer than three batch sizes that reached the target has no regimes."""
    sizes = ("no batch size", "one batch size", "two batch sizes")[batch_sizes]
    return f"{sizes} reached the target, and the regimes need three"


def _logs(curve: Curve) -> Points | TooFewBatchSizesError:
    """Log batch sizes and log steps of the curve."""
    sizes, steps = curve.to_fit()
    distinct = len(np.unique(sizes))
    if distinct < 3:
        where = f"{curve.label}: " if curve.label else ""
        return TooFewBatchSizesError(
            f"{where}{too_few(distinct)}",
            hint="add batch sizes, raise the budget, or take an easier --target",
        )
    return np.log(sizes), np.log(steps)


def _left_out(curve: Fitted) -> tuple[int, ...]:
    sizes = np.exp(curve.data.x[curve.left_out])
    return tuple(int(size) for size in np.unique(np.round(sizes)))


def _best(curve: Fitted, *, straight: bool) -> dict[str, Any]:
    data, params = curve.data, curve.params
    if data.sloped[0]:
        form = "knee with a slope of its own"
    elif not data.bent[0]:
        form = "knee of fixed bend"
    else:
        form = "McCandlish's knee" if straight else "bent knee"
    return {
        "form": form,
        "k": float(np.exp(params[0, BEND])),
        "a": float(params[0, SLOPE]),
        "min_steps": float(np.exp(params[0, STEPS])),
        "critical_batch_size": float(np.exp(params[0, BATCH])),
        "noise": float(curve.noise[0]),
        "points": int(data.points[0]),
    }


def _notes(
    curve: Curve,
    answer: Fitted,
    intervals: Mapping[str, Interval],
    lack: float | None,
) -> list[str]:
    """The notes that follow from the fit alone."""
    notes = []
    data, params = answer.data, answer.params
    if not data.bent[0]:
        few = len(np.unique(data.x[data.weight > 0]))
        notes.append(
            f"k is fixed at 1: {count(few, 'distinct batch size', 'do')} not show the bend of the "
            f"knee (that takes {BENT_FROM}), and the intervals hold only if it is 1"
        )
    if (
        not data.sloped[0]
        and intervals["critical_batch_size"].value is not None
        and (sharp(float(np.exp(params[0, BEND])), data.tolerance))
    ):
        notes.append("sharp knee: no diminishing-returns region at this tolerance")
    on_plateau = _few_beyond(answer, intervals)
    if on_plateau is not None:
        notes.append(on_plateau)
    if left_out := _left_out(answer):
        sizes = ", ".join(map(str, left_out))
        notes.append(f"steps rise off the plateau at {sizes}: left out of the fit")
    if curve.relative:
        notes.append("points below one step: min_steps is in a unit of the source's, not in steps")
    if any(len(point.runs) > 1 for point in curve.points):
        notes.append("every run is a point of its own: nothing is minimized over")
    perfect = intervals["perfect_scaling_until"]
    if (perfect.value, perfect.low) == (None, None) and not (data.sloped[0] or curve.grows):
        notes.append("the smallest batch size is beyond perfect scaling already, or may be")
    if lack is not None and lack < LACK_OF_FIT:
        notes.append(
            "the knee does not fit: batch sizes scatter about it more than runs do "
            f"(p = {lack:.2g}), so that the mean of a batch size's runs is one point"
        )
    return notes


def _slope_note(answer: Fitted, level: float) -> str:
    low, high = slope(answer, level)
    return (
        f"no perfect scaling at small batches: steps fall as B^-{answer.params[0, SLOPE]:.2f} "
        f"[{low:.2f}, {high:.2f}]"
    )


def _penalty_note(curve: Curve, answer: Fitted, best: Interval, factor: float) -> str:
    first = float(np.exp(answer.data.tested.first[0]))
    return (
        f"a small-batch penalty: batch size {first:,.4g} needs {factor:.2f} times the fewest "
        f"{units([curve.example_unit])}, which batch size {text_of(*best.ends)} needs; perfect "
        "scaling is measured from there"
    )


def _few_beyond(answer: Fitted, intervals: Mapping[str, Interval]) -> str | None:
    """A note where the plateau of a sharp knee rests on one or two points alone."""
    data, params = answer.data, answer.params
    if data.sloped[0] or not sharp(float(np.exp(params[0, BEND])), data.tolerance):
        return None
    beyond = data.x[(data.weight > 0) & (data.x > params[0, BATCH])]
    known = (
        intervals["min_steps"].value is not None or intervals["maximal_parallelism_from"].reached
    )
    if not known or not 1 <= len(beyond) <= FEW_BEYOND:
        return None
    sizes = len(np.unique(beyond))
    lie = count(sizes, "batch size", "lie")
    it = "it" if sizes == 1 else "them"
    return f"sharp knee: only {lie} beyond it; maximal parallelism and min_steps rest on {it}"


def _coarse_notes(thinned: Fitted, intervals: Mapping[str, Interval]) -> list[str]:
    values = {name: float(np.exp(thinned.value(name)[0])) for name in intervals}
    return [
        f"with every second evaluation dropped, {name} moves to {values[name]:.4g}, out of its "
        "interval"
        for name, interval in intervals.items()
        if interval.value is not None and not interval.holds(values[name])
    ]
