"""Table: does ``batchscale techniques`` call things different that are not?

Each table has a plain curve and five techniques, analysed as ``analysis.techniques`` does it: the
ratios of four quantities to the plain curve's, their p-values, corrected for the table's twenty
ratios by Holm's method. In *equal* tables all curves are of one knee, so that every claim is false;
in *double* tables the first technique's knee is at twice the batch size: it needs twice the fewest
examples, and over the tested range, where its plateau is not quite reached, 4 % more steps.
"""

from __future__ import annotations

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
from validation.page import keep, paragraphs, share, table
from validation.simulate import Cell, doubling, true_value
from validation.tally import LEVEL, TOLERANCE, run
from validation.tally import named as cells

TECHNIQUES = 5
TABLES = 100
"""Tables of a block."""
KINDS = ("equal", "double")
NOISES = (0.03, 0.10)
SEED = 2036
SIZES = doubling(11)
CRITICAL = 40.0


@dataclass(frozen=True, kw_only=True)
class Block:
    """Tables of one kind and noise."""

    kind: str
    noise: float
    tables: int = TABLES


def blocks(tables: int = TABLES) -> tuple[Block, ...]:
    return tuple(Block(kind=k, noise=n, tables=tables) for k in KINDS for n in NOISES)


def draw(block: Block, rng: np.random.Generator) -> Array:
    """Log steps of a table's curves at ``SIZES``, the plain one first: (6, n)."""
    x = np.log(SIZES)
    y = np.stack([knee(x, theta(1000.0, size)) for size in criticals(block.kind)])
    return y + rng.normal(0.0, block.noise, y.shape)


def criticals(kind: str) -> list[float]:
    """The critical batch sizes of the plain curve and the techniques."""
    sizes = [CRITICAL] * (1 + TECHNIQUES)
    if kind == "double":
        sizes[1] *= 2
    return sizes


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


def p_values_of(y: Array) -> tuple[list[dict[str, Ends]], list[dict[str, float]]]:
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


def count(block: Block) -> dict[str, object]:
    """A row of counts; the seed depends on the block alone."""
    rng = np.random.default_rng([SEED, KINDS.index(block.kind), round(1000 * block.noise)])
    true = true_ratios(block.kind)
    false = false_uncorrected = 0
    by_quantity = {f"{name}_{what}": 0 for name in RATIOS for what in ("covered", "clear")}
    for _ in range(block.tables):
        ratios, p_values = p_values_of(draw(block, rng))
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
    return {
        "kind": block.kind,
        "noise": block.noise,
        "tables": block.tables,
        "false": false,
        "false_uncorrected": false_uncorrected,
        **by_quantity,
    }


def true_ratios(kind: str) -> dict[str, float]:
    """The logarithm of each true ratio of the first technique."""
    plain, first = (Cell(batch_sizes=SIZES, critical=size) for size in criticals(kind)[:2])
    apart = {n: true_value(first, n, TOLERANCE) - true_value(plain, n, TOLERANCE) for n in RATIOS}
    return {name: value if abs(value) > 1e-9 else 0.0 for name, value in apart.items()}


def section(processes: int | None, tables: int = TABLES) -> str:
    return render(keep("techniques", run(count, blocks(tables), "techniques", processes)))


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    rows = []
    for row in frame.to_dict("records"):
        ratios = TECHNIQUES * row["tables"]
        first = [share(row[f"{name}_clear"], row["tables"]) for name in RATIOS]
        rows.append(
            [
                *cells(["kind", "noise"], (row["kind"], row["noise"])),
                row["tables"],
                share(row["false"], row["tables"]),
                share(row["false_uncorrected"], row["tables"]),
                *(share(row[f"{name}_covered"], ratios) for name in RATIOS),
                *(first if row["kind"] == "double" else ["–"] * len(RATIOS)),
            ]
        )
    short = ("critical", "perfect", "steps", "examples")
    head = ["tables", "noise", "N", "any false", "uncorrected"]
    head += [f"covers {name}" for name in short] + [f"claims {name}" for name in short]
    wrong = share(frame["false"].sum(), frame["tables"].sum())
    return paragraphs(
        _INTRODUCTION,
        table(head, rows),
        f"After the correction {wrong} % of the tables have a false claim; 10 % are allowed.",
    )


_INTRODUCTION = """Tables of `batchscale techniques`: a plain curve and five techniques at eleven
doublings of the batch size, knees of bend 1 at batch size 40. In *equal* tables nothing differs; in
*double* tables the first technique's knee is at 80, so that over the tested range its critical
batch size is 1.90 times, and its least steps are 1.04 times the plain ones. In per cent: tables
with any false claim at p ≤ 0.1, corrected for their twenty ratios by Holm's method, and
uncorrected; 90 % intervals of the ratios that contain the true one; and the *double* tables that
claim, after the correction, that the first technique differs.
`python -m validation techniques --tables N` makes N tables of each kind.
"""
