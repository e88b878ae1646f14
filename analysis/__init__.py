"""Analysis of results: regimes with their uncertainty, comparisons and figures.

``curves`` divides trials into curves, ``regimes`` locates the regimes of one; ``figures`` draws
(imported on demand: matplotlib is heavy).
"""

from analysis.curves.curve import Curve, curves
from analysis.curves.estimators import EstimatorError
from analysis.curves.points import Point
from analysis.fit import definitions
from analysis.fit.comparisons import Comparison, compare
from analysis.fit.crossovers import Crossover, crossovers
from analysis.fit.interval import Interval
from analysis.fit.laws import Law, laws
from analysis.fit.regimes import Regimes, TooFewBatchSizesError, regimes

__all__ = [
    "Comparison",
    "Crossover",
    "Curve",
    "EstimatorError",
    "Interval",
    "Law",
    "Point",
    "Regimes",
    "TooFewBatchSizesError",
    "compare",
    "crossovers",
    "curves",
    "definitions",
    "laws",
    "regimes",
]
