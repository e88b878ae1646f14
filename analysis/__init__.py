"""What it means: regimes with their uncertainty, comparisons and figures.

``curves`` divides trials into curves, ``regimes`` locates the regimes of one; ``figures`` draws
(imported on demand: matplotlib is heavy).
"""

from analysis import definitions
from analysis.comparisons import Comparison, compare
from analysis.curves import Curve, UnequalEstimatorsError, UnequalEvaluationsError, curves
from analysis.estimators import EstimatorError
from analysis.laws import Law, laws
from analysis.points import Point
from analysis.regimes import Interval, Regimes, TooFewBatchSizesError, regimes

__all__ = [
    "Comparison",
    "Curve",
    "EstimatorError",
    "Interval",
    "Law",
    "Point",
    "Regimes",
    "TooFewBatchSizesError",
    "UnequalEstimatorsError",
    "UnequalEvaluationsError",
    "compare",
    "curves",
    "definitions",
    "laws",
    "regimes",
]
