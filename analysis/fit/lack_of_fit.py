"""Whether batch sizes scatter about a curve more than repeated runs do within a batch size."""

from __future__ import annotations

import numpy as np

from analysis.fit.estimate import Fitted
from analysis.fit.least_squares import residuals

LACK_OF_FIT = 0.05
"""Level of the lack-of-fit test below which repeated runs are one point a batch size."""


def lack_of_fit(answer: Fitted) -> float | None:
    """The level of the F test of the curve against the scatter of repeated runs (Draper & Smith,
    §2.1); None without repeats, or with too few batch sizes to tell."""
    from scipy.special import fdtrc  # a third of a second to import: not at start

    data = answer.data
    used = data.weight[0] > 0
    x, off = data.x[0][used], residuals(data, answer.params)[0][used]
    _, which = np.unique(x, return_inverse=True)
    counts = np.bincount(which)
    pure_spare = len(x) - len(counts)
    fit_spare = len(counts) - int(data.parameters[0])
    if pure_spare < 1 or fit_spare < 1:
        return None
    means = np.bincount(which, off) / counts
    pure = float(np.square(off - means[which]).sum())
    lack = float((counts * means**2).sum())
    if pure <= 0:
        return None
    return float(fdtrc(fit_spare, pure_spare, (lack / fit_spare) / (pure / pure_spare)))
