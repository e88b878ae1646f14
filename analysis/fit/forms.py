"""Which form a curve has: several are fitted, and compared by the small-sample Akaike criterion.

Intervals never rest on the choice: they come from the widest knee (``analysis.fit.estimate``). The
comparison describes a curve's form, and says whether a form that is not a knee fits it better: a
knee is symmetric (perfect scaling's end times maximal parallelism's onset is B_crit²), so that the
shape of the plateau pulls at the perfect-scaling end; a line of three segments is not.

Two things are never stated, since the fit itself would contradict them. Without the knee that the
fit uses there is no ranking: AICc is not defined for a form of p parameters at fewer than p + 3
points. And a line that knees come arbitrarily close to (perfect scaling alone, a plateau alone) is
not better than a knee where the intervals of the fit do not hold it: at six points the criterion's
penalty for a bend outweighs any knee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.fit.knee import BATCH, BEND, SLOPE, STEPS, Array
from analysis.fit.least_squares import Data, fit, limit

PERFECT, PLATEAU, SEGMENTS = "perfect scaling alone", "plateau alone", "three segments"
SINGLE, BENT, SLOPED = "McCandlish's knee", "bent knee", "bent knee with a slope of its own"

WORST = 0.3
"""Scatter about a form, a standard deviation of log steps, beyond which it does not fit. The
intervals are checked for noise up to 0.2; a published minimum of a hundred trials wobbles by 0.25
at most (Shallue et al. 2019's plateaus)."""

SURE = 0.5
"""Akaike weight from which another form than a knee is worth a note."""

KNEES = ((SINGLE, False, False), (BENT, True, False), (SLOPED, True, True))
"""The forms that are knees, and whether k and a are free in each."""
Knees = tuple[tuple[Array, float] | None, ...]
"""Of each of ``KNEES`` its best parameters (4,) and sum of squares; None where a curve has no more
points than it has parameters."""

_CELLS = 24
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form, fitted to one curve."""

    name: str
    parameters: int
    noise: float
    """Standard deviation of log steps about it; NaN without a degree of freedom."""
    criterion: float
    """AICc, up to a constant that all forms of a curve share; infinite where the curve has
    too few points."""
    weight: float = float("nan")
    """Akaike weight among the forms of the curve (Burnham & Anderson 2002, §2.9); NaN where the
    criterion does not rank it."""
    excluded: bool = False
    """Whether it is a line outside the intervals of the fitted knee."""
    tested: bool = True
    """Whether its ``noise`` says how well it fits: of a form with more parameters than the fitted
    knee only where the points are enough for its criterion."""
    where: Mapping[str, float]
    """Its parameters: ``min_steps``, ``critical_batch_size``, ``k``, ``a``; of three segments
    ``perfect_scaling_until``, ``maximal_parallelism_from`` and the ``slope`` between."""

    @property
    def fits(self) -> bool:
        return bool(self.noise <= WORST)

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it: plain values, None where there is none."""
        numbers = {name: getattr(self, name) for name in ("noise", "criterion", "weight")}
        plain = {name: value if np.isfinite(value) else None for name, value in numbers.items()}
        return {
            "form": self.name,
            "parameters": self.parameters,
            **plain,
            "excluded": self.excluded,
            **self.where,
        }


def sentence(compared: Sequence[Form]) -> str | None:
    """A note on a curve's forms, best first; None where the best is a knee, or not surely anything
    else."""
    tested = [form for form in compared if form.tested and np.isfinite(form.noise)]
    if tested and not any(form.fits for form in tested):
        nearest = min(tested, key=lambda form: form.noise)
        scatter = f"{nearest.noise:.0%} about the nearest, {nearest.name}"
        return f"no form fits: the points scatter by {scatter}"
    best = compared[0]
    if best.name in (SINGLE, BENT, SLOPED) or best.excluded or not best.weight >= SURE:
        return None
    better = f"better than a knee (weight {best.weight:.2f})"
    if best.name != SEGMENTS:
        return f"{best.name} fits {better}"
    first, last = best.where["perfect_scaling_until"], best.where["maximal_parallelism_from"]
    slope = best.where["slope"]
    meet = f"they meet at {first:,.0f} and {last:,.0f}, with slope -{slope:.2f} between"
    return f"{best.name} fit {better}: {meet}"


def forms(data: Data, *, fits: Knees | None = None, level: float = 0.9) -> tuple[Form, ...]:
    """The forms of one curve (a ``Data`` of one row, as it was fitted), best first; in no order
    where the points are too few for the criterion of the fitted knee.

    Noise is normal in log steps, of unknown size, which counts as a parameter:
    AICc = n log(SSE / n) + 2 p + 2 p (p + 1) / (n - p - 1) (Hurvich & Tsai 1989).

    Args:
        fits: those of its knees (``knee_fits``), where there are some already.
        level: coverage of the fit's intervals (``analysis.fit.least_squares.limit``).
    """
    used = data.weight[0] > 0
    x, y = data.x[0][used], data.y[0][used]
    knees = [
        _knee(data, *kind, each)
        for kind, each in zip(KNEES, fits or knee_fits(data)[0], strict=True)
    ]
    fitted = knees[int(data.bent[0]) + int(data.sloped[0])]
    lines = [_line(PERFECT, "min_examples", x + y), _line(PLATEAU, "min_steps", y)]
    spare = data.points - data.parameters
    if spare[0] >= 1:  # whether the intervals about the fitted knee exclude a line
        top = limit(data, np.array([fitted.noise**2]) * spare, level)
        lines = [
            replace(
                line,
                excluded=bool((line.noise**2 * (data.points - line.parameters) > top)[0]),
            )
            for line in lines
        ]
    # Repeated runs at one batch size do not show a form: it needs more batch sizes than parameters.
    distinct = len(np.unique(x))
    compared = [
        form if form.parameters < distinct else replace(form, criterion=np.inf)
        for form in (*lines, _segments(x, y), *knees)
    ]
    compared = [
        replace(form, tested=form.parameters <= fitted.parameters or np.isfinite(form.criterion))
        for form in compared
    ]
    criteria = {form.name: form.criterion for form in compared}
    if not np.isfinite(criteria[fitted.name]):
        return tuple(compared)
    least = min(criteria.values())
    shares = {name: float(np.exp(-0.5 * (value - least))) for name, value in criteria.items()}
    total = sum(shares.values())
    ranked = [
        replace(form, weight=shares[form.name] / total) if np.isfinite(form.criterion) else form
        for form in compared
    ]
    return tuple(sorted(ranked, key=lambda form: form.criterion))


def knee_fits(data: Data) -> list[Knees]:
    """The fits of each curve, one a row."""
    by_curve: list[list[tuple[Array, float] | None]] = [[] for _ in data.x]
    for _, bent, sloped in KNEES:
        for each in by_curve:
            each.append(None)
        rows = np.flatnonzero(data.points > 2 + bent + sloped)
        if len(rows):
            bends, slopes = np.full(len(rows), bent), np.full(len(rows), sloped)
            fits = fit(replace(data.take(rows), bent=bends, sloped=slopes))
            for row, params, sse in zip(rows, *fits, strict=True):
                by_curve[row][-1] = params, float(sse)
    return [tuple(each) for each in by_curve]


def _form(name: str, parameters: int, points: int, sse: float, where: Mapping[str, float]) -> Form:
    spare, counted = points - parameters, parameters + 1
    sse = max(sse, points * 1e-12)  # an exact curve
    enough = points - counted - 1 > 0
    penalty = 2 * counted * (1 + (counted + 1) / (points - counted - 1)) if enough else np.inf
    return Form(
        name=name,
        parameters=parameters,
        noise=float(np.sqrt(sse / spare)) if spare > 0 else float("nan"),
        criterion=float(points * np.log(sse / points) + penalty),
        where=where,
    )


def _line(name: str, quantity: str, logs: Array) -> Form:
    """The form on which ``logs`` are the same at every batch size: those of B·S under perfect
    scaling, those of S on a plateau."""
    mean = float(logs.mean())
    sse = float(np.square(logs - mean).sum())
    return _form(name, 1, len(logs), sse, {quantity: float(np.exp(mean))})


def _knee(
    data: Data, name: str, bent: bool, sloped: bool, fitted: tuple[Array, float] | None
) -> Form:
    points, parameters = int(data.points[0]), 2 + bent + sloped
    if fitted is None:
        return _form(name, parameters, points, np.inf, {})
    params, sse = fitted
    where = {
        "min_steps": float(np.exp(params[STEPS])),
        "critical_batch_size": float(np.exp(params[BATCH])),
        "k": float(np.exp(params[BEND])),
        "a": float(params[SLOPE]),
    }
    return _form(name, parameters, points, sse, where)


def _segments(x: Array, y: Array) -> Form:
    """Slope -1 up to one batch size, a slope between -1 and 0 up to another, then a plateau.

    For two given batch sizes the plateau and the slope between are linear least squares; the batch
    sizes are searched on a grid over the tested range, which is made narrower about its best.
    """
    low, high = np.array([x.min()] * 2), np.array([x.max()] * 2)
    best: tuple[float, float, float, float, float] | None = None
    for _ in range(_ROUNDS):
        ends = [np.linspace(a, b, _CELLS) for a, b in zip(low, high, strict=True)]
        first, last = (side.ravel() for side in np.meshgrid(*ends, indexing="ij"))
        ordered = first <= last
        first, last = first[ordered], last[ordered]
        offset = np.maximum(first[:, None] - x, 0.0)
        run = last[:, None] - np.clip(x, first[:, None], last[:, None])
        rest = y - offset
        # The least-squares slope, kept between 0 and 1.
        centred = run - run.mean(1, keepdims=True)
        spread = np.square(centred).sum(1)
        slope = (centred * rest).sum(1) / np.where(spread > 0, spread, 1.0)
        slope = np.clip(np.where(spread > 0, slope, 0.0), 0.0, 1.0)
        level = (rest - slope[:, None] * run).mean(1)
        sums = np.square(rest - slope[:, None] * run - level[:, None]).sum(1)
        at = int(sums.argmin())
        if best is None or sums[at] < best[0]:
            best = (sums[at], first[at], last[at], slope[at], level[at])
        step = (high - low) / (_CELLS - 1)
        centre = np.array([best[1], best[2]])
        low, high = np.maximum(centre - step, x.min()), np.minimum(centre + step, x.max())
    assert best is not None
    sse, until, onward, between, steps = best
    where = {
        "min_steps": float(np.exp(steps)),
        "perfect_scaling_until": float(np.exp(until)),
        "maximal_parallelism_from": float(np.exp(onward)),
        "slope": float(between),
    }
    return _form(SEGMENTS, 4, len(x), float(sse), where)
