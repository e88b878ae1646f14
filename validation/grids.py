"""Knees with known answers, on grids of batch sizes that reach both ends, one, or none."""

from __future__ import annotations

import numpy as np

from analysis.fit import knee as q
from analysis.fit.knee import QUANTITIES, Array, log_steps, theta
from validation.tally import REGIMES, TOLERANCE, Drawn

KINDS = ("both", "small", "large", "none")

DOUBLING = float(np.log(2.0))
FEWEST = 8
"""Batch sizes of a grid at least."""

BEYOND = 6.0
"""Doublings up to which a grid goes beyond an end that it reaches."""

SHORT = 3.0
"""Doublings up to which it stays short of one."""


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
        width, away = float(FEWEST - 1), rng.uniform(0.0, SHORT)
        inside = (FEWEST - 1) / 2
        where = rng.integers(3 if 2 * half > inside else 2)
        if where == 2:
            step, first = 0.5, rng.uniform(-half, half - inside)
        else:
            first = -half - away - width if where == 0 else half + away
        last = first + step * (FEWEST - 1)
    count = round((last - first) / step - 1e-9 + 0.5) + 1 if kind != "none" else FEWEST
    down = kind == "small"
    steps = step * np.arange(count)
    return DOUBLING * (last - steps[::-1] if down else first + steps)


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
