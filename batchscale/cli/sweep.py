"""``batchscale sweep`` and ``batchscale status``: train an experiment, and follow its progress."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from batchscale.cli.options import Fmt, Json, Results, Source, option, output_format, seconds
from batchscale.output.progress import say
from batchscale.output.tables import Format, frame_text
from results.counts import agreeing, count

if TYPE_CHECKING:
    import pandas as pd

    from batchscale.run import Run
    from experiments.records.status import Status

Log = Literal["text", "json"]


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
            help="none: in this process, without Ray. auto: the Ray of this machine, or a new one. "
            "HOST:PORT: the Ray at this address. FILE.py:CLASS: an executor from a file.",
            metavar="none|auto|HOST:PORT",
        ),
    ] = "auto",
    set_: Annotated[
        list[str] | None,
        option("--set", "KEY=VALUE", "Replace a value of the file: --set trials=8."),
    ] = None,
    for_: Annotated[
        str | None, option("--for", "TIME", "Stop after this time, as on Ctrl-C: 2h, 90m, 1h30m.")
    ] = None,
    snapshot_every: Annotated[
        str | None,
        option(
            "--snapshot-every",
            "TIME",
            "How often a pack in training is saved, to go on from there after a failure: 30s, "
            "the default, 10m.",
        ),
    ] = None,
    grows_to: Annotated[
        int | None,
        typer.Option(
            "--grows-to",
            metavar="WORKERS",
            min=1,
            help="How many workers the cluster can grow to, where an autoscaler starts machines.",
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        option(
            "--track",
            "TOOL:PLACE",
            "Write each trial as a run of another tool: wandb:PROJECT, mlflow:URI, "
            "tensorboard:DIR, trackio:PROJECT. Repeat it for several.",
        ),
    ] = None,
    log: Annotated[
        Log,
        option(
            "--log",
            "text|json",
            "How progress is printed on stderr: json: an object a line for each event.",
        ),
    ] = "text",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be trained, and train nothing.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Print how many trials are expected to give what you --want, and train nothing.",
        ),
    ] = False,
    want: Annotated[
        str | None, option("--want", "TEXT", 'Of --plan: "critical_batch_size within 1.3".')
    ] = None,
    keep_old: Annotated[
        bool,
        typer.Option(
            "--keep-old", help="If the workload's code has changed: count its old trials."
        ),
    ] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="If the workload's code has changed: train all again.")
    ] = False,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Train an experiment's studies. Give the same command again to continue; nothing trains
    twice."""
    from batchscale import api
    from batchscale.output.display import Display
    from batchscale.output.errors import CommandError
    from batchscale.output.json_log import JsonLog
    from batchscale.sweeps import plan as planned
    from experiments.execution.ray.start import RAY_THREAD

    if keep_old and retrain:
        raise CommandError("give --keep-old or --retrain, not both")
    if plan or want is not None:
        if not (plan and want):
            raise CommandError(
                "--plan needs --want, and --want needs --plan",
                hint='--plan --want "critical_batch_size within 1.3"',
            )
        from batchscale.output import wanted_table
        from batchscale.planning import wanted

        wish = wanted.Want.parse(want)
        made = wanted.plans(experiment, wish, set_ or [], results)
        form = output_format(format, json)
        print(wanted_table.wanted(made, wish, experiment, form), end="")
        return 0
    limit = seconds(for_) if for_ else None
    interval = seconds(snapshot_every, "--snapshot-every") if snapshot_every else None
    if dry_run:
        print(_plan(planned(experiment, set_ or [], results), output_format(format, json)), end="")
        return 0
    with nullcontext(JsonLog()) if log == "json" else Display() as display:
        run = api.sweep(
            experiment,
            results=results,
            address=address,
            overrides=set_ or [],
            seconds=limit,
            snapshot_every=interval,
            grows_to=grows_to,
            track=track or (),
            keep_old=keep_old,
            retrain=retrain,
            observer=display,
        )
    status = _summary(run)
    if any(thread.name == RAY_THREAD for thread in threading.enumerate()):
        # The time was over while a Ray was still starting here: its processes end with this one.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def status(source: Source = None, format: Fmt = "table", json: Json = False) -> None:
    """What is done, running and left, and how long it will take."""
    from batchscale import api

    print(_status(api.status(source), output_format(format, json)), end="")


_FIXED_COLUMNS = (
    *("optimizer", "batch_size", "batch_tokens", "trials", "recorded", "budget_steps"),
    *("most_steps", "most_examples", "memory", "at_most"),
)
"""Columns that a plan's table has even if all studies have the same value."""


def _plan(studies: pd.DataFrame, format: Format) -> str:
    """What a sweep would train: columns that are the same in all studies go to the last line."""
    from batchscale.output.tally import clock

    if format in ("csv", "json"):
        return frame_text(studies, format)
    hours = float(studies["worker_hours"].sum())
    evaluating = float((studies["worker_hours"] * studies["evaluation_share"]).sum())
    apart = {"worker_hours", "evaluation_share", "layout_choice"}
    table = studies.drop(columns=list(apart & {*studies.columns}))
    of_tokens = ""
    if "most_tokens" in table:
        of_tokens = f" ({count(int(table.pop('most_tokens').sum()), 'token')})"
    table["memory"] = [_mebibytes(size) for size in studies["memory"]]
    known = studies["worker_hours"].notna().all()  # of a program nothing is known beforehand
    table["at_most"] = [clock(h * 3600) if known else None for h in studies["worker_hours"]]
    # As text: a field may be a list.
    same = [
        n for n in table.columns if n not in _FIXED_COLUMNS and table[n].map(str).nunique() == 1
    ]
    text = frame_text(table.drop(columns=same), format)
    if format != "table":
        return text
    wanted, recorded = int(studies["trials"].sum()), int(studies["recorded"].sum())
    all_of = ", ".join(f"{n.replace('_', ' ')} {table[n].iloc[0]}" for n in same)
    steps, examples = int(studies["most_steps"].sum()), int(studies["most_examples"].sum())
    example = studies.attrs.get("example_unit", "example")
    waits = "".join(f"{text}\n" for text in studies.attrs.get("waits", ()))
    unit = "GPU-hours" if studies.attrs.get("device") == "cuda" else "worker-hours"
    cost = (
        f"{hours:.2g} {unit} on this machine ({clock(hours * 3600)} on one worker, "
        f"{evaluating / hours:.0%} of it for evaluations), "
        if known
        else ""
    )
    return (
        f"{text}\n{count(len(studies), 'study')}, {count(wanted, 'feasible trial')} wanted, "
        f"{count(recorded, 'trial')} recorded"
        f"{f'; {all_of}' if all_of else ''}\n"
        f"at most {count(steps, 'step')}, {count(examples, example)}{of_tokens}, "
        f"{cost}if every trial ran its whole budget; "
        "stopping at the target and dominated stopping make it less\n"
        f"{waits}"
        f"{_layout_choices(studies)}"
    )


def _layout_choices(studies: pd.DataFrame) -> str:
    """What ``layout: auto`` chooses here for each study, a line each; empty for other layouts."""
    if "layout_choice" not in studies:
        return ""
    if studies["layout_choice"].isna().all():
        return "layout auto: not measured, this machine has too few cores or GPUs\n"
    import json

    from experiments.training.auto_layout.choice import describe

    choices = [describe(json.loads(text)) for text in studies["layout_choice"]]
    lines = [
        f"{row.optimizer}, batch size {row.batch_size}: {choice}\n"
        for row, choice in zip(studies.itertuples(), choices, strict=True)
    ]
    return f"\nlayout auto, as measured here:\n{''.join(lines)}"


def _mebibytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{max(1, round(size / 2**20))} MiB"


def _summary(run: Run) -> int:
    """Print what a sweep did; the exit status: 3 where it finished but some trials failed, 4 where
    its time was over before it was complete."""
    from batchscale.output.errors import FAILED_TRIALS, NOT_COMPLETE
    from batchscale.output.tally import clock
    from experiments.records.status import how_far

    done = run.summary
    assert done is not None
    say(
        f"{done.experiment}: {count(done.trained, 'trial')} trained in {clock(done.seconds)}, "
        f"{done.trials:,} recorded; {done.reached} of {count(done.studies, 'study')} reached the "
        "target"
    )
    say(f"results: {done.path}")
    if done.failed:
        them = "it" if done.failed == 1 else "them"
        failed = f"{count(done.failed, 'trial')} failed; the same command tries {them} once more"
        print(failed, file=sys.stderr)
    if done.complete and done.reached:
        from batchscale.output.ending import ending

        if text := ending(run.results):
            say(f"\n{text}")
        folder = shlex.quote(done.path)
        say(f"next: batchscale regimes {folder}    (the regimes, with intervals and notes)")
        say(f"      batchscale report {folder}    (a page with figures and tables)")
    if not done.complete:
        print(f"{how_far(done.left, done.failed)}: give the same command again to continue")
    if done.failed:
        return FAILED_TRIALS
    return 0 if done.complete else NOT_COMPLETE


def _status(state: Status, format: Format) -> str:
    """The state of a results folder: its experiments, the running packs, the time left."""
    from experiments.records.baselines import line

    if format in ("csv", "json"):
        return frame_text(state.studies, format)
    others = int(state.studies["other_searches"].sum())
    table = state.added_up()
    text = frame_text(table if others else table.drop(columns="other_searches"), format)
    if format != "table":
        return text
    if others:
        text += (
            f"\n{count(others, 'trial')} of other searches of these studies (another space, method "
            f"or seed) {agreeing(others, 'are')} not counted: regimes, plot and report count "
            f"them with "
            "--search all\n"
        )
    text += "".join(f"\n{failure}\n" for failure in state.failures)
    waits = state.studies.groupby("waits")["batch_size"]
    text += "".join(f"\n{line(str(reason), [*sizes])}\n" for reason, sizes in waits)
    if len(state.packs):
        columns = ["experiment", "optimizer", "batch_size", "trials", "step", "best", "machine"]
        ages = [f"{seconds:.0f} s ago" for seconds in state.running["silent"]]
        text += f"\n{frame_text(state.running[columns].assign(last_word=ages), format)}"
    return f"{text}\n{_time_left(state)}\n"


def _time_left(state: Status) -> str:
    from batchscale.output.tally import clock
    from experiments.records.status import how_far

    text = how_far(state.left, state.failed)
    if not state.left:
        return text
    share = ""
    if state.evaluation_share is not None:
        share = f" ({state.evaluation_share:.0%} of the time so far for evaluations)"
    if state.seconds is not None:
        return f"{text}, about {clock(state.seconds)} with the packs that run now{share}"
    if state.work_seconds is not None:
        return f"{text}, about {clock(state.work_seconds)} for one worker{share}; nothing runs now"
    runs = f"{count(len(state.running), 'pack', 'train')} now" if len(state.running) else ""
    return f"{text}; {runs or 'nothing runs now'}"
