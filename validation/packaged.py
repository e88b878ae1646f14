"""The packaged curves and their regimes, each computed once."""

from __future__ import annotations

from functools import cache

import pandas as pd

import results
from analysis import curves, regimes
from analysis.curves.curve import Curve
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes, TooFewBatchSizesError
from results.storage.location import PACKAGED

Located = tuple[Curve, Regimes]


@cache
def trials(packaged: str) -> pd.DataFrame:
    """The trials of the packaged data of that name (``published`` or ``own``)."""
    return results.open(packaged).trials


def sources(packaged: str) -> list[str]:
    """The sources of packaged data, in the order of their names; none where none is installed."""
    if not any((PACKAGED[packaged] / "trials").glob("*/*.parquet")):
        return []
    return sorted(trials(packaged)["source"].dropna().unique())


@cache
def located(
    packaged: str,
    source: str,
    workload: str | None = None,
    definition: str | None = None,
    experiment: str | None = None,
) -> tuple[Located, ...]:
    """The curves of one source (and workload, and experiment) with their regimes; those of too few
    batch sizes are left out.

    Raises:
        ResultsError: the source has none.
    """
    rows, studies = trials(packaged), results.open(packaged).studies
    of_source = studies[studies["source"] == source]
    for column, value in (("source", source), ("workload", workload), ("experiment", experiment)):
        if value is not None:
            rows = rows[rows[column] == value]
    pairs = []
    for curve in curves(rows, studies=of_source):
        try:
            pairs.append((curve, regimes(curve, definition=definition)))
        except TooFewBatchSizesError:
            continue
    return tuple(pairs)


def named(curve: Curve) -> str:
    """The label of a packaged curve: its workload, MLPerf's submitter, and training algorithm."""
    parts = (curve.group.get(name) for name in ("workload", "submitter", "optimizer"))
    return ", ".join(str(part) for part in parts if part)


def short(number: float) -> str:
    """Three significant digits at most."""
    return f"{float(f'{number:.3g}'):,g}"


def interval(quantity: Interval) -> str:
    """``190 [150, 240]``, ``≥ 150``, ``≤ 240``, ``open``."""
    value, low, high = quantity.value, quantity.low, quantity.high
    if low is not None and high is not None:
        ends = f"[{short(low)}, {short(high)}]"
        return ends if value is None else f"{short(value)} {ends}"
    if low is not None:
        return f"≥ {short(low)}"
    return "open" if high is None else f"≤ {short(high)}"
