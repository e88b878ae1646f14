"""Laws across curves: a critical batch size as a power of model size, data size or target.

    log q_i = log c + p log x_i + u_i + e_i

q_i is the quantity of curve i, e_i its error, normal with the standard deviation s_i that its
interval has as a normal one, and u_i normal of unknown deviation t: how far curves lie from the law
beyond what their intervals explain: a random-effects meta-regression (``random_effects``). With few
curves its intervals are wide: three do not show whether a law holds.

A law is of quantities at infinity, while those of the regimes belong to the tested range, which
would bend it: steps, examples and critical batch sizes are the knee's asymptotes, of curves whose
ends are level, with the relative width of the regimes' intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.groups import ALGORITHM
from analysis.fit.convex import Array
from analysis.fit.interval import QUANTITIES, Interval
from analysis.fit.random_effects import solve
from analysis.fit.regimes import Regimes
from analysis.formatting import interval as text_of
from analysis.notes import Note
from results.counts import count
from results.errors import ResultsError, nearest

LEAST = 3
"""Distinct sizes that a law needs."""

UNITS = {"k": 1e3, "m": 1e6, "b": 1e9}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmb])$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Law:
    """``quantity`` = coefficient · ``against`` ^ exponent, over the curves of one algorithm."""

    quantity: str
    against: str
    group: Mapping[str, Any]
    """Values that its curves share and other laws of the same call do not."""
    exponent: Interval
    coefficient: Interval
    """The value at size 1, which is mostly far outside the sizes."""
    scatter: float
    """t: standard deviation of log q about the law beyond the errors of the curves."""
    sizes: tuple[float, ...]
    notes: tuple[Note, ...] = ()

    @property
    def sentence(self) -> str:
        """``critical batch size = 93 [52, 170] · model^0.47 [0.36, 0.58], of 3 curves``."""
        whose = ", ".join(str(value) for value in self.group.values())
        name = self.quantity.replace("_", " ") + (f" of {whose}" if whose else "")
        if self.exponent.value is None:
            return f"{name} against {self.against}: no law"
        return (
            f"{name} = {parameter_text(self.coefficient, '.2g')} · {self.against}^"
            f"{parameter_text(self.exponent, '.2f')}, of {count(len(self.sizes), 'curve')}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``regimes --json`` prints it under ``law``."""
        return {
            "quantity": self.quantity,
            "against": self.against,
            **self.group,
            "exponent": self.exponent.to_dict(),
            "coefficient": self.coefficient.to_dict(),
            "scatter": self.scatter,
            "sizes": list(self.sizes),
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Line:
    """A weighted line: estimates, half widths of their intervals, standard error, and t."""

    intercept: float
    slope: float
    intercept_by: float
    slope_by: float
    slope_error: float
    scatter: float


def line(x: Array, y: Array, deviation: Array, *, level: float = 0.9) -> Line:
    """The random-effects line through at least three points (n,), see above."""
    made = solve(np.stack([np.ones_like(x), x], 1), y, deviation, level=level)
    (intercept, slope), (intercept_by, slope_by) = map(float, made.values), map(float, made.by)
    return Line(
        intercept=intercept,
        slope=slope,
        intercept_by=intercept_by,
        slope_by=slope_by,
        slope_error=float(made.errors[1]),
        scatter=made.scatter,
    )


def laws(
    curves: Sequence[Curve],
    regimes: Sequence[Regimes | None],
    against: str,
    *,
    quantity: str = "critical_batch_size",
    sizes: Mapping[str, float] | None = None,
    level: float = 0.9,
) -> list[tuple[Law, tuple[int, ...]]]:
    """A law for each training algorithm, and the places of its curves.

    Args:
        curves, regimes: and their regimes; where one has a ``definition``, its critical batch
            size by that.
        against: a column of the curves' groups (a field as ``width`` or ``fields.width``), or
            ``target``. Names that end in a number with k, m or b, as ``transformer_85m``, are that
            number.
        quantity: one of the five, a key of ``regimes --json``.
        sizes: the number that each value of the column stands for, instead.

    Columns that take several values at one size divide the curves into several laws, as do those
    of the training algorithm; those that change along with the size do not, and a note names them.

    Raises:
        ResultsError: no such column or quantity, a value that is no number above 0, or nowhere
            three sizes whose curves have a value with both ends.
    """
    if quantity not in QUANTITIES:
        raise ResultsError(
            f"there is no quantity {quantity!r}", hint=f"known: {', '.join(QUANTITIES)}"
        )
    name = _column(curves, against)
    at = [_size(curve, name, sizes) for curve in curves]
    fitted = [
        (_law(curves, regimes, at, rows, against, quantity, group, along, level), rows)
        for rows, group, along in _groups(curves, name, at)
    ]
    if all(law.exponent.value is None for law, _ in fitted):
        (law, _), *_ = fitted
        raise ResultsError(
            f"no law of {quantity} against {against}: {law.notes[-1]}",
            hint="add sizes, or batch sizes on both sides of the knee",
        )
    return fitted


def _law(
    curves: Sequence[Curve],
    regimes: Sequence[Regimes | None],
    at: Sequence[float],
    rows: tuple[int, ...],
    against: str,
    quantity: str,
    group: Mapping[str, Any],
    along: Sequence[str],
    level: float,
) -> Law:
    intervals = {row: _interval(regimes[row], quantity) for row in rows}
    intervals = {row: interval for row, interval in intervals.items() if interval is not None}
    used = [*intervals]
    left_out = [curves[row].label for row in rows if row not in used]
    notes = []
    if along:
        notes.append(Note("along", names=", ".join(along), against=against))
    if left_out:
        notes.append(Note("law_leaves_out", labels=", ".join(left_out)))
    exponent, coefficient, scatter = Interval(), Interval(), 0.0
    distinct = len({at[row] for row in used})
    if distinct < LEAST:
        notes.append(Note("few_sizes", needed=LEAST, quantity=quantity, n=distinct))
    else:
        from scipy.special import ndtri  # a third of a second to import: not at start

        normal = float(ndtri(0.5 + level / 2))
        levels = np.array([each.level for row in used if (each := regimes[row]) is not None])
        numbers = [[each.value, each.low, each.high] for each in intervals.values() if each]
        ends = np.log(np.array(numbers, dtype=np.float64))
        width = (ends[:, 2] - ends[:, 1]) / (2 * ndtri(0.5 + levels / 2))
        fitted = line(np.log([at[row] for row in used]), ends[:, 0], width, level=level)
        p, p_by, c, c_by = fitted.slope, fitted.slope_by, fitted.intercept, fitted.intercept_by
        exponent = Interval(value=p, low=p - p_by, high=p + p_by)
        coefficient = Interval.of_logs(c, c - c_by, c + c_by)
        scatter = fitted.scatter
        if scatter > 0:
            notes.append(Note("off_law", off=float(np.expm1(scatter))))
        else:
            by = normal * fitted.slope_error
            notes.append(Note("on_law", exponent=p, low=p - by, high=p + by))
    definitions = [each.definition for row in rows if (each := regimes[row]) is not None]
    if quantity == "critical_batch_size" and definitions and definitions[0]:
        quantity = f"{quantity}_{definitions[0]}"
    return Law(
        quantity=quantity,
        against=against,
        group=group,
        exponent=exponent,
        coefficient=coefficient,
        scatter=scatter,
        sizes=tuple(at[row] for row in used),
        notes=tuple(notes),
    )


def _interval(regime: Regimes | None, quantity: str) -> Interval | None:
    """The interval of a quantity if it has a value and both ends."""
    if regime is None:
        return None
    interval: Interval = getattr(regime, quantity)
    if quantity == "critical_batch_size" and regime.defined is not None:
        interval = regime.defined
    elif interval.value is not None and not regime.knee.sloped:
        off = regime.knee.asymptotes().get(quantity, interval.value) / interval.value
        value, low, high = (None if end is None else end * off for end in interval.ends)
        interval = Interval(value=value, low=low, high=high)
    return interval if interval.reached and interval.value is not None else None


def _column(curves: Sequence[Curve], against: str) -> str:
    names = dict.fromkeys(name for curve in curves for name in curve.group)
    columns = {name.removeprefix("fields."): name for name in (*names, "target")}
    short = against.removeprefix("fields.")
    if short in columns:
        return columns[short]
    raise ResultsError(
        f"no column {against!r} distinguishes these curves",
        hint=nearest(
            short,
            columns,
            f"columns: {', '.join(columns)}; of others --by makes curves of each value",
        ),
    )


def _size(curve: Curve, name: str, sizes: Mapping[str, float] | None) -> float:
    value = curve.group.get(name)
    if name == "target" and curve.target is not None:
        value = curve.target.value
    number = _number(value) if sizes is None else sizes.get(str(value))
    if number is None or not (np.isfinite(number) and number > 0):
        raise ResultsError(
            f"{name} of {curve.label or 'a curve'} is {value!r}, not a size: a number above 0",
            hint="a number, or a name that ends in one with k, m or b: transformer_85m"
            if sizes is None
            else f"sizes has {', '.join(map(str, sizes))}",
        )
    return float(number)


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _SIZE.search(str(value))
    return float(match[1]) * UNITS[match[2].lower()] if match else None


def _groups(
    curves: Sequence[Curve], name: str, at: Sequence[float]
) -> Iterator[tuple[tuple[int, ...], dict[str, Any], list[str]]]:
    """Rows of each law, the columns that distinguish it from the others, and those that change
    along with its size."""
    table = [{**curve.group, "target": str(curve.target)} for curve in curves]
    names = [n for n in dict.fromkeys(n for row in table for n in row) if n != name]

    def varies(column: str, rows: Sequence[int]) -> bool:
        return len({str(table[row].get(column)) for row in rows}) > 1

    def splits_curves(column: str) -> bool:
        pairs = {(size, str(row.get(column))) for size, row in zip(at, table, strict=True)}
        several = column in ALGORITHM or len(pairs) > len(set(at))
        return several and varies(column, range(len(curves)))

    splits = [n for n in names if splits_curves(n)]
    keys = [tuple(str(row.get(n)) for n in splits) for row in table]
    for key in dict.fromkeys(keys):
        rows = tuple(i for i, each in enumerate(keys) if each == key)
        group = {n: table[rows[0]].get(n) for n in splits}
        yield rows, group, [n for n in names if n not in splits and varies(n, rows)]


def parameter_text(interval: Interval, form: str) -> str:
    """An exponent or a coefficient with its interval, its numbers in this form."""
    return text_of(*interval.ends, number=lambda end: f"{float(f'{end:{form}}'):,g}")
