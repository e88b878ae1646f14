"""Do the intervals of crossovers cover, and how many are false?

Two knees on the same batch sizes: the same curve twice, one a constant factor above the other, and
pairs that cross between the tested batch sizes; and pairs of which one turns: it takes more steps
again at large batch sizes, or more examples at small ones. Besides, the exact curves of the noisy
quadratic model (``validation.nqm``): an average of SGD's iterates is better at small batch sizes
and heavy ball at large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from analysis.fit.convex import Array, Points
from analysis.fit.crossovers import Side, SignChanges, sign_changes
from analysis.fit.knee import Knee, log_steps, theta
from analysis.fit.locate import locate
from validation.harness import LEVEL, TOLERANCE, Counts, groups
from validation.page import share, table
from validation.quadratic import finely

KINDS = ("identical", "parallel", "crossing", "quadratic", "touching", "rising", "penalized")
CROSS = ("crossing", "quadratic", "rising", "penalized")

_DOUBLINGS = {**dict.fromkeys(KINDS, np.arange(10)), "quadratic": np.arange(3, 17)}
_FINE = np.linspace(0.0, 1.0, 20_001)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs of curves of one kind and noise."""

    kind: str
    noise: float

    @property
    def x(self) -> Array:
        """The log batch sizes, (n,)."""
        return np.log(2.0) * _DOUBLINGS[self.kind]


def key(cell: Pairs) -> Counts:
    return {"kind": cell.kind, "noise": cell.noise}


def seed(cell: Pairs) -> list[int]:
    return [2032, KINDS.index(cell.kind), round(1000 * cell.noise)]


Line = Callable[[Array], Array]
"""Log steps at log batch sizes."""
Measured = tuple[Array, tuple[Array, Array], int]
"""Log batch sizes (n,), the log steps of both curves, and the seed of their bootstrap."""


def simulate(
    cell: Pairs, _: object, rng: np.random.Generator, pairs: int
) -> list[tuple[Measured, float]]:
    """Measured pairs, each with the log batch size at which the true ones cross."""
    x, made = cell.x, list[tuple[Measured, float]]()
    for number in range(pairs):
        first, second, true = draw(cell.kind, x, rng)
        first, second = (steps + rng.normal(0.0, cell.noise, len(x)) for steps in (first, second))
        made.append(((x, (first, second), number), true))
    return made


def draw(kind: str, x: Array, rng: np.random.Generator) -> tuple[Array, Array, float]:
    """True log steps of a pair at log batch sizes ``x`` (n,), and the log batch size at which they
    cross; NaN where they do not."""
    at = x[0] + _FINE * (x[-1] - x[0])
    if kind == "quadratic":
        first, second = finely("ema"), finely("heavy_ball")
        return first(x), second(x), _zeros(at, first(at) - second(at))[0]
    while True:
        knees = [theta(1000.0, 2 ** rng.uniform(1.0, 8.0), rng.uniform(0.6, 3.0)) for _ in range(2)]
        first, second = (partial(log_steps, params=params) for params in knees)
        shift = rng.uniform(-1.0, 1.0)
        if kind in ("identical", "parallel"):
            return first(x), first(x) + shift * (kind == "parallel"), np.nan
        if kind == "rising":
            first = _turning(first, np.log(2.0) * rng.uniform(5.0, 8.0), 1)
        if kind == "penalized":
            first = _turning(first, np.log(2.0) * rng.uniform(1.0, 4.0), -1)
        apart = first(at) - second(at)
        if kind == "touching":
            if np.ptp(apart) > 0.3:
                return first(x) - apart.min(), second(x), np.nan
            continue
        apart -= shift
        zeros = _zeros(at, apart)
        # Curves that differ by 30 % on both sides: such crossovers are there to be told.
        if len(zeros) == 1 and apart.max() > 0.3 and apart.min() < -0.3:
            return first(x), second(x) + shift, zeros[0]


def _turning(falling: Line, where: float, side: int) -> Line:
    """The line of steps times 1 + (B / B_where)^side: 1, more steps at large batch sizes; -1, more
    examples at small ones."""
    return lambda at: falling(at) + np.log1p(np.exp(side * (at - where)))


def compared(made: Measured) -> SignChanges:
    """Two measured curves, as ``analysis.fit.crossovers`` does it."""
    x, both, seed = made
    curves = [Points(x=x, y=steps, variance=np.zeros_like(x)) for steps in both]
    first, second = (
        Side(located=locate(each, tolerance=TOLERANCE), knee=Knee.of(each), seed=2 * seed + row)
        for row, each in enumerate(curves)
    )
    return sign_changes(first, second, level=LEVEL)


def count(_: Pairs, estimates: Sequence[SignChanges], truths: Sequence[float]) -> Counts:
    """Claimed crossovers, and those that hold the true one."""
    every = [each.logs for each in estimates]
    widths = [high - low for logs in every for _, low, high in logs]
    return {
        "curves": len(every),
        "claimed": sum(bool(logs) for logs in every),
        "several": sum(len(logs) > 1 for logs in every),
        "covered": sum(
            any(low <= true <= high for _, low, high in logs)
            for logs, true in zip(every, truths, strict=True)
        ),
        "width": round(float(np.median(widths)) / np.log(2.0), 2) if widths else None,
    }


def tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = []
    for cells, group, total in groups(frame, ["kind", "noise"]):
        true = cells[0] in CROSS
        covered = share(total["covered"], total["claimed"]) if true else "–"
        width = f"{group['width'].iloc[0]:g}" if true and total["claimed"] else "–"
        shares = [share(total[name], total["curves"]) for name in ("claimed", "several")]
        rows.append([*cells, group["curves"].sum(), *shares, covered, width])
    head = ["curves", "noise", "pairs", "claimed", "more than one", "covered", "doublings wide"]
    false = frame[~frame["kind"].isin(CROSS)]
    wrong = share(false["claimed"].sum(), false["curves"].sum())
    said = f"Of the pairs that do not cross {wrong} % have a claimed crossover."
    return {"crossovers": f"{table(head, rows)}\n{said}"}


def _zeros(at: Array, apart: Array) -> list[float]:
    """Where a difference changes its sign."""
    return [float(at[i]) for i in np.flatnonzero(np.sign(apart[1:]) != np.sign(apart[:-1]))]
