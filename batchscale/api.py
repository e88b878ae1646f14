"""Training and results, for Python: each function is one command. `analysis` has the others.

Nothing is imported before the function that needs it is called: what reads results works where
torch and Ray are not installed.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from batchscale.run import Run
    from experiments.records.status import Status
    from experiments.scheduling.messages import Observer
    from experiments.training.check import Finding
    from results.imports import Imported
    from results.storage.location import Location
    from workloads import Workload

    WorkloadLike = str | type[Workload] | Workload


def open(source: str | Path | Location) -> Run:
    """What was measured: a results folder or URI, ``published`` or ``own`` (packaged data), or a
    CSV or Parquet file of the user.

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
    snapshot_every: float | None = None,
    grows_to: int | None = None,
    callbacks: Sequence[Any] = (),
    track: str | Sequence[str] = (),
    keep_old: bool = False,
    retrain: bool = False,
    observer: Observer | None = None,
    **settings: Any,
) -> Run:
    """Train the trials that an experiment lacks; finished ones are not trained again.

    Args:
        experiment: an experiment file, the name of a packaged one, a mapping of the same keys; or
            none, and ``settings`` in its place:
            ``sweep(workload=MyModel, optimizer=["sgd"], batch_size="8..1024", trials=16)``.
        results: the folder or URI that rows go to; ``$BATCHSCALE_RESULTS``, else ``results/runs``.
        address: ``none`` (in this process), ``auto``, ``HOST:PORT`` of a Ray, or ``file.py:Class``.
        overrides: ``["trials=8"]``: instead of what the file says.
        seconds: stop after this time, as on Ctrl-C.
        snapshot_every: seconds between two snapshots of a pack in training; 30 unless given.
        grows_to: how many workers the cluster can grow to, where an autoscaler starts its machines.
        callbacks: Ray Tune's own (`ray.tune.Callback`), whose trials are packs.
        track: write each trial that is recorded as a run of another tool: ``wandb:PROJECT``,
            ``mlflow:URI``, ``tensorboard:DIR`` or ``trackio:PROJECT``; several may be given.
        keep_old: where only the workload's code has changed, count its old trials as this one's.
        retrain: where it has, train them again. Else a sweep stops there and says so.
        observer: gets every event (`experiments.scheduling.messages`); a live display unless given.
        settings: keys of an experiment file; what is none of them is an axis of its grid.

    Returns:
        The results; their ``summary`` says what was done.

    Raises:
        ExperimentError, WorkloadError, ResultsError: a clear error of the user's.
        KeyboardInterrupt: interrupted; what was committed stays.
    """
    began = time.monotonic()
    from analysis.curves import edges
    from analysis.widths.width import widths
    from batchscale.output.display import Display
    from batchscale.run import Run
    from batchscale.sweeps import load, tracked
    from experiments.execution import sweep as driver
    from experiments.execution.beat import Pace
    from experiments.scheduling.messages import Note, Stage
    from results.storage.location import default_results

    where = results or default_results()
    with nullcontext(observer) if observer is not None else Display() as display:
        display(Stage(text="reading the experiment"))
        loaded = load(experiment, settings, overrides)
        for note in loaded.notes:
            display(Note(text=note))
        with tracked(track, where, loaded.name, display) as observed:
            summary = driver.sweep(
                loaded,
                results=where,
                address=address,
                judge=edges,
                measure=widths,
                observer=observed,
                # What has passed counts: reading the experiment imports torch and the workload.
                seconds=None if seconds is None else max(0.0, seconds + began - time.monotonic()),
                pace=None if snapshot_every is None else Pace(snapshot=snapshot_every),
                grows_to=grows_to,
                callbacks=callbacks,
                keep_old=keep_old,
                retrain=retrain,
            )
    name = summary.experiment.replace("'", "''")
    # By study: trials that another experiment has trained already are this one's too.
    its_studies = f"study IN (SELECT study FROM studies WHERE experiment = '{name}')"
    return Run(open(summary.location).results.where(its_studies), summary)


def status(source: str | Path | Location | None = None) -> Status:
    """What is done, running and left of each experiment in a results folder."""
    from experiments.records.status import status
    from results.storage.location import PACKAGED, Location, default_results

    where = source or default_results()
    location = Location.of(PACKAGED.get(str(where), where))
    location.require()  # a user's file has no status
    return status(location)


def check(
    workload: WorkloadLike,
    *,
    batch_size: int | None = None,
    device: str | None = None,
    observer: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> list[Finding]:
    """Check that a workload keeps its contract (`experiments.training.check`), or the program of an
    experiment file, in three short runs (`experiments.programs.check`).

    Args:
        workload: the workload; or the path of an experiment file, which has all that is to be said.
        observer: called with a few words for each check that begins.
        fields: of the workload.
    """
    from batchscale.trials import pick_device, reference
    from experiments.training.check import check

    if isinstance(workload, str) and workload.endswith((".yaml", ".yml")):
        return _check_program(workload, observer)
    return check(
        reference(workload, fields),
        batch_size=batch_size,
        device=pick_device(device),
        observer=observer,
    )


def _check_program(experiment: str, observer: Callable[[str], None]) -> list[Finding]:
    from batchscale.output.errors import CommandError
    from experiments.config.compile import load
    from experiments.programs.check import check

    loaded = load(experiment)
    if not loaded.is_program:
        raise CommandError(
            f"check takes a workload, and {experiment} is an experiment file",
            hint=f"batchscale sweep {experiment} --dry-run checks it",
        )
    return check(loaded.studies(), observer=observer)


def logs(trial: str, results: str | Path | Location | None = None, *, stderr: bool = False) -> str:
    """The last 4 to 8 MiB that a trial of a program has written to standard output, or to standard
    error; it may run still.

    Args:
        trial: its id, or how that begins.

    Raises:
        CommandError: there is none, or it ran on another machine.
    """
    from batchscale.output.errors import CommandError
    from experiments.programs.place import FOLDER
    from results.counts import count
    from results.storage.location import Location, default_results

    location = Location.of(results or default_results())
    folder = Path(location.path) / FOLDER
    paths = folder.glob(f"{glob.escape(trial)}*") if location.local else []
    matches = [path for path in sorted(paths) if not path.suffix]  # the others: on further nodes
    if len(matches) != 1:
        what = (
            f"{count(len(matches), 'trial')} of programs begin"
            if matches
            else "no trial of a program begins"
        )
        raise CommandError(
            f"{what} with {trial!r} in {location.display(FOLDER)}",
            hint="give more of its digits"
            if matches
            else "the error of its row names its folder, which is on the machine that trained it",
        )
    name = "stderr.log" if stderr else "stdout.log"
    files = [matches[0] / f"{name}.1", matches[0] / name]
    return "".join(f.read_text("utf-8", "replace") for f in files if f.exists())


def new_program(program: str | Path) -> Path:
    """Write an experiment file for a program, from the options that it declares by argparse; its
    path.

    Raises:
        CommandError: there is such a file already.
        ExperimentError: the program cannot be read, or has no option for a batch size.
    """
    from batchscale.output.errors import CommandError
    from experiments.programs.template import template

    path = Path(program)
    text, beside = template(path), path.with_suffix(".yaml")
    try:
        with beside.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        hint = "nothing was written; move it away"
        raise CommandError(f"{beside} exists already", hint=hint) from None
    return beside


def new(file: str | Path) -> tuple[Path, Path]:
    """Write a workload that runs and an experiment for it; their paths.

    Raises:
        CommandError: one of them exists already, the folder does not exist, or it is not a ``.py``
            file.
    """
    from batchscale.output.errors import CommandError
    from results.storage.save import destination
    from workloads.template import template

    path = destination(file)
    if path.suffix != ".py":
        raise CommandError(f"{path} is not a .py file", hint=f"batchscale new {path.stem}.py")
    beside = path.with_suffix(".yaml")
    for each in (path, beside):
        if each.exists():
            raise CommandError(
                f"{each} exists already", hint="nothing was written; choose another name"
            )
    if not path.absolute().parent.is_dir():
        raise CommandError(f"cannot write {path}: there is no folder {path.parent}")
    for each, text in zip((path, beside), template(path.name), strict=True):
        with each.open("x", encoding="utf-8") as out:
            out.write(text)
    return path, beside


def query(sql: str, source: str | Path | None = None) -> pd.DataFrame:
    """The answer to one SELECT over studies, trials, measurements and sources, and over ``best``:
    one row a batch size of each curve, as ``regimes`` takes it.

    Raises:
        ResultsError: an error in it, in one line, or anything that is not a SELECT.
    """
    from results.errors import ResultsError
    from results.storage.location import default_results

    if isinstance(source, str) and source.lstrip().upper().startswith(("SELECT ", "WITH ")):
        raise ResultsError(
            "the source stands before the SQL",
            hint=f'the other way round: batchscale query "{source.strip()}" {sql}',
        )
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
        kind: ``log`` or ``shallue``: ``list("imports")``; ``file.py:Name`` or a function of your
            own (docs/published.md).
        path: a file or a folder.
        progress: of ``shallue``: called with what has been done so far.
        options: of the kind, as ``batchscale import KIND --help`` lists them. Those of ``log``:
            ``columns`` (ours to theirs, or what is computed of them: ``{"batch_size": "bs*8"}``),
            ``complete``, ``name`` (of the experiment that the rows become), ``citation``,
            ``licence``.

    Raises:
        ResultsError: no such kind or option, or a row that cannot be placed; it is named, and
            nothing is written.
    """
    from batchscale.exchange import called, extension
    from results.imports import Imported
    from results.storage.location import default_results

    folder = results or default_results()
    importer = extension("import", kind)
    return called(importer, Imported, Path(path), folder, progress=progress, **options)


def listing(kind: str) -> dict[str, str]:
    """The names of a kind, each with one line.

    Args:
        kind: ``workloads``, ``texts``, ``optimizers``, ``schedules``, ``techniques``,
            ``layouts``, ``figures``, ``experiments``, ``executors``, ``imports`` or ``exports``.
    """
    from batchscale.names import KINDS, listed
    from batchscale.output.errors import CommandError
    from experiments.errors import nearest

    if kind not in KINDS:
        raise CommandError(f"there is no list of {kind!r}", hint=nearest(kind, KINDS))
    return listed(kind)
