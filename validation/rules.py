"""Table: does the interval of what a rule costs hold the cost?

Sweeps on the surface of ``validation.surface``: free tuning at a base batch size and three others,
and two rules that transfer the base's table. One moves every point as the best learning rate moves,
so that it costs but the difference between a transferred point and a search of one's own; the other
keeps the learning rate. They are analysed by ``analysis.figures.rules``, as a sweep's own.

The truth is a ratio of medians over fresh searches: of the steps that the point takes which is best
at the base, over those of the best of N. At the base both are the best of N, and it is 1.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.curves.curve import curves
from analysis.figures.rules import Cost, costs_of
from analysis.fit.convex import Array
from analysis.fit.knee import sigmoid
from validation import surface as surfaces
from validation.page import keep, paragraphs, share, table
from validation.surface import BUDGET, CRITICAL, KEEP, RATIO, Surface, Trial
from validation.tally import named, run

BASE = 8
SIZES = (8, 32, 128, 512)
RULES = {"follows": "learning_rate linear, from 8", "stays": "learning_rate none, from 8"}
"""Whether the learning rate follows the best one, and what results call the rule."""
DIMENSIONS = (1, 2)
TRIALS = (16, 64)
NOISES = (0.05, 0.20)
SWEEPS = 20
"""Number of sweeps in a block."""
BLOCKS_EACH = 8
SEED = 2033
FRESH = 1024
"""Number of searches whose medians are the truth."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A surface, and the N of its searches."""

    dimensions: int
    trials: int
    noise: float

    @property
    def surface(self) -> Surface:
        return Surface(dimensions=self.dimensions, noise=self.noise)


CELLS = tuple(
    Cell(dimensions=dimensions, trials=trials, noise=noise)
    for dimensions in DIMENSIONS
    for trials in TRIALS
    for noise in NOISES
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some sweeps of a cell, and its truth."""

    cell: Cell
    number: int
    truth: Mapping[tuple[str, int], float]
    """Log cost by rule and batch size."""
    sweeps: int = SWEEPS


def transferred(u: Array, rule: str, size: int) -> Array:
    """Points (n, d) of the base at another batch size, by a rule; they may leave the unit cube."""
    if rule != "follows":
        return u
    at, base = (float(sigmoid(np.log(x) - np.log(CRITICAL))) for x in (size, BASE))
    moved = u.copy()
    moved[:, 0] += 0.3 * (at - base)
    return moved


@functools.cache
def truth(cell: Cell, fresh: int = FRESH) -> dict[tuple[str, int], float]:
    """Log cost by rule and batch size, from ``fresh`` searches; it is that of exact steps, which
    evaluations round up for rule and search alike."""
    rng = np.random.default_rng([2, cell.dimensions, cell.trials])
    steps: dict[tuple[str, int], list[float]] = {}
    for seed in rng.integers(2**62, size=fresh):
        u = surfaces.points(cell.dimensions, surfaces.rows(cell.trials), int(seed))
        chosen = _best(cell, u, BASE, rng)[0]
        for size in SIZES:
            own = surfaces.points(cell.dimensions, len(u), int(rng.integers(2**62)))
            steps.setdefault(("free", size), []).append(_best(cell, own, size, rng)[1])
            for rule in RULES:
                if size == BASE:
                    value = _best(cell, u, BASE, rng)[1]
                else:
                    value = float(_log_times(cell, transferred(u, rule, size), size, rng)[chosen])
                steps.setdefault((rule, size), []).append(value)
    medians = {key: float(np.median(values)) for key, values in steps.items()}
    return {
        (rule, size): medians[rule, size] - medians["free", size]
        for rule in RULES
        for size in SIZES
    }


def _log_times(cell: Cell, u: Array, size: int, rng: np.random.Generator) -> Array:
    """Log steps to target of points, with fresh seeds; infinite of those that diverge."""
    x = np.log(np.array(size, dtype=np.float64))
    above, diverges = surfaces.excess(u, x)
    times = surfaces.best_steps(x) + above + cell.noise * rng.normal(size=len(u))
    return np.where(diverges, np.inf, times)


def _best(cell: Cell, u: Array, size: int, rng: np.random.Generator) -> tuple[int, float]:
    """The best of the first N feasible points of a search: its row, and log steps."""
    times = _log_times(cell, u, size, rng)
    times[_rows(times, cell.trials) :] = np.inf
    best = int(times.argmin())
    return best, float(times[best])


def _rows(times: Array, n: int) -> int:
    """Rows of a table that hold ``n`` feasible ones."""
    return int(np.flatnonzero(np.isfinite(times))[n - 1]) + 1


def sweep(cell: Cell, rng: np.random.Generator, name: str) -> pd.DataFrame:
    """Rows of the trials table: free tuning, and each rule, at each of ``SIZES``."""
    count = surfaces.rows(cell.trials)
    base = surfaces.points(cell.dimensions, count, int(rng.integers(2**62)))
    made = []
    for size in SIZES:
        fresh = surfaces.points(cell.dimensions, count, int(rng.integers(2**62)))
        tables = {"": base if size == BASE else fresh}
        tables |= {rule: transferred(base, rule, size) for rule in RULES}
        for rule, u in tables.items():
            log_times = _log_times(cell, u, size, rng)
            when = rng.integers(1, 21, len(u))
            trials = [
                Trial(
                    time=float(np.exp(log_times[i])) if np.isfinite(log_times[i]) else np.inf,
                    diverges=None if np.isfinite(log_times[i]) else int(when[i]),
                )
                for i in range(_rows(log_times, cell.trials))
            ]
            budget = round(BUDGET * float(np.exp(surfaces.best_steps(np.log([size]))[0])))
            technique = json.dumps({"rule": RULES[rule]} if rule else {})
            study = f"{name}-{rule}-{size}"
            made += [
                {
                    **row,
                    "study": study,
                    "trial": f"{study}-{index}",
                    "batch_size": size,
                    "index": index,
                    "budget_steps": budget,
                    "technique": technique,
                    "keep": None if rule else KEEP,
                }
                for index, row in enumerate(surfaces.train(trials, budget, None if rule else KEEP))
            ]
    return pd.DataFrame(made).assign(
        experiment="truth",
        workload=name,
        dataset="surface",
        optimizer="sgd",
        schedule="constant",
        role="search",
        metaparameters=json.dumps({}),
        target_metric="validation_error",
        target_value=0.04,
        lower_is_better=True,
        evaluation_ratio=RATIO,
    )


def measured(cell: Cell, number: int, sweeps: int) -> list[Cost]:
    """The costs of some sweeps, by the path that a results dataset takes."""
    rng = np.random.default_rng(
        [SEED, cell.dimensions, cell.trials, round(1000 * cell.noise), number]
    )
    frames = [sweep(cell, rng, f"{i:04d}") for i in range(sweeps)]
    rows = pd.concat(frames, ignore_index=True)
    return costs_of(curves(rows), rows)


def count(block: Block) -> list[dict[str, object]]:
    """A row of counts for each rule and batch size."""
    cell = block.cell
    made = measured(cell, block.number, block.sweeps)
    names = {text: rule for rule, text in RULES.items()}
    counted = []
    for rule in RULES:
        for size in SIZES:
            true = block.truth[rule, size]
            ends = [c.cost.ends for c in made if names[c.rule] == rule and c.batch_size == size]
            known = [each for each in ends if any(end is not None for end in each)]
            covered = [
                (low is None or np.log(low) <= true) and (high is None or np.log(high) >= true)
                for _, low, high in known
            ]
            closed = [low is not None and high is not None for _, low, high in known]
            # A point that misses the target costs more than any estimate.
            values = [np.inf if value is None else float(np.log(value)) for value, _, _ in known]
            widths = [np.log(high / low) for _, low, high in known if low and high]
            counted.append(
                {
                    "dimensions": cell.dimensions,
                    "trials": cell.trials,
                    "noise": cell.noise,
                    "block": block.number,
                    "rule": rule,
                    "batch_size": size,
                    "true": round(true, 5),
                    "costs": len(ends),
                    "known": len(known),
                    "covered": int(sum(covered)),
                    "closed": sum(closed),
                    "closed_covered": int(
                        sum(c and s for c, s in zip(covered, closed, strict=True))
                    ),
                    "value": _median(values),
                    "width": round(float(np.median(widths)), 5) if widths else None,
                }
            )
    return counted


def _median(values: list[float]) -> float | None:
    """Rounded; None of none, or where half of them are infinite."""
    middle = float(np.median(values)) if values else np.inf
    return round(middle, 5) if np.isfinite(middle) else None


def section(processes: int | None) -> str:
    truths = run(truth, CELLS, "rules: truths", processes)
    blocks = [
        Block(cell=cell, number=number, truth=true)
        for cell, true in zip(CELLS, truths, strict=True)
        for number in range(BLOCKS_EACH)
    ]
    rows = [row for rows in run(count, blocks, "rules", processes) for row in rows]
    return render(keep("rules", rows))


BY = ["rule", "dimensions", "trials", "noise"]


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    rows = []
    for key, of_key in frame.groupby(BY, sort=False):
        cells: list[object] = []
        for _, group in of_key.groupby("batch_size"):
            total = group.sum(numeric_only=True)
            cells.append(
                f"{np.exp(group['true'].iloc[0]):.2f} · "
                f"{_over(group)} · "
                f"{share(total['covered'], total['known'])} "
                f"({share(total['known'] - total['closed'], total['known'])})"
            )
        total = of_key.sum(numeric_only=True)
        unknown = share(total["costs"] - total["known"], total["costs"])
        width = np.exp(of_key["width"].mean())
        rows.append([*named(BY, key), *cells, f"{width:.2f}", unknown])
    elsewhere = frame[frame["batch_size"] != BASE].sum(numeric_only=True)
    of_base = frame[frame["batch_size"] == BASE].sum(numeric_only=True)
    head = ["learning rate", "dimensions", "N", "seed noise", *(f"at {size}" for size in SIZES)]
    return paragraphs(
        _INTRODUCTION,
        table([*head, "high / low", "unknown"], rows),
        f"Of all intervals {share(elsewhere['covered'], elsewhere['known'])} % contain the cost "
        f"beside the base and {share(of_base['covered'], of_base['known'])} % at it; of those "
        "with both ends given, "
        f"{share(elsewhere['closed_covered'], elsewhere['closed'])} % and "
        f"{share(of_base['closed_covered'], of_base['closed'])} %.",
        _FINDING,
    )


def _over(group: pd.DataFrame) -> str:
    """The median estimate over the true cost; a dash where most points miss the target."""
    off = group["value"].mean() - group["true"].iloc[0]
    return "–" if np.isnan(off) else f"{np.exp(off):.2f}"


_INTRODUCTION = f"""What a rule costs (`plot rules`): {SWEEPS * BLOCKS_EACH} sweeps a row, on the
surface of `searches`, at batch sizes 8 to 512. Points of the base, 8, are transferred by two rules:
under one the learning rate *follows* the best one exactly, under the other it *stays*. The cost is
the median, over {FRESH:,} fresh searches, of the steps of the point that is best at the
base, over that of the best of N. It is above 1 for a rule that follows too: a search of one's own
takes the least of N runs at each batch size, the rule one run. Each batch size: the true cost · the
median estimate over it, in blocks of {SWEEPS} sweeps in which more than half have one · coverage in
per cent, in brackets open intervals. *High / low* is the median interval's; *unknown*, in per cent,
are costs without any end.
"""

_FINDING = """The intervals are made of order statistics: the steps of the rule lie between the
least and the most of its four best points, which four runs about one median would hold with 7/8,
those of the best of N between X(1)²/X(4) and X(4), each from the evaluation before on. They have no
nominal level: they are to contain the cost in 90 % of the sweeps or more, and are wider than 90 %
intervals would be. A point that misses the target has a cost above that of the least of the four.
"""
