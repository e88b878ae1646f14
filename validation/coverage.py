"""Table 1: do the intervals cover, where the curve is a knee?

A cell is a noise level and a number of repeats. Its curves cross bends of the knee with grids of
batch sizes that reach both of its ends, one, or none, a block of ``CURVES`` for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.fit import knee as q
from analysis.fit.knee import QUANTITIES, Array, log_steps, theta
from validation.page import SHORT, keep, paragraphs, share, table
from validation.tally import (
    ENOUGH,
    FAR,
    REGIMES,
    TOLERANCE,
    Drawn,
    analyse,
    claims,
    claims_table,
    coverage_table,
    named,
    run,
    tally,
)

NOISES = (0.01, 0.02, 0.05, 0.10, 0.20)
REPEATS = (1, 3, 5)
BENDS = (0.6, 0.8, 1.0, 1.7, 3.0)
CURVES = 50
SEED = 2026

KINDS = ("both", "small", "large", "none")

DOUBLING = float(np.log(2.0))
FEWEST = 8
"""Fewest batch sizes of a grid."""

BEYOND = 6.0
"""Most doublings by which a grid goes beyond an end that it reaches."""

SHORT_BY = 3.0
"""Most doublings by which it stays short of an end."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Curves of one noise, number of repeats, bend, and kind of grid."""

    noise: float
    repeats: int
    bend: float
    grid: str
    curves: int = CURVES


BLOCKS = tuple(
    Block(noise=noise, repeats=repeats, bend=bend, grid=grid)
    for noise in NOISES
    for repeats in REPEATS
    for bend in BENDS
    for grid in KINDS
)


def draw(
    rng: np.random.Generator, curves: int, kind: str, *, bend: float, noise: float, repeats: int
) -> Drawn:
    """``curves`` knees of one ``bend``, each on a grid of its own, with normal noise in log steps.

    Curves have S_min = 1000 and B_crit = 1: nothing depends on either.
    """
    params = theta(1000.0, 1.0, bend)
    grids = [grid(rng, kind, half_width(params)) for _ in range(curves)]
    longest = max(map(len, grids))
    x, weight = np.zeros((curves, longest)), np.zeros((curves, longest))
    for row, sizes in enumerate(grids):
        x[row], weight[row, : len(sizes)] = sizes[-1], 1.0
        x[row, : len(sizes)] = sizes
    x, weight = np.repeat(x, repeats, axis=1), np.repeat(weight, repeats, axis=1)
    y = log_steps(x, params) + rng.normal(0.0, noise, x.shape)
    first, last = x[:, 0], x[:, -1]
    return Drawn(x=x, y=y, weight=weight, **truth(params, first, last))


def half_width(params: Array) -> float:
    """Doublings from B_crit to either end of diminishing returns."""
    tested = q.Range(first=np.zeros(1), last=np.zeros(1), tolerance=TOLERANCE)
    end = q.value(q.MAXIMAL, params[None], tested, np.zeros(1, dtype=bool))
    return float(end[0]) / DOUBLING


def grid(rng: np.random.Generator, kind: str, half: float) -> Array:
    """Log batch sizes about B_crit = 1, ascending; ``half`` as ``half_width`` gives it."""
    low, high = rng.uniform(0.0, BEYOND, 2)
    within = rng.uniform(-half, half)
    step = 1.0
    if kind == "both":
        short = max(0.0, FEWEST - 1 - (2 * half + low + high))
        first, last = -half - low - short / 2, half + high + short / 2
    elif kind == "small":
        first, last = min(-half - low, within - FEWEST + 1), within
    elif kind == "large":
        first, last = within, max(half + high, within + FEWEST - 1)
    else:
        width, away = float(FEWEST - 1), rng.uniform(0.0, SHORT_BY)
        inside = (FEWEST - 1) / 2
        where = rng.integers(3 if 2 * half > inside else 2)
        if where == 2:
            step, first = 0.5, rng.uniform(-half, half - inside)
        else:
            first = -half - away - width if where == 0 else half + away
        last = first + step * (FEWEST - 1)
    count = round((last - first) / step - 1e-9 + 0.5) + 1 if kind != "none" else FEWEST
    doublings = step * np.arange(count)
    return DOUBLING * (last - doublings[::-1] if kind == "small" else first + doublings)


def truth(params: Array, first: Array, last: Array) -> dict[str, dict[str, Array]]:
    """Of a knee with a = 1 on batch sizes ``first`` to ``last`` (R,): ``truth`` and ``margin``."""
    tested = q.Range(first=first, last=last, tolerance=TOLERANCE)
    many, straight = np.tile(params, (len(first), 1)), np.zeros(len(first), dtype=bool)
    true = {name: q.value(kind, many, tested, straight) for name, kind in QUANTITIES.items()}
    # That the smallest batch size scales perfectly is part of the first regime's being there.
    starts = {REGIMES[0]: q.value(q.ONSET, many, tested, straight), REGIMES[1]: true[REGIMES[1]]}
    margin = {
        name: np.minimum(starts[name] - first, last - true[name]) / DOUBLING for name in REGIMES
    }
    return {"truth": true, "margin": margin}


def count(block: Block) -> dict[str, object]:
    """A row of counts; the seed depends on the block alone."""
    rng = np.random.default_rng(
        [
            SEED,
            round(1000 * block.noise),
            block.repeats,
            round(10 * block.bend),
            list(KINDS).index(block.grid),
        ]
    )
    drawn = draw(
        rng, block.curves, block.grid, bend=block.bend, noise=block.noise, repeats=block.repeats
    )
    where = {name: getattr(block, name) for name in ("noise", "repeats", "bend", "grid")}
    return {**where, **tally(analyse(drawn), drawn)}


def section(processes: int | None) -> str:
    return render(keep("coverage", run(count, BLOCKS, "coverage", processes)))


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    cells = ["noise", "repeats"]
    return paragraphs(
        _INTRODUCTION,
        "Coverage in per cent, in brackets the share of intervals with an open end:",
        coverage_table(frame, cells, cells),
        "Over the cells, and of the intervals with both ends in all of them:",
        _summary(frame),
        "By kind of grid and bend, over all noises and repeats:",
        coverage_table(frame, ["grid", "bend"], ["reaches", "bend"]),
        _CLAIMS,
        claims_table(frame, cells, cells),
        _claimed(frame),
        _POWER,
        _power(frame),
    )


_INTRODUCTION = f"""Curves are knees with a bend of {", ".join(f"{bend:g}" for bend in BENDS[:-1])}
or {BENDS[-1]:g}, on doublings of the batch size, eight at least. Grids reach *both* ends: from 0
to 6 doublings (uniform) below where E leaves 1.2 E_min to 0 to 6 above where S comes to 1.2 S_min;
only the *small* or only the *large* end, the other side then ending anywhere within diminishing
returns; or *none*: they end 0 to 3 doublings short of perfect scaling's end, or begin as far beyond
the plateau's beginning, or, where the bend leaves room for it (0.6 to 1), they lie within
diminishing returns, eight batch sizes a factor √2 apart.
"""

_CLAIMS = f"""A regime is claimed when both ends of its interval are given. It is *falsely* claimed
if its end is not among the tested batch sizes. It is *missed* if it is there but not claimed:
*strictly* wherever its end lies among them, were it at the very edge; *held* where they go {ENOUGH}
doublings or more beyond the end to either side: at noise, an end can only be told from the grid's
edge by points on both sides of it. In per cent of such curves:
"""

_POWER = """How far beyond a regime's end must the batch sizes go? Both regimes, missed in per cent
of the curves that go so many doublings beyond the end, on the side where they go least:
"""


def _summary(frame: pd.DataFrame) -> str:
    each = frame.groupby(["noise", "repeats"], sort=False).sum(numeric_only=True)
    rows = []
    for name, short in SHORT.items():
        shares = each[f"covered:{name}"] / each["curves"]
        shut = each["curves"].sum() - each[f"open:{name}"].sum()
        rows.append(
            [
                short,
                f"{100 * shares.mean():.1f}",
                f"{100 * shares.min():.1f}",
                share(each[f"open:{name}"].sum(), each["curves"].sum()),
                share(each[f"shut:{name}"].sum(), shut),
            ]
        )
    head = ["covered", "mean of the cells", "least of the cells", "open", "with both ends, covered"]
    return table(head, rows)


def _claimed(frame: pd.DataFrame) -> str:
    """The claims of all cells together, in a sentence a regime."""
    sentences = []
    for name in REGIMES:
        wrong = share(frame[f"false:{name}"].sum(), frame[f"absent:{name}"].sum())
        missed = []
        for least in (0, ENOUGH):
            there, claimed = claims(frame, name, least)
            missed.append(share(there - claimed, there))
        sentences.append(
            f"Over all cells `{name}` is falsely claimed in {wrong} %, missed in {missed[0]} % "
            f"strictly, and in {missed[1]} % where it is held."
        )
    return "\n".join(sentences)


def _power(frame: pd.DataFrame) -> str:
    rows = []
    by = ["noise", "repeats"]
    for key, group in frame.groupby(by, sort=False):
        cells = []
        for m in range(FAR):
            there = sum(int(group[f"there:{name}:{m}"].sum()) for name in REGIMES)
            claimed = sum(int(group[f"claimed:{name}:{m}"].sum()) for name in REGIMES)
            cells.append(share(there - claimed, there))
        far = [claims(group, name, FAR) for name in REGIMES]
        there, claimed = sum(each[0] for each in far), sum(each[1] for each in far)
        cells.append(share(there - claimed, there))
        rows.append([*named(by, key), *cells])
    head = [f"{m}–{m + 1}" for m in range(FAR)]
    return table([*by, *head, f"{FAR} and more"], rows)
