"""Do the intervals cover, whatever the curve and its noise, and is a level end claimed falsely?

A cell is a true shape (``true_shapes``), a noise and a design. Its curves go the path of measured
ones: points with their runs, what is known of their variance, the convex fit. The truth is that of
the tested range.
"""

from __future__ import annotations

import itertools
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
from validation.page import SHORT, keep, paragraphs, share, table
from validation.tally import LEVEL, TOLERANCE, run, tally
from validation.true_shapes import PENALIZED, RISING, SHAPES

CURVES = 100
HOLDS = 85
"""Least coverage in per cent."""
TWICE = 2 * TOLERANCE
"""Change of an end, as a share, above which it is a false claim that the end is level."""
MOST_FALSE = 0.02
LISTED = 5
"""Cells of a noise and design that do not hold, up to which each is listed."""
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
    curves: int = CURVES

    @property
    def x(self) -> Array:
        return np.log(np.array(DESIGNS[self.design], dtype=np.float64))

    @property
    def steps(self) -> LogSteps:
        x = self.x
        return SHAPES[self.shape]((float(x[0]), float(x[-1])))


CELLS = tuple(
    Cell(shape=shape, noise=noise, design=design)
    for noise, design, shape in itertools.product(NOISES, DESIGNS, SHAPES)
)


def true(cell: Cell) -> Truth:
    """What is true of the curves of ``cell``, but for the scale of steps where those are whole."""
    x = cell.x
    return truth(cell.steps, float(x[0]), float(x[-1]), TOLERANCE)


def draw(cell: Cell) -> tuple[list[Curve], Array]:
    """Measured curves, and by how much the log steps of each truth are above ``cell.steps``, (R,).

    The seed depends on the cell's name alone.
    """
    noise, x = NOISES[cell.noise], cell.x
    name = f"{cell.shape}/{cell.noise}/{cell.design}"
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    logs, above = cell.steps(x), np.zeros(cell.curves)
    if noise.whole is not None:
        least = true(cell).quantities["min_steps"]
        above = np.log(noise.whole + rng.random(cell.curves)) - least
    along = (x - x[0]) / (x[-1] - x[0])
    deviation = np.exp((1 - along) * np.log(noise.small) + along * np.log(noise.large))
    errors = deviation * _errors(noise, rng, (cell.curves, noise.repeats, len(x)))
    steps = np.exp(logs + above[:, None, None] + errors)
    if noise.whole is not None:
        # The target is passed anywhere in the last step with equal probability.
        steps = np.maximum(np.ceil(steps - 0.5), 1.0)
    return [_curve(DESIGNS[cell.design], noise, each) for each in steps], above


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


def measured(cell: Cell) -> tuple[list[Located], list[dict[str, float]]]:
    """The located curves of ``cell``, and the true quantities of each in natural logs."""
    curves, above = draw(cell)
    quantities = true(cell).quantities
    scaled = ("min_steps", "min_examples")
    truths = [
        {name: value + (up if name in scaled else 0.0) for name, value in quantities.items()}
        for up in above.tolist()
    ]
    located = [locate(fitted_points(curve), tolerance=TOLERANCE) for curve in curves]
    return located, truths


def count(cell: Cell) -> dict[str, object]:
    """A row of counts."""
    return counted(cell, *measured(cell))


def counted(
    cell: Cell, located: Sequence[Located], truths: Sequence[Mapping[str, float]]
) -> dict[str, object]:
    """The row of the located curves of ``cell``."""
    of_cell, counts = true(cell), tally(located, truths)
    ends = np.array([each.ends("critical_batch_size", LEVEL)[1:] for each in located])
    widths = ends[:, 1] - ends[:, 0]
    known = widths[np.isfinite(widths)]
    return {
        **{name: getattr(cell, name) for name in ("shape", "noise", "design", "curves")},
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


def section(processes: int | None) -> str:
    return render(keep("shapes", run(count, CELLS, "shapes", processes)))


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


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    failing = [(row, failed) for row in frame.to_dict("records") if (failed := failures(row))]
    clean = frame[(frame[["shape", *BY]] == list(CLEAN)).all(axis=1)]
    held = len(frame) - len(failing)
    level, there = claims(frame, TWICE)
    return paragraphs(
        _INTRODUCTION,
        _cells(frame),
        f"{held} of {len(frame)} cells hold. Of the ends that change by more than {TWICE:.0%} "
        f"{share(level, there)} % are said to be level. The price: on a clean knee, twelve "
        "doublings at 5 %, the critical batch size has high / low = "
        f"{clean['price'].iloc[0]:.2f} (median).",
        "Cells that do not hold, with their coverage in per cent:",
        _failing(failing),
        _REASONS,
        _FLAGS,
        _flags(frame),
    )


def _cells(frame: pd.DataFrame) -> str:
    rows = []
    for (noise, design), group in frame.groupby(BY, sort=False):
        records = group.to_dict("records")
        least, shape, name = min(
            (row[f"covered:{name}"] / row["curves"], row["shape"], name)
            for row in records
            for name in QUANTITIES
        )
        known = group[2 * group["bounded"] <= group["curves"]]["price"]
        rows.append(
            [
                noise,
                design,
                f"{sum(not failures(row) for row in records)} of {len(group)}",
                f"{100 * least:.0f} ({SHORT[name]}, {shape})",
                share(*claims(group, TWICE)),
                share(*claims(group, TOLERANCE, TWICE)),
                share(group["bounded"].sum(), group["curves"].sum()),
                f"{known.median():.2f}" if len(known) else "–",
            ]
        )
    head = [*BY, "cells that hold", "least coverage", f"level, above {TWICE:.0%}"]
    head += [f"level, {TOLERANCE:.0%} to {TWICE:.0%}", "bounded", "high / low"]
    return table(head, rows)


def _failing(failing: Sequence[tuple[Mapping[Any, Any], Mapping[str, float]]]) -> str:
    """A line for each noise and design: its cells, or, of many, a summary by quantity."""
    by_row: dict[str, list[tuple[str, Mapping[str, float]]]] = {}
    for row, failed in failing:
        key = f"{row['noise']}, {row['design']}"
        by_row.setdefault(key, []).append((row["shape"], failed))
    lines = []
    for key, cells in by_row.items():
        if len(cells) <= LISTED:
            parts = [
                f"{shape}: {', '.join(f'{SHORT[name]} {failed[name]:.0f}' for name in failed)}"
                for shape, failed in cells
            ]
        else:
            parts = [f"{len(cells)} of {len(SHAPES)} shapes"]
            for name in QUANTITIES:
                covered = [failed[name] for _, failed in cells if name in failed]
                if covered:
                    parts.append(f"{SHORT[name]} {min(covered):.0f} at least, in {len(covered)}")
        lines.append(f"- {key}: {'; '.join(parts)}.")
    return "\n".join(lines)


def _flags(frame: pd.DataFrame) -> str:
    tested = frame[frame["design"] != "four"]
    rows = []
    for (noise, design), group in tested.groupby(BY, sort=False):
        cells = [noise, design]
        for flag, with_it in (("penalty", PENALIZED), ("rise", RISING)):
            without = group[~group["shape"].isin(with_it)]
            cells.append(share(without[flag].sum(), without["curves"].sum()))
            for shape in with_it:
                of_shape = group[group["shape"] == shape]
                cells.append(share(of_shape[flag].sum(), of_shape["curves"].sum()))
        rows.append(cells)
    head = [*BY, "penalty, of the others", *(f"penalty, of a {name}" for name in PENALIZED)]
    return table([*head, "rise, of the others", *(f"rise, of {name}" for name in RISING)], rows)


_INTRODUCTION = f"""{len(SHAPES)} true shapes, {len(NOISES)} noises and {len(DESIGNS)} designs,
{CURVES} curves a cell. Shapes: knees of five bends; slopes of -0.8 before a level end, and -0.8 and
-0.95 throughout (pure powers); a slope that rises evenly from -1 to 0 (log-quadratic); plateaus
that fall by 2, 4, 7 and 17 % a doubling, or rise by 5 %; tested ranges that end or begin at the
knee; two corners; SGD on the noisy quadratic model, exactly; small-batch penalties of 15 and 40 %.
Noise is equal (single runs of unknown noise, or three *repeats*); falling from 20 to 3 % over the
batch sizes; correlated by 0.7 between *neighbours* (5 %; *known*: with its variance, as of a
search); *heavy tails* of Student's t with 3 degrees of freedom (5 %); whole steps, the fewest of a
curve 20, 12 or 6, with their bracket. Designs: *twelve* and *eight* doublings, *four* batch sizes a
factor 4 apart.

The tested range is the truth: the least S and E over it, and where they are left within the
tolerance. A cell holds if the intervals of all five quantities cover in {HOLDS} % of its curves or
more; bounds are intervals with an infinite end. An end is falsely said to be *level* where it
changes by more than the tolerance over its last two doublings: in per cent of such ends, apart for
those that change by more than twice the tolerance. *Bounded*: curves in per cent whose critical
batch size lacks an end. *High / low*: its median width, over the shapes where at most half are
bounded.
"""

_REASONS = """Why: of single runs nothing but the scatter about the curve says how noisy they are,
and few points leave little of it (10 % at four batch sizes, 20 %); single runs that scatter by 20 %
at one end and by 3 % at the other are weighed alike (repeats, or the trials of a search, give
weights); what neighbours have in common looks like a bend of the curve; four batch sizes have no
test for a penalty, and are fitted as if there were none.
"""

_FLAGS = """Small-batch penalties and rises that are flagged, in per cent, of shapes without (5 % at
most) and with; four batch sizes have no such test:"""
