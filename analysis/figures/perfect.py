"""The perfect-scaling line of a curve."""

from __future__ import annotations

import numpy as np

from analysis.curves import Curve
from analysis.regimes import Regimes


def perfect_examples(curve: Curve, found: Regimes | None) -> float | None:
    """Examples to target under perfect scaling: the mean of log B·S over its range.

    A line through the smallest batch size would tilt with one lucky point. None where no range of
    perfect scaling is known.
    """
    if found is None:
        return None
    until = found.perfect_scaling_until
    end = until.value if until.value is not None else until.low
    if end is None:
        return None
    sizes, steps = curve.to_fit()
    within = sizes <= end * (1 + 1e-9)
    if not within.any():
        return None
    return float(np.exp(np.log(sizes[within] * steps[within]).mean()))
