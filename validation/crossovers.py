"""Table: do the intervals of crossovers cover, and how many are false?

Two knees on the same batch sizes, as ``analysis.fit.crossovers`` compares two curves: the same
curve twice, one a constant factor above the other, and pairs that cross between the tested batch
sizes. Besides, the exact curves of the noisy quadratic model (``validation.nqm``): an average of
SGD's iterates is better at small batch sizes and heavy ball at large ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.fit.convex import Array, Points
from analysis.fit.crossovers import SignChanges, sign_changes
from analysis.fit.knee import Knee, log_steps, theta
from validation.page import keep, paragraphs, share, table
from validation.quadratic import finely
from validation.tally import LEVEL, named, run

NOISES = (0.02, 0.05, 0.10)
KINDS = ("identical", "parallel", "crossing", "quadratic", "touching")
CROSS = ("crossing", "quadratic")
CURVES = 200
REPLICATES = 200
SEED = 2032
PLACES = 97

_DOUBLINGS = {**dict.fromkeys(KINDS, np.arange(10)), "quadratic": np.arange(3, 17)}
_FINE = np.linspace(0.0, 1.0, 20_001)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Pairs of curves of one kind and noise."""

    kind: str
    noise: float
    curves: int = CURVES


BLOCKS = tuple(Block(kind=kind, noise=noise) for kind in KINDS for noise in NOISES)


def draw(kind: str, x: Array, rng: np.random.Generator) -> tuple[Array, Array, float]:
    """True log steps of a pair at log batch sizes ``x`` (n,), and the log batch size at which they
    cross; NaN where they do not."""
    if kind == "quadratic":
        first, second = finely("ema"), finely("heavy_ball")
        at = x[0] + _FINE * (x[-1] - x[0])
        return first(x), second(x), _zeros(at, first(at) - second(at))[0]
    while True:
        knees = [theta(1000.0, 2 ** rng.uniform(1.0, 8.0), rng.uniform(0.6, 3.0)) for _ in range(2)]
        if kind != "crossing":
            shift = 0.0 if kind == "identical" else rng.uniform(-1.0, 1.0)
            return log_steps(x, knees[0]), log_steps(x, knees[0]) + shift, np.nan
        knees[1][0] += rng.uniform(-1.0, 1.0)
        at = x[0] + _FINE * (x[-1] - x[0])
        apart = log_steps(at, knees[0]) - log_steps(at, knees[1])
        if kind == "touching":
            if np.ptp(apart) > 0.3:
                return log_steps(x, knees[0]) - apart.min(), log_steps(x, knees[1]), np.nan
            continue
        zeros = _zeros(at, apart)
        # Curves that differ by 30 % on both sides: such crossovers are there to be told.
        if len(zeros) == 1 and apart.max() > 0.3 and apart.min() < -0.3:
            return log_steps(x, knees[0]), log_steps(x, knees[1]), zeros[0]


def compare(x: Array, y: tuple[Array, Array], seed: int) -> SignChanges:
    """Two measured curves at log batch sizes ``x`` (n,), as ``analysis.fit.crossovers`` does it."""
    at = np.linspace(x[0], x[-1], PLACES)
    sides = []
    for row, steps in enumerate(y):
        knee = Knee.of(Points(x=x, y=steps, variance=np.zeros_like(x)))
        drawn = knee.replicates(REPLICATES, 2 * seed + row)
        sides.append((knee.log_steps(at), log_steps(np.tile(at, (len(drawn), 1)), drawn)))
    return sign_changes(at, *sides[0], *sides[1], level=LEVEL)


def count(block: Block) -> dict[str, object]:
    """A row of counts; the seed depends on the block alone."""
    rng = np.random.default_rng([SEED, KINDS.index(block.kind), round(1000 * block.noise)])
    x = np.log(2.0) * _DOUBLINGS[block.kind]
    claimed = covered = several = 0
    widths = []
    for number in range(block.curves):
        first, second, true = draw(block.kind, x, rng)
        first, second = (steps + rng.normal(0.0, block.noise, len(x)) for steps in (first, second))
        logs = compare(x, (first, second), number).logs
        claimed += bool(logs)
        several += len(logs) > 1
        covered += any(low <= true <= high for _, low, high in logs)
        widths += [high - low for _, low, high in logs]
    return {
        "kind": block.kind,
        "noise": block.noise,
        "curves": block.curves,
        "claimed": claimed,
        "several": several,
        "covered": covered,
        "width": round(float(np.median(widths)) / np.log(2.0), 2) if widths else None,
    }


def section(processes: int | None) -> str:
    return render(keep("crossovers", run(count, BLOCKS, "crossovers", processes)))


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    rows = []
    for row in frame.to_dict("records"):
        true = row["kind"] in CROSS
        covered = share(row["covered"], row["claimed"]) if true else "–"
        width = f"{row['width']:g}" if true and row["claimed"] else "–"
        rows.append(
            [
                *named(["kind", "noise"], (row["kind"], row["noise"])),
                row["curves"],
                share(row["claimed"], row["curves"]),
                share(row["several"], row["curves"]),
                covered,
                width,
            ]
        )
    head = ["curves", "noise", "pairs", "claimed", "more than one", "covered", "doublings wide"]
    false = frame[~frame["kind"].isin(CROSS)]
    wrong = share(false["claimed"].sum(), false["curves"].sum())
    return paragraphs(
        _INTRODUCTION,
        table(head, rows),
        f"Of the pairs that do not cross {wrong} % have a claimed crossover.",
    )


def _zeros(at: Array, apart: Array) -> list[float]:
    """Where a difference changes its sign."""
    return [float(at[i]) for i in np.flatnonzero(np.sign(apart[1:]) != np.sign(apart[:-1]))]


_INTRODUCTION = """Pairs of curves, tested at the same ten doublings of the batch size: the same
knee twice (*identical*), one a constant factor above the other (*parallel*), knees that cross once
among them and differ by 30 % on both sides (*crossing*), and the exact noisy quadratic model's
average of SGD's iterates against heavy ball, on fourteen doublings, whose curves are no knees
(*quadratic*); and two knees of which one is shifted until they touch without crossing, which differ
by 30 % elsewhere (*touching*). In per cent: pairs with a claimed crossover, with more than one,
and, of the claimed, those whose 90 % interval contains the true one; the median interval's width in
doublings.
"""
