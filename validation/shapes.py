"""Do the intervals cover, whatever the curve and its noise, and is a level end claimed falsely?

A cell is a true shape (``true_shapes``), a noise and a design. Its curves go the path of measured
ones: points with their runs, what is known of their variance, the convex fit. The truth is that of
the tested range.
"""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.fit.convex import Array
from analysis.fit.fitted_points import RATIO, UNKNOWN_DIMENSIONS, fitted_points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located, locate
from validation.exact import LogSteps, Truth, truth
from validation.harness import LEVEL, TOLERANCE, Counts, groups, tally
from validation.page import share, table
from validation.true_shapes import PENALIZED, RISING, SHAPES

HOLDS = 85
"""Least coverage in per cent."""
TWICE = 2 * TOLERANCE
"""Change of an end, as a share, above which it is a false claim that the end is level."""
CLEAN = "knee of bend 1", "5 %", "twelve"
"""The cell whose width is the price that is said."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of log steps."""

    small: float
    """Its standard deviation at the smallest batch size, and at the largest; between them its
    logarithm is straight in log B."""
    large: float
    repeats: int = 1
    correlation: float = 0.0
    """Of neighbouring batch sizes: an autoregression of order 1."""
    freedom: float = math.inf
    """Degrees of freedom of Student's t."""
    known: bool = False
    """Whether a single run comes with its variance, as the best of a search does."""
    whole: int | None = None
    """Steps are whole, the fewest of a curve this many to one more."""


def equal(deviation: float, **fields: float) -> Noise:
    return Noise(small=deviation, large=deviation, **fields)  # type: ignore[arg-type]


NOISES: Mapping[str, Noise] = {
    "1 %": equal(0.01),
    "2 %": equal(0.02),
    "5 %": equal(0.05),
    "10 %": equal(0.10),
    "20 %": equal(0.20),
    "5 %, repeats": equal(0.05, repeats=3),
    "10 %, repeats": equal(0.10, repeats=3),
    "20 to 3 %": Noise(small=0.20, large=0.03),
    "20 to 3 %, repeats": Noise(small=0.20, large=0.03, repeats=3),
    "neighbours": equal(0.05, correlation=0.7),
    "neighbours, known": equal(0.05, correlation=0.7, known=True),
    "heavy tails": equal(0.05, freedom=3.0),
    "20 steps": equal(0.02, whole=20),
    "12 steps": equal(0.02, whole=12),
    "6 steps": equal(0.02, whole=6),
}
DESIGNS: Mapping[str, tuple[int, ...]] = {
    "twelve": tuple(2**i for i in range(12)),
    "eight": tuple(2**i for i in range(8)),
    "four": tuple(4**i for i in range(4)),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Curves of one shape, noise and design."""

    shape: str
    noise: str
    design: str

    @property
    def x(self) -> Array:
        return np.log(np.array(DESIGNS[self.design], dtype=np.float64))

    @property
    def steps(self) -> LogSteps:
        x = self.x
        return SHAPES[self.shape]((float(x[0]), float(x[-1])))


def key(cell: Cell) -> Counts:
    return {"shape": cell.shape, "noise": cell.noise, "design": cell.design}


def seed(cell: Cell) -> list[int]:
    """It depends on the cell's name alone."""
    return [zlib.crc32(f"{cell.shape}/{cell.noise}/{cell.design}".encode())]


def true(cell: Cell) -> Truth:
    """What is true of the curves of ``cell``, but for the scale of steps where those are whole."""
    x = cell.x
    return truth(cell.steps, float(x[0]), float(x[-1]), TOLERANCE)


def simulate(
    cell: Cell, of_cell: Truth, rng: np.random.Generator, curves: int
) -> list[tuple[Curve, dict[str, float]]]:
    """Measured curves, and the true quantities of each in natural logs."""
    noise, x = NOISES[cell.noise], cell.x
    logs, above = cell.steps(x), np.zeros(curves)
    if noise.whole is not None:
        least = of_cell.quantities["min_steps"]
        above = np.log(noise.whole + rng.random(curves)) - least
    along = (x - x[0]) / (x[-1] - x[0])
    deviation = np.exp((1 - along) * np.log(noise.small) + along * np.log(noise.large))
    errors = deviation * _errors(noise, rng, (curves, noise.repeats, len(x)))
    steps = np.exp(logs + above[:, None, None] + errors)
    if noise.whole is not None:
        # The target is passed anywhere in the last step with equal probability.
        steps = np.maximum(np.ceil(steps - 0.5), 1.0)
    scaled = ("min_steps", "min_examples")
    return [
        (
            _curve(DESIGNS[cell.design], noise, each),
            {n: q + (up if n in scaled else 0.0) for n, q in of_cell.quantities.items()},
        )
        for each, up in zip(steps, above.tolist(), strict=True)
    ]


def _errors(noise: Noise, rng: np.random.Generator, shape: tuple[int, int, int]) -> Array:
    """Of standard deviation 1."""
    if math.isfinite(noise.freedom):
        scale = math.sqrt(noise.freedom / (noise.freedom - 2))
        return np.asarray(rng.standard_t(noise.freedom, shape) / scale)
    errors = rng.normal(size=shape)
    fresh = math.sqrt(1 - noise.correlation**2)
    for i in range(1, shape[2] if noise.correlation else 0):
        errors[..., i] = noise.correlation * errors[..., i - 1] + fresh * errors[..., i]
    return errors


def _curve(sizes: Sequence[int], noise: Noise, steps: Array) -> Curve:
    """The curve of runs with ``steps`` (m, n)."""
    points = []
    for size, runs in zip(sizes, steps.T.tolist(), strict=True):
        fields: dict[str, object] = {"middles": tuple(runs), "trials": len(runs)}
        if noise.repeats > 1:
            fields["runs"] = tuple(runs)
        if noise.known:
            over = noise.small * math.sqrt(RATIO[UNKNOWN_DIMENSIONS])
            fields |= {"minimum": runs[0], "fourth": runs[0] * math.exp(over)}
        if noise.whole is not None:
            fields |= {"minimum": runs[0], "last_miss": runs[0] - 1}
        points.append(Point(batch_size=size, steps=statistics.median(runs), **fields))  # type: ignore[arg-type]
    return Curve(group={}, label="", target=None, points=tuple(points), trials=1)


def located(curve: Curve) -> Located:
    """Of a curve, as measured ones are."""
    return locate(fitted_points(curve), tolerance=TOLERANCE)


def count(cell: Cell, located: Sequence[Located], truths: Sequence[Mapping[str, float]]) -> Counts:
    """What covers, and which ends are said to be level."""
    of_cell, counts = true(cell), tally(located, truths)
    ends = np.array([each.ends("critical_batch_size", LEVEL)[1:] for each in located])
    widths = ends[:, 1] - ends[:, 0]
    known = widths[np.isfinite(widths)]
    return {
        "curves": len(located),
        **{f"covered:{name}": counts[f"covered:{name}"] for name in QUANTITIES},
        "bounded": counts["open:critical_batch_size"],
        "price": round(float(np.exp(np.median(known))), 3) if len(known) else None,
        "small_change": round(math.expm1(of_cell.small_change), 4),
        "small_level": sum(each.small_level for each in located),
        "large_change": round(math.expm1(of_cell.large_change), 4),
        "large_level": sum(each.large_level for each in located),
        "penalty": sum(each.penalty is not None for each in located),
        "rise": sum(each.rise is not None for each in located),
    }


def failures(row: Mapping[Any, Any]) -> dict[str, float]:
    """The quantities whose intervals cover less than ``HOLDS`` per cent in a cell, with that."""
    each = {name: 100 * row[f"covered:{name}"] / row["curves"] for name in QUANTITIES}
    return {name: covered for name, covered in each.items() if covered < HOLDS}


def claims(frame: pd.DataFrame, least: float, most: float = math.inf) -> tuple[int, int]:
    """Over the ends of curves that truly change by more than ``least`` and at most ``most``: how
    many are said to be level, and how many there are."""
    level = there = 0
    for end in ("small", "large"):
        rows = frame[(frame[f"{end}_change"] > least) & (frame[f"{end}_change"] <= most)]
        level += int(rows[f"{end}_level"].sum())
        there += int(rows["curves"].sum())
    return level, there


BY = ["noise", "design"]


def tables(frame: pd.DataFrame) -> dict[str, str]:
    """A row a noise; flags at twelve doublings."""
    failing = [row for row in frame.to_dict("records") if failures(row)]
    clean = frame[(frame[["shape", *BY]] == list(CLEAN)).all(axis=1)]
    said = (
        f"{len(frame) - len(failing)} of {len(frame)} cells hold. Of the ends that change by more "
        f"than {TWICE:.0%} {share(*claims(frame, TWICE))} % are said to be level. The price: on a "
        "clean knee, twelve doublings at 5 %, the critical batch size has high / low = "
        f"{clean['price'].iloc[0]:.2f} (median)."
    )
    return {"shapes": f"{_cells(frame)}\n{said}", "flags": _flags(frame)}


def _cells(frame: pd.DataFrame) -> str:
    """A row a noise; each cell has a number for each design."""
    rows: dict[str, list[list[str]]] = {}
    for (noise, _), group, total in groups(frame, BY):
        records = group.to_dict("records")
        least = min(
            row[f"covered:{name}"] / row["curves"] for row in records for name in QUANTITIES
        )
        known = group[2 * group["bounded"] <= group["curves"]]["price"]
        numbers = [
            f"{sum(not failures(row) for row in records)}",
            f"{100 * least:.0f}",
            share(*claims(group, TWICE)),
            share(*claims(group, TOLERANCE, TWICE)),
            share(total["bounded"], total["curves"]),
            f"{known.median():.2f}" if len(known) else "–",
        ]
        rows.setdefault(noise, []).append(numbers)
    head = ["noise", "cells that hold", "least coverage", f"level, above {TWICE:.0%}"]
    head += [f"level, {TOLERANCE:.0%} to {TWICE:.0%}", "bounded", "high / low"]
    listed = ((noise, *map(", ".join, zip(*of, strict=True))) for noise, of in rows.items())
    return table(head, listed)


def _flags(frame: pd.DataFrame) -> str:
    rows = []
    for noise, group in frame[frame["design"] == "twelve"].groupby("noise", sort=False):
        cells = [noise]
        for flag, with_it in (("penalty", PENALIZED), ("rise", RISING)):
            parts = [group[~group["shape"].isin(with_it)]]
            parts += [group[group["shape"] == shape] for shape in with_it]
            cells += [share(part[flag].sum(), part["curves"].sum()) for part in parts]
        rows.append(cells)
    head = ["noise", "penalty, of the others", *(f"penalty, of a {name}" for name in PENALIZED)]
    return table([*head, "rise, of the others", *(f"rise, of {name}" for name in RISING)], rows)
