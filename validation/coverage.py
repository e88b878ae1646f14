"""Table 1: do the intervals cover, where the curve is a knee?

A cell is a noise level and a number of repeats. Its curves cross bends of the knee with grids of
batch sizes that reach both of its ends, one, or none, a block of ``CURVES`` for each pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from validation import grids
from validation.page import SHORT, keep, kept, paragraphs, share, table
from validation.pool import run
from validation.tally import (
    ENOUGH,
    FAR,
    REGIMES,
    analyse,
    claims,
    claims_table,
    coverage_table,
    named,
    tally,
)

NOISES = (0.01, 0.02, 0.05, 0.10, 0.20)
REPEATS = (1, 3, 5)
BENDS = (0.6, 0.8, 1.0, 1.7, 3.0)
CURVES = 50
SEED = 2026


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
    for grid in grids.KINDS
)


def count(block: Block) -> dict[str, object]:
    """A row of counts; the seed is the block's own, whatever else is run."""
    rng = np.random.default_rng(
        [
            SEED,
            round(1000 * block.noise),
            block.repeats,
            round(10 * block.bend),
            list(grids.KINDS).index(block.grid),
        ]
    )
    drawn = grids.draw(
        rng, block.curves, block.grid, bend=block.bend, noise=block.noise, repeats=block.repeats
    )
    where = {name: getattr(block, name) for name in ("noise", "repeats", "bend", "grid")}
    return {**where, **tally(analyse(drawn), drawn)}


def section(processes: int | None) -> str:
    return render(keep("coverage", run(count, BLOCKS, "coverage", processes)))


def rendered() -> str:
    """The section as the kept counts give it."""
    return render(kept("coverage"))


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
    said = []
    for name in REGIMES:
        wrong = share(frame[f"false:{name}"].sum(), frame[f"absent:{name}"].sum())
        missed = []
        for least in (0, ENOUGH):
            there, claimed = claims(frame, name, least)
            missed.append(share(there - claimed, there))
        said.append(
            f"Over all cells `{name}` is falsely claimed in {wrong} %, missed in {missed[0]} % "
            f"strictly, and in {missed[1]} % where it is held."
        )
    return "\n".join(said)


def _power(frame: pd.DataFrame) -> str:
    rows = []
    by = ["noise", "repeats"]
    for key, some in frame.groupby(by, sort=False):
        cells = []
        for m in range(FAR):
            there = sum(int(some[f"there:{name}:{m}"].sum()) for name in REGIMES)
            claimed = sum(int(some[f"claimed:{name}:{m}"].sum()) for name in REGIMES)
            cells.append(share(there - claimed, there))
        far = [claims(some, name, FAR) for name in REGIMES]
        there, claimed = sum(each[0] for each in far), sum(each[1] for each in far)
        cells.append(share(there - claimed, there))
        rows.append([*named(by, key), *cells])
    head = [f"{m}–{m + 1}" for m in range(FAR)]
    return table([*by, *head, f"{FAR} and more"], rows)
