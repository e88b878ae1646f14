"""From sources to curves, regimes and figures: what `results` and `analysis` do, in order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import analysis
import results
from analysis import Curve
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Query
from analysis.progress import each
from batchscale.output.errors import CommandError
from batchscale.run import Run
from results.errors import escaped
from results.storage.save import destination

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Sources = Sequence[str | Path | Run]


def located(
    sources: Sources,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    baseline: str | None,
    tolerance: float,
    estimator: str | None,
    search: str,
    definition: str | None,
    law: str | None,
) -> list[dict[str, Any]]:
    """The regimes of every curve; one that cannot be fitted has nulls, and a note that says why.

    Raises:
        ResultsError: a source that is none, no such definition, no curve that can be fitted, or
            no law across them.
    """
    asked = material(sources, target, where, by, baseline, tolerance, estimator, search)
    curves = asked.curves
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
    search: str,
    definition: str | None,
) -> list[dict[str, Any]]:
    """A law for each training algorithm; its curves' labels are among its ``curves``.

    Raises:
        ResultsError: as ``located`` does.
    """
    curves = material(sources, target, where, by, None, tolerance, estimator, search).curves
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
    for i, curve in enumerate(each(curves, "curves fitted", None)):
        try:
            found.append(analysis.regimes(curve, tolerance=tolerance, definition=definition))
        except analysis.TooFewBatchSizesError as error:
            failures[i] = error
            found.append(None)
    if failures and len(failures) == len(found):
        raise failures[0]
    return found, failures


def material(
    sources: Sources,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    under: Sequence[str] | None = None,
) -> FigureData:
    """All sources as one dataset, and what is asked of it."""
    if not sources:
        raise CommandError("no SOURCE", hint="a results folder, published, own, or a CSV file")
    asked = Query(
        sources=[one.results if isinstance(one, Run) else results.open(one) for one in sources],
        target=target,
        where=where,
        by=None if by is None else tuple(by),
        baseline=baseline,
        estimator=estimator,
        search=search,
        tolerance=tolerance,
        under=tuple(Limit.parse(text) for text in under or ()),
    )
    return FigureData(asked)


def report(
    sources: Sources,
    target: str | None,
    where: str | None,
    by: Sequence[str] | None,
    baseline: str | None,
    tolerance: float,
    estimator: str | None,
    search: str,
    title: str | None,
    output: str | Path,
) -> Path:
    """Write the report of what is asked for; its path.

    Raises:
        ResultsError: as ``located`` does, or a place that cannot be written to.
        CommandError: a file that is no page.
    """
    from analysis.report import page, payload

    path = destination(output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise CommandError(
            f"cannot write a report as {path.name}", hint="give it a name that ends in .html"
        )
    shown = material(sources, target, where, by, baseline, tolerance, estimator, search)
    text = page(payload(shown, title=title and escaped(title), pictures=True))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    return path


def _refuse_own_source(path: Path, sources: Sources) -> None:
    """A figure's numbers go beside it as CSV: never in the place of the file that it is drawn of.

    Raises:
        CommandError: they would.
    """
    beside = path.with_suffix(".csv")
    for source in sources:
        name = source.root if isinstance(source, Run) else source
        both = os.path.exists(name) and os.path.exists(beside)
        if both and os.path.samefile(name, beside):
            raise CommandError(
                f"the numbers of the figure would take the place of {name}",
                hint=f"another name: -o {path.stem}-figure{path.suffix or '.pdf'}",
            )


def _unfitted(
    curve: Curve, tolerance: float, definition: str | None, error: Exception
) -> dict[str, Any]:
    from analysis.fit.knee import QUANTITIES
    from analysis.fit.regimes import defined

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
        "example_unit": curve.example_unit,
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
    search: str,
    output: str | Path | None,
    ax: Axes | None,
    under: Sequence[str] | None = None,
    width: str | float | None = None,
    style: str | Path | None = None,
) -> tuple[Axes, list[Path]]:
    """Draw a figure; what was written, where ``output`` names a file.

    Raises:
        ResultsError: no such figure, width or style, a source that is none, nothing to draw.
    """
    from analysis import figures

    path = None if output is None else destination(output)
    if path is not None:
        _refuse_own_source(path, sources)
    shown = material(sources, target, where, by, baseline, tolerance, estimator, search, under)
    drawn = figures.draw(name, shown, ax=ax, width=width, style=style)
    if path is None:
        return drawn, []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    return drawn, figures.save(drawn, path, figures.numbers(name, shown))
