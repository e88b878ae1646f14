"""The command line: what people type. Each command is one call of `batchscale.api`, and a screen.

Kept thin and light: what a command needs is imported when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from batchscale.cli.entry import enter
from batchscale.cli.exchange import export, import_
from batchscale.cli.kinds import KindCommand
from batchscale.cli.options import (
    Baseline,
    By,
    Definition,
    Device,
    Estimator,
    Fields,
    Fmt,
    Json,
    LawOption,
    Out,
    Params,
    Results,
    SearchOption,
    Source,
    Sources,
    TargetOption,
    Tolerance,
    Where,
    assignments,
    chosen,
    columns,
    seconds,
)
from batchscale.cli.reporting import plot, report
from batchscale.cli.serving import serve

app = typer.Typer(
    name="batchscale",
    help="How far can the batch grow before a bigger one stops buying fewer steps?",
    epilog="Begin with: batchscale sweep digits, then batchscale regimes results/runs.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)
_state: dict[str, Any] = {"debug": False, "given": []}


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False,
) -> None:
    """Options that every command takes, before its name or after."""
    _state["debug"] = _state["debug"] or debug


def command(
    name: str, **settings: Any
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Register a command whose errors become one line, a hint and an exit status."""

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @app.command(name, rich_help_panel=None, **settings)
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                status = function(*args, **kwargs)
                sys.stdout.flush()
            except (typer.Exit, typer.Abort, BrokenPipeError):
                raise
            except (Exception, KeyboardInterrupt) as error:
                from batchscale.output.errors import report

                status = report(error, debug=_state["debug"], given=_state["given"])
            raise typer.Exit(status or 0)

        return function

    return register


def main(arguments: list[str] | None = None) -> None:
    """The program ``batchscale``. ``--debug`` may stand anywhere."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" in given:
        given = ["--debug", *(a for a in given if a != "--debug")]
    _state["given"] = given
    sys.exit(enter(app, given))


@command("sweep")
def sweep(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="An experiment file, or the name of a packaged one: digits."
        ),
    ],
    results: Results = None,
    address: Annotated[
        str,
        typer.Option(
            help="none: without Ray, in this process. auto: the Ray that runs here, or a new one. "
            "HOST:PORT: that one. FILE.py:CLASS: an executor of a file.",
            metavar="none|auto|HOST:PORT",
        ),
    ] = "auto",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Instead of the file's: --set trials=8."),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="Stop after so long, as on Ctrl-C: 2h, 90m, 1h30m."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be trained, and stop.")
    ] = False,
    keep_old: Annotated[
        bool,
        typer.Option("--keep-old", help="The workload's code has changed: its old trials count."),
    ] = False,
    retrain: Annotated[
        bool,
        typer.Option("--retrain", help="The workload's code has changed: train all of it again."),
    ] = False,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Train an experiment's studies. The same command again does what is missing, nothing twice."""
    from batchscale import api
    from batchscale.cli import screens
    from batchscale.output.display import Display
    from batchscale.output.errors import CommandError

    if keep_old and retrain:
        raise CommandError("--keep-old and --retrain exclude each other")
    limit = seconds(for_) if for_ else None
    if dry_run:
        plan = api.plan(experiment, overrides=set_ or [], results=results)
        print(screens.plan(plan, chosen(format, json)), end="")
        return 0
    with Display() as display:
        run = api.sweep(
            experiment,
            results=results,
            address=address,
            overrides=set_ or [],
            seconds=limit,
            keep_old=keep_old,
            retrain=retrain,
            observer=display,
        )
    return screens.summary(run)


@command("status")
def status(source: Source = None, format: Fmt = "table", json: Json = False) -> None:
    """What is done, running and left, and how long it will take."""
    from batchscale import api
    from batchscale.cli import screens

    print(screens.status(api.status(source), chosen(format, json)), end="")


@command("trial")
def trial(
    workload: Annotated[
        str | None, typer.Argument(metavar="WORKLOAD", help="A workload's name, or file.py:Class.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="An optimizer's name, or file.py:Class.")] = "sgd",
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.")] = None,
    param: Params = None,
    schedule: Annotated[
        str, typer.Option(help="A schedule's name, or file.py:Class.")
    ] = "constant",
    budget: Annotated[
        str | None, typer.Option(help='As in an experiment file: "50 epochs + 2000 steps".')
    ] = None,
    target: Annotated[
        str | None, typer.Option(help='Instead of the workload\'s: "METRIC < VALUE".')
    ] = None,
    engine: Annotated[str, typer.Option(help="module or stacked.")] = "module",
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 0,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="TRIAL_ID", help="A recorded trial again, in its engine."),
    ] = None,
    results: Results = None,
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="FILE.safetensors", help="Keep the trained weights."),
    ] = None,
    device: Device = None,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Train one trial here, without Ray: a new one, or one as recorded."""
    from batchscale import api
    from batchscale.cli import screens
    from batchscale.output.errors import CommandError

    show = screens.TrialOutput(chosen(format, json))
    if from_ is not None:
        if workload is not None:
            raise CommandError("give a WORKLOAD or --from TRIAL_ID, not both")
        run = api.rerun(from_, results=results, device=device, save=save, on_measure=show)
        return show.end(run)
    if workload is None or batch_size is None:
        raise CommandError(
            f"trial needs {'a WORKLOAD' if workload is None else '--batch-size'}",
            hint="batchscale trial digits-mlp --optimizer sgd --batch-size 64 "
            "--param learning_rate=0.1",
        )
    run = api.trial(
        workload,
        optimizer=optimizer,
        batch_size=batch_size,
        schedule=schedule,
        budget=budget,
        target=target,
        engine=engine,
        seed=seed,
        device=device,
        save=save,
        on_measure=show,
        **assignments(param or [], "--param"),
    )
    return show.end(run)


@command("check")
def check(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="A workload's name, or file.py:Class.")
    ],
    fields: Fields = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Examples a step. Else 64, or the training set.")
    ] = None,
    device: Device = None,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Does a workload keep its contract?

    Equal micro-batches, invariant evaluation, seeded weights; whether it stacks, and how fast.
    """
    from batchscale import api
    from batchscale.cli import screens
    from batchscale.output.progress import Stages

    with Stages() as stages:
        findings = api.check(
            workload,
            batch_size=batch_size,
            device=device,
            observer=stages,
            **assignments(fields or [], "--param"),
        )
    print(screens.check(findings, chosen(format, json)), end="")
    return 1 if any(finding.passed is False for finding in findings) else 0


@command("new")
def new(
    file: Annotated[str, typer.Argument(metavar="FILE.py", help="The file to make.")],
) -> None:
    """Write a workload and an experiment to start from."""
    from batchscale import api
    from batchscale.cli import screens

    print(screens.new(*api.new(file)), end="")


@command("regimes")
def regimes(
    sources: Sources,
    target: TargetOption = None,
    where: Where = None,
    by: By = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 0.2,
    estimator: Estimator = None,
    search: SearchOption = "present",
    definition: Definition = None,
    law: LawOption = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Locate the three regimes, with intervals.

    Perfect scaling, diminishing returns, maximal data parallelism.
    """
    from batchscale import api
    from batchscale.output import regime_table

    found = api.regimes(
        *sources,
        target=target,
        where=where,
        by=columns(by),
        baseline=baseline,
        tolerance=tolerance,
        estimator=estimator,
        search=search,
        definition=definition,
        law=law,
    )
    print(regime_table.regimes(found, chosen(format, json)), end="")


command("plot")(plot)
command("report")(report)


@command("query")
def query(
    sql: Annotated[
        str, typer.Argument(metavar="SELECT", help="Over studies, trials, measurements, sources.")
    ],
    source: Source = None,
    output: Out = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Ask the results in SQL (DuckDB). It reads these four tables, and writes nothing."""
    from batchscale import api
    from batchscale.cli import screens

    frame = api.query(sql, source)
    if output is not None:
        print(f"wrote {screens.write(frame, output, chosen(format, json))}")
    else:
        print(screens.frame(frame, chosen(format, json)), end="")


command("import", cls=KindCommand)(import_)
command("export", cls=KindCommand)(export)
command("serve")(serve)


@command("list")
def listing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="workloads, optimizers, schedules, techniques, figures, experiments, imports or "
            "exports.",
        ),
    ],
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """The names there are."""
    from batchscale import api
    from batchscale.cli import screens

    print(screens.listing(api.listing(kind), chosen(format, json)), end="")
