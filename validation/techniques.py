"""Does ``batchscale techniques`` call things different that are not?

Each table has a plain curve and five techniques, analysed as ``analysis.techniques`` does it: the
ratios of four quantities to the plain curve's, their p-values, corrected for the table's twenty
ratios by Holm's method. In *equal* tables all curves are of one knee, so that every claim is false;
in *double* tables the first technique's knee is at twice the batch size: it needs twice the fewest
examples, and over the tested range, where its plateau is not quite reached, 4 % more steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.fit.comparisons import Ends, Pair, log_ratio
from analysis.fit.convex import Array
from analysis.fit.knee import log_steps as knee
from analysis.fit.knee import theta
from analysis.fit.regimes import Regimes, regimes
from analysis.techniques.corrections import corrected, named
from analysis.techniques.p_values import LEVELS, p_value
from analysis.techniques.table import RATIOS
from validation.exact import truth
from validation.harness import LEVEL, TOLERANCE, Counts, groups
from validation.page import share, table

TECHNIQUES = 5
KINDS = ("equal", "double")
SIZES = tuple(2.0**i for i in range(11))
CRITICAL = 40.0


@dataclass(frozen=True, kw_only=True)
class TechniqueTables:
    """Tables of one kind and noise."""

    kind: str
    noise: float


def key(cell: TechniqueTables) -> Counts:
    return {"kind": cell.kind, "noise": cell.noise}


def seed(cell: TechniqueTables) -> list[int]:
    return [2036, KINDS.index(cell.kind), round(1000 * cell.noise)]


def simulate(
    cell: TechniqueTables, true: dict[str, float], rng: np.random.Generator, tables: int
) -> list[tuple[Array, dict[str, float]]]:
    """Log steps of each table's curves at ``SIZES``, the plain one first, (6, n), and the true
    ratios of the first technique."""
    x = np.log(SIZES)
    y = np.stack([knee(x, theta(1000.0, size)) for size in criticals(cell.kind)])
    return [(y + rng.normal(0.0, cell.noise, y.shape), true) for _ in range(tables)]


def criticals(kind: str) -> list[float]:
    """The critical batch sizes of the plain curve and the techniques."""
    sizes = [CRITICAL] * (1 + TECHNIQUES)
    if kind == "double":
        sizes[1] *= 2
    return sizes


Compared = tuple[list[dict[str, Ends]], list[dict[str, float]]]


def located(y: Array) -> list[Regimes]:
    """The regimes of measured log steps at ``SIZES``, (6, n): a table's curves."""
    made = []
    for steps in np.exp(y).tolist():
        points = tuple(
            Point(batch_size=round(size), steps=value, trials=1, middles=(value,))
            for size, value in zip(SIZES, steps, strict=True)
        )
        made.append(regimes(Curve(group={}, label="", target=None, points=points, trials=1)))
    return made


def p_values_of(y: Array) -> Compared:
    """The ratios of each technique of a table to the plain curve at ``LEVEL``, (1,) each, and the
    p-values of those whose interval leaves out 1; 1 for the others, which no correction makes
    smaller than 0.1."""
    plain, *others = located(y)
    pairs = [Pair.of(other, plain) for other in others]
    ratios = [{n: log_ratio(*pair.ends(n, [LEVEL])) for n in RATIOS} for pair in pairs]
    p_values = [dict.fromkeys(RATIOS, 1.0) for _ in pairs]
    for pair, of_pair, ps in zip(pairs, ratios, p_values, strict=True):
        for name, (_, low, high) in of_pair.items():
            if low[0] > 0 or high[0] < 0:
                ps[name] = p_value(*pair.ends(name, LEVELS)) or 1.0
    return ratios, p_values


def count(
    _: TechniqueTables, estimates: Sequence[Compared], truths: Sequence[dict[str, float]]
) -> Counts:
    """Tables with a false claim, intervals that cover, and claims on the first technique."""
    true = truths[0]
    false = false_uncorrected = 0
    by_quantity = {f"{name}_{what}": 0 for name in RATIOS for what in ("covered", "clear")}
    for ratios, p_values in estimates:
        pairs = [(i, name) for i in range(TECHNIQUES) for name in RATIOS]
        listed = [p_values[i][name] for i, name in pairs]
        wrong = wrong_uncorrected = False
        for (i, name), p, adjusted in zip(
            pairs, listed, corrected(listed, named("holm")), strict=True
        ):
            ratio = true[name] if i == 0 else 0.0
            _, low, high = (each[0] for each in ratios[i][name])
            by_quantity[f"{name}_covered"] += not (low > ratio or high < ratio)
            clear = adjusted is not None and adjusted <= 1 - LEVEL
            by_quantity[f"{name}_clear"] += clear and i == 0
            if ratio == 0.0:
                wrong |= clear
                wrong_uncorrected |= p <= 1 - LEVEL
        false += wrong
        false_uncorrected += wrong_uncorrected
    wrongs = {"false": false, "false_uncorrected": false_uncorrected}
    return {"tables": len(estimates), **wrongs, **by_quantity}


def true_ratios(cell: TechniqueTables) -> dict[str, float]:
    """The logarithm of each true ratio of the first technique."""
    first, last = float(np.log(SIZES[0])), float(np.log(SIZES[-1]))
    curves = [theta(1000.0, size) for size in criticals(cell.kind)[:2]]
    plain, other = (
        truth(lambda x, curve=curve: knee(x, curve), first, last, TOLERANCE).quantities  # type: ignore[misc]
        for curve in curves
    )
    apart = {name: other[name] - plain[name] for name in RATIOS}
    return {name: value if abs(value) > 1e-9 else 0.0 for name, value in apart.items()}


def tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = []
    for cells, group, total in groups(frame, ["kind", "noise"]):
        count = total["tables"]
        claimed = [share(total[f"{name}_clear"], count) for name in RATIOS]
        rows.append(
            [
                *cells,
                group["tables"].sum(),
                *(share(total[name], count) for name in ("false", "false_uncorrected")),
                *(share(total[f"{name}_covered"], TECHNIQUES * count) for name in RATIOS),
                *(claimed if cells[0] == "double" else ["–"] * len(RATIOS)),
            ]
        )
    short = ("critical", "perfect", "steps", "examples")
    head = ["tables", "noise", "N", "any false", "uncorrected"]
    head += [f"covers {name}" for name in short] + [f"claims {name}" for name in short]
    wrong = share(frame["false"].sum(), frame["tables"].sum())
    said = f"After the correction {wrong} % of the tables have a false claim; 10 % are allowed."
    return {"techniques": f"{table(head, rows)}\n{said}"}
