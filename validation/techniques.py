"""Table: does ``batchscale techniques`` call things different that are not?

Each table has a plain curve and five techniques, analysed as ``analysis.techniques`` does it: the
ratios of four quantities to the plain curve's, their p-values, corrected for the table's twenty
ratios by Holm's method. In *equal* tables all curves are of one knee, so that every claim is false;
in *double* tables the first technique has twice the critical batch size (and so needs twice the
fewest examples), at the same steps at the plateau.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.fit.comparisons import Ends, log_ratio
from analysis.fit.convex import Array, theta
from analysis.fit.estimate import fitted, intervals
from analysis.fit.knee import log_steps as knee
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


def draw(block: Block, rng: np.random.Generator) -> tuple[Array, Array]:
    """Log batch sizes and log steps of a table's curves, the plain one first: (6, n) each."""
    x = np.tile(np.log(SIZES), (1 + TECHNIQUES, 1))
    y = np.stack([knee(x[0], theta(1000.0, size)) for size in criticals(block.kind)])
    return x, y + rng.normal(0.0, block.noise, y.shape)


def criticals(kind: str) -> list[float]:
    """The critical batch sizes of the plain curve and the techniques."""
    sizes = [CRITICAL] * (1 + TECHNIQUES)
    if kind == "double":
        sizes[1] *= 2
    return sizes


def at_levels(x: Array, y: Array, levels: Array) -> list[dict[str, Ends]]:
    """Of each curve, by quantity, value and ends at each level (L,) in natural logs, (L,) each; the
    first level is that at which values are given."""
    fit = fitted(x, y, np.ones_like(x), tolerance=TOLERANCE, level=LEVEL)
    count = len(x)
    answer = intervals(fit.take(np.repeat(np.arange(count), len(levels))), np.tile(levels, count))
    shape = (count, len(levels))
    value, low, high = (
        {name: each[name].reshape(shape) for name in RATIOS}
        for each in (answer.value, answer.low, answer.high)
    )
    return [
        {n: (np.full(len(levels), value[n][i, 0]), low[n][i], high[n][i]) for n in RATIOS}
        for i in range(count)
    ]


def p_values_of(x: Array, y: Array) -> tuple[list[dict[str, Ends]], list[dict[str, float]]]:
    """The ratios of each technique of a table at ``LEVEL``, and the p-values of those whose
    interval leaves out 1; 1 for the others, which no correction makes smaller than 0.1."""
    usual = LEVELS.index(LEVEL)
    plain, *others = at_levels(x, y, np.array([LEVEL]))
    ratios = [{n: log_ratio(other[n], plain[n]) for n in RATIOS} for other in others]
    p_values = [dict.fromkeys(RATIOS, 1.0) for _ in others]
    outside = {
        i: names
        for i, each in enumerate(ratios)
        if (names := [n for n, (_, low, high) in each.items() if low[0] > 0 or high[0] < 0])
    }
    if outside:
        rows = np.array([0, *(i + 1 for i in outside)])
        deep = at_levels(x[rows], y[rows], np.array(LEVELS[usual:]))
        # At lower levels the interval leaves out 1 too: what they are filled with does not matter.
        filled = [{n: _filled(ends, usual) for n, ends in each.items()} for each in deep]
        for of_curve, (i, names) in zip(filled[1:], outside.items(), strict=True):
            for name in names:
                p_values[i][name] = p_value(of_curve[name], filled[0][name]) or 1.0
    return ratios, p_values


def _filled(ends: Ends, count: int) -> Ends:
    value, low, high = (np.concatenate([np.repeat(each[:1], count), each]) for each in ends)
    return value, low, high


def count(block: Block) -> dict[str, object]:
    """A row of counts; the seed depends on the block alone."""
    rng = np.random.default_rng([SEED, KINDS.index(block.kind), round(1000 * block.noise)])
    true = true_ratios(block.kind)
    false = false_uncorrected = 0
    by_quantity = {f"{name}_{what}": 0 for name in RATIOS for what in ("covered", "clear")}
    for _ in range(block.tables):
        ratios, p_values = p_values_of(*draw(block, rng))
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
doublings of the batch size, bend 1, with a critical batch size of 40. In *equal* tables nothing
differs; in *double* tables the first technique has twice the critical batch size, at equal steps at
the plateau. In per cent: tables with any false claim at p ≤ 0.1, corrected for their twenty ratios
by Holm's method, and uncorrected; 90 % intervals of the ratios that contain the true one; and the
*double* tables that claim, after the correction, that the first technique differs (of the steps
that is false). `python -m validation techniques --tables N` makes N tables of each kind.
"""
