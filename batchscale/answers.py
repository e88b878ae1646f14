"""The answers to a `Query`: regimes, laws, a figure, the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import analysis
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Progress, Query
from analysis.fit.interval import Interval
from analysis.fit.knee_form import by_knee, check_form
from analysis.fit.search_limits import search_effect
from analysis.notes import codes
from batchscale.output.errors import CommandError
from results.errors import escaped
from results.reader import Results
from results.storage.save import destination

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analysis.figures import FigureKind
    from analysis.techniques.table import Table


def regimes(
    query: Query,
    *,
    law: str | None = None,
    crossover: bool = False,
    form: str = "convex",
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """The regimes of every curve; one that cannot be fitted has nulls, and a note that says why.

    Raises:
        ResultsError: a source that cannot be read, no such definition or form, no curve that can be
            fitted, no law across them, or no two curves that a crossover can be of.
        CommandError: a comparison of quantities by a knee.
    """
    check_form(form)
    if form != "convex" and query.baseline is not None:
        raise CommandError(
            f"--form {form} and --baseline exclude each other",
            hint="ratios are of quantities that assume no form: leave --form out",
        )
    data = fitted(query, progress)
    answers = [
        fit.to_dict() if isinstance(fit, analysis.Regimes) else _unfitted(curve, query)
        for curve, fit in zip(data.curves, data.fits, strict=True)
    ]
    for answer, curve, fit in zip(answers, data.curves, data.regimes, strict=True):
        if form != "convex":
            _by_knee(answer, curve, fit)
            continue
        effect = search_effect(curve, fit)
        answer["search_effect"] = (effect.factor if effect else Interval()).to_dict()
        note = effect.note(fit.critical_batch_size) if effect and fit else None
        answer["notes"] += [note] if note else []
    if query.baseline is not None:
        comparisons = analysis.compare(data.curves, data.regimes, query.baseline)
        for answer, comparison in zip(answers, comparisons, strict=True):
            answer["against"] = None if comparison is None else comparison.to_dict()
            answer["notes"] += [] if comparison is None else comparison.notes
    if law is not None:
        for fitted_law, rows in analysis.laws(data.curves, data.regimes, law):
            for row in rows:
                answers[row]["law"] = fitted_law.to_dict()
                answers[row]["notes"] += fitted_law.notes
    if crossover:
        for answer in answers:
            answer["crossovers"] = []
        for row, _, pair in analysis.crossovers(data.curves, data.regimes):
            answers[row]["crossovers"].append(pair.to_dict())
    for answer in answers:
        answer["note_codes"] = codes(answer["notes"])
    return answers


def _by_knee(answer: dict[str, Any], curve: analysis.Curve, fit: analysis.Regimes | None) -> None:
    """Put the quantities by the knee in the place of those that assume no form. What a search
    found is not judged by it."""
    answer |= {"form": "knee", "search_effect": Interval().to_dict()}
    if fit is not None:
        quantities, notes = by_knee(fit)
        answer |= {name: interval.to_dict() for name, interval in quantities.items()}
        answer["notes"] = [*notes, *curve.notes]


def techniques(
    query: Query,
    *,
    correction: str | None = None,
    quantities: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Table:
    """Every technique and optimizer against the plain one.

    Raises:
        ResultsError: a source that cannot be read, no such correction or quantity, no curve that
            can be fitted, or no two that can be compared.
    """
    from analysis.techniques.corrections import named
    from analysis.techniques.table import table

    if correction is not None:
        named(correction)  # before anything is fitted
    return table(fitted(query, progress), correction=correction, quantities=quantities)


def optimal_batch(query: Query, progress: Progress | None = None) -> list[dict[str, Any]]:
    """The batch size of least final loss at each budget, and its law, for each curve.

    Raises:
        ResultsError: a source that cannot be read, no final losses, or nowhere three batch sizes
            with one budget.
    """
    from analysis.fit.optimal_batch import optimal_batches

    data = FigureData(query, progress=progress)
    return [each.to_dict() for each in optimal_batches(data.final_losses)]


def best_at_batch(query: Query, progress: Progress | None = None) -> list[dict[str, Any]]:
    """The curves ranked by their final losses at each batch size and budget.

    Raises:
        ResultsError: a source that cannot be read, or no final losses.
    """
    from analysis.fit.budgets.ranking import rankings

    return [each.to_dict() for each in rankings(FigureData(query, progress=progress).final_losses)]


def save_figure(figure: FigureKind, data: FigureData, output: str | Path) -> None:
    """Draw a command's figure, and write it with a CSV file of its numbers beside it.

    Raises:
        ResultsError, CommandError: a place that cannot be written to.
    """
    from analysis import figures

    path = destination(output)
    drawn = figures.draw(figure, data)
    make_folder(path)
    figures.save(drawn, path, figures.numbers(figure, data))


def has_single_budget(query: Query) -> bool:
    """Whether the final losses of a query have one budget, so that there are no steps at equal
    loss.

    Raises:
        ResultsError: as ``best_at_batch`` does.
    """
    from analysis.curves.final_losses import same_budgets

    budgets = [budget for final in FigureData(query).final_losses for budget in final.budgets]
    return len({*same_budgets(np.array(budgets))}) == 1


def fitted(query: Query, progress: Progress | None) -> FigureData:
    """The data of a query; an error where none of its curves can be fitted."""
    if query.definition is not None:
        analysis.definitions.named(query.definition)
    data = FigureData(query, progress=progress)
    errors = [fit for fit in data.fits if isinstance(fit, analysis.TooFewBatchSizesError)]
    if errors and len(errors) == len(data.fits):
        raise errors[0]
    return data


def _unfitted(curve: analysis.Curve, query: Query) -> dict[str, Any]:
    from analysis.fit.interval import QUANTITIES, SLOPES
    from analysis.fit.regimes import defined, fitted_notes, penalized

    unknown = {"value": None, "low": None, "high": None}
    return {
        **curve.group,
        **{name: dict(unknown) for name in QUANTITIES},
        **defined(query.definition, None),
        "slopes": {name: dict(unknown) for name in SLOPES},
        "level_ends": {"small": None, "large": None},
        "level": 0.9,
        "tolerance": query.tolerance,
        "batch_sizes": curve.batch_sizes,
        "trials": curve.trials,
        "target": None if curve.target is None else str(curve.target),
        "example_unit": curve.example_unit,
        "censored": curve.censored,
        "estimator": curve.named,
        "points": curve.tabulate(),
        "noise": None,
        "best": None,
        **penalized(None, None),
        "rise": None,
        "notes": [*fitted_notes(curve, None)],
    }


def limits(texts: Iterable[str] | None) -> tuple[Limit, ...]:
    """Budgets of texts such as ``"5000 steps"``."""
    return tuple(Limit.parse(text) for text in texts or ())


def figure_kind(figure: str | Callable[..., Any] | FigureKind) -> FigureKind:
    """A figure by its name, by ``file.py:function`` (``file.py`` alone: ``draw``), or a function.

    The numbers of a user's figure ``draw`` are returned by ``numbers`` in the same file, those of
    another function by one of its name and ``_numbers``.

    Raises:
        ResultsError: there is no such figure.
        CommandError: there is no such file, or no such function in it.
    """
    from analysis.figures import FigureKind, get

    if isinstance(figure, FigureKind):
        return figure
    if callable(figure):
        return FigureKind(name=figure.__name__, draw=figure)
    path, _, name = figure.rpartition(":") if ".py:" in figure else (figure, "", "draw")
    if not path.endswith(".py"):
        return get(figure)
    from workloads.user_code.user_files import find_file, import_file

    file = find_file(path, Path())
    if file is None:
        raise CommandError(f"there is no file {path}", hint="give its path from the current folder")
    module = import_file(file)
    functions = {
        key: value
        for key, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", None) == module.__name__
    }
    if name not in functions:
        raise CommandError(
            f"{path} has no function {name!r}",
            hint=f"its functions: {', '.join(functions)}" if functions else None,
        )
    numbers = functions.get("numbers" if name == "draw" else f"{name}_numbers")
    title = file.stem if name == "draw" else name
    return FigureKind(name=title, draw=functions[name], numbers=numbers)


def plot(
    figure: FigureKind,
    query: Query,
    *,
    ax: Axes | None = None,
    width: str | float | None = None,
    style: str | Path | None = None,
    output: str | Path | None = None,
    options: Mapping[str, object],
    progress: Progress | None = None,
) -> tuple[Axes, list[Path]]:
    """Draw a figure; what was written, where ``output`` names a file.

    Raises:
        ResultsError: no such option, width or style, a source that cannot be read, nothing to draw.
        CommandError: a place that cannot be written to.
    """
    from analysis import figures

    figure.check(options)
    path = None if output is None else destination(output)
    if path is not None:
        refuse_overwriting(path, query.sources)
    data = FigureData(query, progress=progress)
    drawn = figures.draw(figure, data, ax=ax, width=width, style=style, options=options)
    if path is None:
        return drawn, []
    numbers = figures.numbers(figure, data, options=options) if figure.numbers else None
    make_folder(path)
    return drawn, figures.save(drawn, path, numbers)


def refuse_overwriting(path: Path, sources: Iterable[Any]) -> None:
    """A figure's numbers are written beside it as CSV; refuse to overwrite a file that it is drawn
    from.

    Raises:
        CommandError: they would.
    """
    table = path.with_suffix(".csv")
    for source in sources:
        name = source.root if isinstance(source, Results) else source
        if not isinstance(name, (str, Path)):
            continue
        both = os.path.exists(name) and os.path.exists(table)
        paths = [os.path.abspath(each) for each in (name, table)]
        if os.path.samefile(*paths) if both else paths[0] == paths[1]:
            raise CommandError(
                f"the numbers of the figure would overwrite {name}",
                hint=f"choose another name: -o {path.stem}-figure{path.suffix or '.pdf'}",
            )


def make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error


def report(
    query: Query, output: str | Path, *, title: str | None = None, progress: Progress | None = None
) -> Path:
    """Write the report of a query; its path.

    Raises:
        ResultsError: a source that cannot be read, or no curve.
        CommandError: a file that is not an HTML page, or a place that cannot be written to.
    """
    from analysis.report import page, payload

    path = destination(output)
    if path.suffix.lower() not in (".html", ".htm"):
        raise CommandError(
            f"cannot write a report as {path.name}", hint="give it a name that ends in .html"
        )
    data = FigureData(query, progress=progress)
    text = page(payload(data, title=title and escaped(title), pictures=True))
    make_folder(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    return path
