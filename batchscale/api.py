"""One function behind each command; what `import batchscale` gives.

Nothing is imported before the function that needs it is called: what reads results works where
torch and Ray are not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from batchscale.run import Run
    from batchscale.trials import OnMeasure, TrialRun
    from experiments.records.status import Status
    from experiments.schedules import Schedule
    from experiments.scheduling.events import Observer
    from experiments.training.check import Finding
    from results.imports import Imported
    from results.storage.location import Location
    from workloads import Workload

    WorkloadLike = str | type[Workload] | Workload


def default_results() -> str:
    """``$BATCHSCALE_RESULTS``, else ``results/runs`` here."""
    return os.environ.get("BATCHSCALE_RESULTS") or "results/runs"


def open(source: str | Path | Location) -> Run:
    """What was measured: a results folder or URI, ``published`` or ``own`` (packaged data), or a
    CSV or Parquet file of one's own.

    Raises:
        ResultsError: it is none of these.
    """
    import results
    from batchscale.run import Run

    return Run(results.open(source))


def sweep(
    experiment: str | Path | Mapping[str, Any] | None = None,
    *,
    results: str | Path | Location | None = None,
    address: str = "auto",
    overrides: Sequence[str] = (),
    seconds: float | None = None,
    keep_old: bool = False,
    retrain: bool = False,
    observer: Observer | None = None,
    **settings: Any,
) -> Run:
    """Train what an experiment lacks; what is done already is not done again.

    Args:
        experiment: an experiment file, the name of a packaged one, a mapping of the same keys; or
            none, and ``settings`` in its place:
            ``sweep(workload=MyModel, optimizer=["sgd"], batch_size="8..1024", trials=16)``.
        results: the folder or URI that rows go to; ``$BATCHSCALE_RESULTS``, else ``results/runs``.
        address: ``none`` (in this process), ``auto``, ``HOST:PORT`` of a Ray, or ``file.py:Class``.
        overrides: ``["trials=8"]``: instead of what the file says.
        seconds: stop after so long, as on Ctrl-C.
        keep_old: where only the workload's code has changed, count its old trials as this one's.
        retrain: where it has, train them again. Else a sweep stops there and says so.
        observer: gets every event (`experiments.scheduling.events`); a live display unless given.
        settings: keys of an experiment file; what is none of them is an axis of its grid.

    Returns:
        The results; their ``summary`` says what was done.

    Raises:
        ExperimentError, WorkloadError, ResultsError: a clear error of the user's.
        KeyboardInterrupt: interrupted; what was committed stays.
    """
    from batchscale.output.display import Display
    from batchscale.sweeps import load, run
    from experiments.scheduling.events import Stage

    with nullcontext(observer) if observer is not None else Display() as watching:
        watching(Stage(text="reading the experiment"))
        return run(
            load(experiment, settings, overrides),
            results or default_results(),
            address=address,
            seconds=seconds,
            keep_old=keep_old,
            retrain=retrain,
            observer=watching,
        )


def plan(
    experiment: str | Path | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    results: str | Path | None = None,
) -> pd.DataFrame:
    """What ``sweep`` would train: a row a study, with what earlier runs have done of it."""
    from batchscale.sweeps import load, plan

    return plan(load(experiment, {}, overrides), results or default_results())


def status(source: str | Path | Location | None = None) -> Status:
    """What is done, running and left of each experiment in a results folder."""
    from experiments.records.status import status
    from results.storage.location import PACKAGED, Location

    where = source or default_results()
    location = Location.of(PACKAGED.get(str(where), where))
    location.require()  # a file of one's own has no status
    return status(location)


def trial(
    workload: WorkloadLike,
    *,
    optimizer: str = "sgd",
    batch_size: int,
    schedule: str | type[Schedule] = "constant",
    budget: str | None = None,
    target: str | None = None,
    engine: str = "module",
    seed: int = 0,
    device: str | None = None,
    save: str | Path | None = None,
    on_measure: OnMeasure | None = None,
    **metaparameters: Any,
) -> TrialRun:
    """One training run, here, without Ray: ``trial(MyModel, batch_size=64, learning_rate=0.1)``.

    Args:
        workload: a name, ``file.py:Class``, or the class.
        budget: as in an experiment file; its default unless given.
        save: a ``.safetensors`` file for the trained weights.
        schedule: a name, ``file.py:Class``, or the class.
        metaparameters: of the optimizer and the schedule, and fields of the workload. What is not
            given has the optimizer's default: torch's, or that of its constructor.

    Returns:
        Its steps to target, measurements and weights; ``.plot()`` draws them.
    """
    from batchscale.training import train

    return train(
        workload, optimizer=optimizer, batch_size=batch_size, schedule=schedule, budget=budget,
        target=target, engine=engine, seed=seed, device=device, save=save, on_measure=on_measure,
        values=metaparameters,
    )  # fmt: skip


def rerun(
    trial: str,
    *,
    results: str | Path | None = None,
    device: str | None = None,
    save: str | Path | None = None,
    on_measure: OnMeasure | None = None,
) -> TrialRun:
    """A recorded trial once more, here, in the engine that trained it.

    Args:
        trial: its id, or the first digits of it.
        results: where it is recorded; the default results folder unless given.
        save: a ``.safetensors`` file for the trained weights.

    Returns:
        As `batchscale.trial`; ``.equal`` says whether it came out as it was recorded.

    Raises:
        CommandError: no such trial, several that begin so, or one that was not trained here.
    """
    from batchscale.training import repeat

    return repeat(
        trial, results or default_results(), device=device, save=save, on_measure=on_measure
    )


def check(
    workload: WorkloadLike,
    *,
    batch_size: int | None = None,
    device: str | None = None,
    observer: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> list[Finding]:
    """Does a workload keep its contract? See `experiments.training.check`.

    Args:
        observer: told of each check that begins, in a few words.
        fields: of the workload.
    """
    from batchscale.trials import pick_device, reference
    from experiments.training.check import check

    return check(
        reference(workload, fields),
        batch_size=batch_size,
        device=pick_device(device),
        observer=observer,
    )


def new(file: str | Path) -> tuple[Path, Path]:
    """Write a workload that runs and an experiment for it; their paths.

    Raises:
        CommandError: one of them is there already, or the folder is not.
    """
    from batchscale.start import write

    return write(Path(file))


def regimes(
    *sources: str | Path | Run,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    definition: str | None = None,
    law: str | None = None,
) -> list[dict[str, Any]]:
    """The three regimes of each curve with their intervals, as ``regimes --json`` prints them.

    Args:
        sources: where the trials are; several are read as one.
        target: ``"METRIC < VALUE"``: steps to target are computed again from the measurements.
        where: an SQL condition on trials.
        by: columns of the training algorithm that each get curves of their own; the others are
            minimized over.
        baseline: the curve to hold the others against, which comes first: ``"sgd"``. Each other
            one has ``against``: its baseline, the ``ratios`` of its quantities over the baseline's
            with intervals, and a ``sentence`` (see ``analysis.fit.comparisons``).
        tolerance: τ: perfect scaling is E(B) <= (1+τ) E_min, maximal S(B) <= (1+τ) S_min.
        estimator: what stands for a batch size: ``minimum``, ``best_of_10`` or
            ``median_of_searches``; what the trials' own column says unless given.
        search: ``present``: of each study the trials of its latest search count; ``all``: those
            of every search, whatever its space, method or seed.
        definition: also the critical batch size as others define it, ``zhang2024`` or
            ``mccandlish2018``, under ``critical_batch_size_<definition>``.
        law: a column: the critical batch size as a power of it, across the curves of each training
            algorithm, under ``law`` of each of them; see ``laws``.
    """
    from batchscale.curves import located

    return located(
        sources, target, where, by, baseline, tolerance, estimator, search, definition, law
    )


def laws(
    *sources: str | Path | Run,
    against: str,
    quantity: str = "critical_batch_size",
    sizes: Mapping[str, float] | None = None,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    definition: str | None = None,
) -> list[dict[str, Any]]:
    """A quantity as a power of model size, data size or target, for each training algorithm.

    Args:
        against: a column that tells the curves apart (``"width"``), or ``"target"``. Names that
            end in a number with k, m or b, as ``transformer_85m``, are that number.
        quantity: ``critical_batch_size`` (by ``definition``, if one is given), ``min_steps``, …
        sizes: what each value of the column stands for, instead: ``{"small": 1e6, "large": 8e6}``.

    The others are those of ``regimes``.

    Returns:
        For each law ``exponent`` and ``coefficient`` with intervals, ``scatter`` about it in log
        units, the ``sizes`` and ``curves`` it rests on, a ``sentence``, ``notes``.
    """
    from batchscale.curves import laws

    return laws(
        sources,
        against,
        quantity,
        sizes,
        target,
        where,
        by,
        tolerance,
        estimator,
        search,
        definition,
    )


def query(sql: str, source: str | Path | None = None) -> pd.DataFrame:
    """The answer to one SELECT over studies, trials, measurements and sources.

    Raises:
        ResultsError: an error in it, in one line, or anything that is not a SELECT.
    """
    return open(source or default_results()).query(sql)


def take_in(
    kind: str | Callable[..., Imported | None],
    path: str | Path,
    *,
    results: str | Path | Location | None = None,
    progress: Callable[[Imported], None] | None = None,
    **options: Any,
) -> Imported:
    """Import data from elsewhere into a results folder, and never twice: all of it or nothing, but
    for ``shallue``, which goes on where it stopped.

    Args:
        kind: ``csv``, ``mlperf`` or ``shallue``: ``list("imports")``; ``file.py:Name`` or a
            function of your own (docs/published.md).
        path: a file or a folder.
        progress: of ``shallue``: called with what has been done so far.
        options: of the kind, as ``batchscale import KIND --help`` lists them. Those of ``csv``:
            ``columns`` (what the columns of a file are called here: ``{"batch_size": "bs"}``),
            ``name`` (of the experiment that the rows become), ``citation`` and ``licence``.

    Raises:
        ResultsError: no such kind or option, or a row that cannot be placed; it is named, and
            nothing is written.
    """
    from batchscale.exchange import called, extension
    from results.imports import Imported

    folder = results or default_results()
    importer = extension("import", kind)
    return called(importer, Imported, Path(path), folder, progress=progress, **options)


def listing(kind: str) -> dict[str, str]:
    """The names there are of a kind, each with one line.

    Args:
        kind: ``workloads``, ``optimizers``, ``schedules``, ``techniques``, ``figures``,
            ``experiments``, ``executors``, ``imports`` or ``exports``.
    """
    from batchscale.names import KINDS
    from batchscale.output.errors import CommandError
    from experiments.errors import nearest

    if kind not in KINDS:
        raise CommandError(f"there is no list of {kind!r}", hint=nearest(kind, KINDS))
    return KINDS[kind]()
