"""From sources to curves, regimes and figures: what `results` and `analysis` do, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import analysis
import results
from analysis import Curve
from batchscale.errors import CommandError
from batchscale.run import Run
from results.looks import Looks
from results.reader import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Sources = Sequence[str | Path | Run]

_OF_A_TARGET = ("target", "status", "stop_reason", "last_miss", "lower_is_better")
"""In the names of the columns that another target changes."""


def located(
    sources: Sources,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    baseline: str | None,
    tolerance: float,
    estimator: str | None,
    definition: str | None,
    law: str | None,
) -> list[dict[str, Any]]:
    """The regimes of every curve; one that cannot be fitted has nulls, and a note that says why.

    Raises:
        ResultsError: a source that is none, no such definition, no curve that can be fitted, or
            no law across them.
    """
    curves = gather(sources, target, where, by, baseline, estimator)
    found, failures = _located(curves, tolerance, definition)
    answers = [
        _unfitted(curve, tolerance, definition, failures[i]) if one is None else one.to_dict()
        for i, (curve, one) in enumerate(zip(curves, found, strict=True))
    ]
    if baseline is not None:
        for answer, held in zip(answers, analysis.compare(curves, found, baseline), strict=True):
            answer["against"] = None if held is None else held.to_dict()
            answer["notes"] += [] if held is None else held.notes
    if law is not None:
        for one_law, rows in analysis.laws(curves, found, law):
            for row in rows:
                answers[row]["law"] = one_law.to_dict()
                answers[row]["notes"] += one_law.notes
    return answers


def laws(
    sources: Sources,
    against: str,
    quantity: str,
    sizes: Mapping[str, float] | None,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    tolerance: float,
    estimator: str | None,
    definition: str | None,
) -> list[dict[str, Any]]:
    """A law for each training algorithm; its curves' labels are among its ``curves``.

    Raises:
        ResultsError: as ``located`` does.
    """
    curves = gather(sources, target, where, by, None, estimator)
    found, _ = _located(curves, tolerance, definition)
    return [
        {**law.to_dict(), "curves": [curves[row].label for row in rows]}
        for law, rows in analysis.laws(curves, found, against, quantity=quantity, sizes=sizes)
    ]


def _located(
    curves: Sequence[Curve], tolerance: float, definition: str | None
) -> tuple[list[analysis.Regimes | None], dict[int, analysis.TooFewBatchSizesError]]:
    """Regimes, None where a curve cannot be fitted, and why by its place."""
    if definition is not None:
        analysis.definitions.named(definition)
    found: list[analysis.Regimes | None] = []
    failures: dict[int, analysis.TooFewBatchSizesError] = {}
    for i, curve in enumerate(curves):
        try:
            found.append(analysis.regimes(curve, tolerance=tolerance, definition=definition))
        except analysis.TooFewBatchSizesError as error:
            failures[i] = error
            found.append(None)
    if failures and len(failures) == len(found):
        raise failures[0]
    return found, failures


def gather(
    sources: Sources,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    baseline: str | None,
    estimator: str | None,
) -> list[Curve]:
    """The curves of all sources, read as one dataset."""
    if not sources:
        raise CommandError("no SOURCE", hint="a results folder, published, own, or a CSV file")
    opened = [_opened(source, target, where) for source in sources]
    studies = _together(one.studies for one in opened)
    trials = _in_order(_together(one.trials for one in opened), studies)
    if trials.empty and where is not None:
        raise CommandError(f"no trial of {opened[0].root} has {where}")
    return analysis.curves(
        trials,
        studies=studies,
        measurements=Looks(opened),
        by=by,
        baseline=baseline,
        estimator=estimator,
    )


def _opened(source: str | Path | Run, target: str | None, where: str | None) -> Results:
    found = source.results if isinstance(source, Run) else results.open(source)
    first = where is not None and not any(name in where.lower() for name in _OF_A_TARGET)
    if first and where is not None:
        # The same rows either way, and trials that are left out need not have the metric.
        found = found.where(where)
    found = found.at_goals() if target is None else found.with_target(target)
    return found if first or where is None else found.where(where)


def _together(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    held = list(frames)
    some = [frame for frame in held if len(frame)]
    return pd.concat(some, ignore_index=True) if len(some) > 1 else (some or held)[0]


def _in_order(trials: pd.DataFrame, studies: pd.DataFrame) -> pd.DataFrame:
    """Trials as their experiments list the studies, not as they happened to end."""
    places = {study: place for place, study in enumerate(studies["study"])}
    order = trials["study"].map(places).fillna(len(places))
    return trials.loc[order.sort_values(kind="stable").index].reset_index(drop=True)


def _unfitted(
    curve: Curve, tolerance: float, definition: str | None, error: Exception
) -> dict[str, Any]:
    from analysis.estimate import QUANTITIES
    from analysis.regimes import defined

    unknown = {"value": None, "low": None, "high": None}
    return {
        **curve.group,
        **{name: dict(unknown) for name in QUANTITIES},
        **defined(definition, None),
        "level": 0.9,
        "tolerance": tolerance,
        "batch_sizes": curve.batch_sizes,
        "trials": curve.trials,
        "target": None if curve.target is None else str(curve.target),
        "censored": curve.censored,
        "estimator": curve.named,
        "points": curve.tabulate(),
        "best": None,
        "forms": [],
        "notes": [str(error), *curve.notes],
    }


def figure(
    name: str,
    sources: Sources,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    baseline: str | None,
    tolerance: float,
    estimator: str | None,
    output: str | Path | None,
    ax: Axes | None,
) -> tuple[Axes, list[Path]]:
    """Draw a figure; what was written, where ``output`` names a file.

    Raises:
        ResultsError: no such figure, a source that is none, nothing to draw.
    """
    from analysis import figures

    curves = gather(sources, target, where, by, baseline, estimator)
    found = [_regimes(curve, tolerance) for curve in curves]
    drawn = figures.draw(name, curves, found, ax=ax)
    if output is None:
        return drawn, []
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    return drawn, figures.save(drawn, path, figures.numbers(name, curves, found))


def _regimes(curve: Curve, tolerance: float) -> analysis.Regimes | None:
    try:
        return analysis.regimes(curve, tolerance=tolerance)
    except analysis.TooFewBatchSizesError:
        return None
