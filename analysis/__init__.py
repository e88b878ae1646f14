"""What it means: regimes with their uncertainty, comparisons and figures.

``curves`` divides trials into curves, ``regimes`` locates the regimes of one; ``figures`` draws
(imported on demand: matplotlib is heavy).
"""

from analysis.curves import Curve, UnequalLooksError, curves
from analysis.points import Point
from analysis.regimes import Interval, Regimes, TooFewBatchSizesError, regimes

__all__ = [
    "Curve",
    "Interval",
    "Point",
    "Regimes",
    "TooFewBatchSizesError",
    "UnequalLooksError",
    "curves",
    "regimes",
]
