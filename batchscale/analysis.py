"""The analysis commands for Python: each function is one command, and makes one `Query`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack, cast

import analysis
from analysis.figure_data import Query
from batchscale import answers
from batchscale.output.errors import CommandError
from results.storage.location import default_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from results.reader import Results


class Opened(Protocol):
    """A `batchscale.Run`."""

    @property
    def results(self) -> Results: ...


Source = str | Path | Opened


class QueryOptions(TypedDict, total=False):
    """The options that every function below has: which trials are read, and how. `regimes`
    describes them; the command line has them too (`batchscale.cli.options`)."""

    target: str | None
    where: str | None
    by: Sequence[str] | None
    baseline: str | None
    tolerance: float
    estimator: str | None
    search: str
    unit: str | None
    read: str | None


class RegimeOptions(QueryOptions, total=False):
    """Those of `regimes`."""

    definition: str | None
    form: str
    law: str | None
    crossover: bool
    under: Sequence[str] | None


class TechniqueOptions(QueryOptions, total=False):
    """Those of `techniques`."""

    correction: str | None
    quantities: Sequence[str] | None
    under: Sequence[str] | None


_OPTIONS = {*QueryOptions.__annotations__}


def regimes(
    *sources: Source,
    definition: str | None = None,
    form: str = "convex",
    law: str | None = None,
    crossover: bool = False,
    under: Sequence[str] | None = None,
    **options: Unpack[QueryOptions],
) -> list[dict[str, Any]]:
    """The three regimes of each curve with their intervals, as ``regimes --json`` prints them.

    Args:
        sources: places of trials; several are read as one.
        target: ``"METRIC < VALUE"``: steps to target are computed again from the measurements.
        where: an SQL condition on trials.
        by: columns of the training algorithm that each get curves of their own; the best over the
            others is taken.
        baseline: the curve to compare the others with, which is listed first: ``"sgd"``. Each other
            one has ``against``: its baseline, the ``ratios`` of its quantities over the baseline's
            with intervals, and a ``sentence`` (see ``analysis.fit.comparisons``).
        tolerance: τ: perfect scaling is E(B) <= (1+τ) E_min, maximal S(B) <= (1+τ) S_min.
        estimator: what represents a batch size: ``minimum``, ``best_of_10`` or
            ``median_of_searches``; by default as the trials' column says.
        search: ``present``: of each study the trials of its latest search count; ``all``: those
            of every search, whatever its space, method or seed.
        unit: what batch sizes and data are counted in: ``examples`` (the default), ``sequences`` or
            ``tokens``, by the trials' ``tokens_per_example``.
        read: ``final``: batch sizes are compared at the loss of ``target``, by the losses at the
            end of runs with several budgets (docs/comparing.md); see ``best_at_batch`` for one.
        definition: add the critical batch size by another definition, ``zhang2024`` or
            ``mccandlish2018``, under ``critical_batch_size_<definition>``.
        form: ``knee``: the quantities are asymptotes of the knee, an assumed form, which may lie
            beyond the tested batch sizes (``analysis.fit.knee_form``).
        law: a column: the critical batch size as a power of it, across the curves of each training
            algorithm, under ``law`` of each of them; see ``laws``.
        crossover: add ``crossovers`` with each later curve of the same workload, data set and
            target: the batch sizes ``at`` which the curve that takes fewer steps changes, with
            intervals, ``better``, the curves in that order, and a ``sentence`` (see
            ``analysis.fit.crossovers``).
        under: budgets, ``["1e6 examples", "4e6 examples"]``: final losses are read at each of them,
            where the schedule is constant; other trials count as if they had been stopped at the
            smallest.
    """
    query = query_of(sources, options, definition=definition, under=answers.limits(under))
    return answers.regimes(query, law=law, crossover=crossover, form=form)


def techniques(
    *sources: Source,
    correction: str | None = None,
    quantities: Sequence[str] | None = None,
    under: Sequence[str] | None = None,
    pool: bool = False,
    **options: Unpack[QueryOptions],
) -> list[dict[str, Any]]:
    """Every technique, schedule and optimizer against the plain one, as ``techniques --json``
    prints it.

    Args:
        correction: of the p-values, for all ratios of the answer: ``dunnett`` (the default of
            experiments that change one factor at a time), ``holm`` (of all others), ``fdr`` or
            ``none``.
        quantities: which of ``critical_batch_size``, ``perfect_scaling_until``, ``min_steps`` and
            ``min_examples`` are compared; all by default.
        baseline: the curve to compare all others with. By default a technique is compared with
            the same optimizer without one, and an optimizer with plain SGD, or the first.
        pool: the geometric mean of each ratio over the workloads, three at least, instead.

    The others are those of ``regimes``.

    Returns:
        For each curve that has a baseline its ``name`` (what it changes), the ``baseline``;
        ``active``, the share of best trials in which that acted before the target was reached, and
        whether it is ``tested`` so; ``ratios`` of the quantities: ``value``, ``low`` and ``high``
        at ``level``, ``p`` of "the ratio is 1", ``p_corrected``; the ``correction`` and for how
        many ratios (``compared``); a ``sentence``, ``notes`` and their ``note_codes``. With
        ``pool``, for each name its ``ratios``: the mean and its interval, ``p`` and
        ``p_corrected``; ``prediction``, the interval of another workload's ratio; ``scatter``
        between workloads; the ``workloads``, and those that are ``left_out``.
    """
    from analysis.techniques.pooled import pooled

    query = query_of(sources, options, under=answers.limits(under))
    made = answers.techniques(query, correction=correction, quantities=quantities)
    return (pooled(made) if pool else made).to_dicts()


def laws(
    *sources: Source,
    against: str,
    quantity: str = "critical_batch_size",
    sizes: Mapping[str, float] | None = None,
    definition: str | None = None,
    **options: Unpack[QueryOptions],
) -> list[dict[str, Any]]:
    """A quantity as a power of model size, data size or target, for each training algorithm.

    Args:
        against: a column that distinguishes the curves (``"width"``), or ``"target"``. Names that
            end in a number with k, m or b, as ``transformer_85m``, are that number.
        quantity: ``critical_batch_size`` (by ``definition``, if one is given), ``min_steps``, …
        sizes: what each value of the column stands for, instead: ``{"small": 1e6, "large": 8e6}``.

    The others are those of ``regimes``.

    Returns:
        For each law ``exponent`` and ``coefficient`` with intervals, ``scatter`` about it in log
        units, the ``sizes`` and ``curves`` it rests on, a ``sentence``, ``notes``.
    """
    data = answers.fitted(query_of(sources, options, definition=definition), None)
    fitted = analysis.laws(data.curves, data.regimes, against, quantity=quantity, sizes=sizes)
    return [
        {**law.to_dict(), "curves": [data.curves[row].label for row in rows]}
        for law, rows in fitted
    ]


def optimal_batch(
    *sources: Source, under: Sequence[str] | None = None, **options: Unpack[QueryOptions]
) -> list[dict[str, Any]]:
    """The batch size of least final loss at each budget D, B_opt(D), and its law B_opt = k · D^p.

    Args:
        target: names the metric where there are several; its value is not used.
        under: budgets, ``["1e6 examples", "4e6 examples"]``, at which runs of a constant schedule
            are read; by default each run is read at its end.

    The others are those of ``regimes``.

    Returns:
        For each curve its ``optima`` (``budget``, ``optimal_batch_size`` and the ``law`` there with
        intervals, ``best_tested``, ``loss``, ``tested``, ``counted``: the batch sizes that the
        parabola rests on), ``exponent`` and ``coefficient`` of the law with intervals, ``scatter``
        about it in log units, ``noise`` of one loss, a ``sentence``, ``notes``. Budgets and batch
        sizes are in ``unit``.
    """
    return answers.optimal_batch(_of_final_losses("optimal_batch", sources, options, under))


def best_at_batch(
    *sources: Source, under: Sequence[str] | None = None, **options: Unpack[QueryOptions]
) -> list[dict[str, Any]]:
    """Which curve is best at which batch size, by the final losses of runs with one budget.

    Args:
        target: names the metric where there are several; its value is not used.
        under: budgets, ``["1e6 examples", "4e6 examples"]``, at which runs of a constant schedule
            are read; by default each run is read at its end.

    The others are those of ``regimes``.

    Returns:
        For each workload and ``budget`` (in ``unit``, as batch sizes are) ``batch_sizes``, a list
        with the ``curves`` at each, the best first: ``mean`` of its final values (in the unit of
        the metric) over ``runs`` (seeds of the best learning rate), its ``standard_error``, ``low``
        and ``high`` at ``level``; how many of the runs ``failed``; ``p`` of "the best is no better
        than this one", a one-sided test of Welch (1947) times the number of ``comparisons``
        (Bonferroni). The best is ``significant`` where each p is at most ``alpha``; None where runs
        do not repeat each other. ``crossovers`` of each pair: the batch sizes ``at`` which the
        better one changes, with intervals, ``better``, the curves in that order, and a
        ``sentence``. ``best_batch_sizes``: by curve, as of ``optimal_batch``. ``notes``,
        ``note_codes``. The method: ``analysis.fit.budgets``.

    Raises:
        ResultsError: a source that cannot be read, several metrics of which none is named, or no
            run that ended at its budget.
        TypeError: an option that it does not have.
    """
    return answers.best_at_batch(_of_final_losses("best_at_batch", sources, options, under))


def plot(
    figure: str | Callable[..., Any],
    *sources: Source,
    under: Sequence[str] | None = None,
    width: str | float | None = None,
    style: str | Path | None = None,
    output: str | Path | None = None,
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw a figure; where ``output`` is given, also write it, with its numbers beside it.

    Args:
        figure: a name that ``list("figures")`` has, ``file.py:function``, or a function.
        sources: as of ``regimes``, likewise ``target`` … ``unit``.
        under: budgets, ``["5000 steps", "10 epochs", "1e8 tokens"]``: only what trials reached
            within them counts.
        width: ``column`` (3.4 inches), ``two-columns`` (7), ``slide`` (10, with larger type) or
            inches; else one column, or two where the figure needs them.
        style: a matplotlib style sheet's file or name: what it sets overrides the packaged style,
            as matplotlib's settings and ``plt.style.context`` around this call do.
        output: a file to write; else none.
        ax: axes to draw on, as of a grid that you made; else a new figure.
        options: the figure's own: the keyword arguments of its function.
    """
    own = {name: options.pop(name) for name in [*options] if name not in _OPTIONS}
    query = query_of(sources, cast(QueryOptions, options), under=answers.limits(under))
    return answers.plot(
        answers.figure_kind(figure), query, ax=ax, width=width, style=style, output=output,
        options=own,
    )[0]  # fmt: skip


def report(
    *sources: Source,
    title: str | None = None,
    output: str | Path = "report.html",
    **options: Unpack[QueryOptions],
) -> Path:
    """Write one self-contained HTML page: findings, interactive curves, tables, sources.

    Args:
        title: its heading, instead of one made of the workloads' names.
        output: the file; its folder is made.

    The others are those of ``regimes``. Without a ``baseline`` curves are compared with sgd, or
    else with the first of their workload.

    Raises:
        ResultsError: a source that cannot be read, no curve, or a place that cannot be written to.
    """
    query = query_of(sources, options)
    return answers.report(query, output, title=title)


def serve(
    source: str | Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    on_ready: Callable[[str], None] | None = None,
    say: Callable[[str], None] | None = None,
    **options: Unpack[QueryOptions],
) -> None:
    """Serve the report of a results folder, live over a sweep that runs, until interrupted.

    It reads the dataset and the claims, writes nothing, and may begin before the sweep does.

    Args:
        host: an address of this machine; with the default, loopback, nobody else can read the page.
        port: one that is free, 0 for any; the first free one from 8080 on unless given.
        on_ready: called with the address of the page.
        say: called with a line where something is wrong with the results or the address.

    The others are those of ``regimes``.

    Raises:
        CommandError: no such port or host.
        ResultsError: the source is a file, or a folder of something else.
        KeyboardInterrupt: how it ends.
    """
    from batchscale.live.service import LiveReport

    query = query_of([source or default_results()], options)
    with LiveReport(query, host=host, port=port, say=say) as service:
        if on_ready is not None:
            on_ready(service.server.url)
        service.forever()


def _of_final_losses(
    name: str, sources: Sequence[Source], options: QueryOptions, under: Sequence[str] | None
) -> Query:
    """The query of a function of final losses, which lacks the options of steps to a target."""
    unused = {"baseline", "tolerance", "estimator", "read"} & {*options}
    if unused:
        raise TypeError(f"{name}() has no option {min(unused)}")
    return query_of(sources, options, read="final", under=answers.limits(under))


def query_of(sources: Sequence[Source], options: QueryOptions, **further: Any) -> Query:
    """The query of a call.

    Raises:
        CommandError: no source.
        TypeError: an option that there is not.
    """
    if not sources:
        raise CommandError("no SOURCE", hint="a results folder, published, own, or a CSV file")
    if unknown := {*options} - _OPTIONS:
        raise TypeError(
            f"no option is called {min(unknown)!r}; options: {', '.join(sorted(_OPTIONS))}"
        )
    opened: list[Any] = [getattr(source, "results", source) for source in sources]
    return Query(sources=opened, **options, **further)
