"""``batchscale branch``: the local critical batch size along one run, by branches of it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from batchscale.cli.options import Device, Fmt, Json, Out, Results, option, output_format
from batchscale.cli.plan import numbers_of


def branch(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="A recorded trial's id, or its first digits; or an experiment with one study: its "
            "best trial.",
        ),
    ],
    at: Annotated[str, option("--at", "STEPS", "Steps of the trial: 1000,4000.")],
    window: Annotated[
        str,
        option(
            "--window",
            "AMOUNT",
            'How far branches go: "500 steps" of the trial\'s batch size, examples or tokens.',
        ),
    ],
    by: Annotated[
        str, option("--by", "TIMES", "How many times the trial's batch size: 2,4,8.")
    ] = "2,4,8",
    seeds: Annotated[int, typer.Option(help="Branches of each batch size.")] = 3,
    rule: Annotated[
        str | None,
        option(
            "--rule",
            "linear|sqrt|none",
            "The learning rate at k times the batch size. Default: linear for SGD, sqrt for Adam "
            "and its like.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        option("--metric", "NAME", "What is compared. Default: the metric of the target."),
    ] = None,
    tolerance: Annotated[
        str,
        option(
            "--tolerance",
            "SHARE",
            'Relative excess of the metric that counts as none; or "5 % examples": how many '
            "more to the same loss.",
        ),
    ] = "0.01",
    results: Results = None,
    output: Out = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Run the Python files that the record names. Those of yours that you have run "
            "before, unchanged, need none.",
        ),
    ] = False,
    device: Device = None,
    threads: Annotated[int, typer.Option(help="Threads of the processor.")] = 1,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """The local critical batch size along one run, by branches at larger batch sizes.

    From steps of a recorded trial it is trained on at several batch sizes, each for the same
    examples. Give the same command again to continue; nothing trains twice.
    """
    from batchscale import branches
    from batchscale.output import branch_table
    from batchscale.output.progress import say

    made = branches.branch(
        trial,
        at=numbers_of(at, "--at", "steps", "--at 1000,4000"),
        window=window,
        by=numbers_of(by, "--by", "whole numbers", "--by 2,4,8, or 2..8"),
        seeds=seeds,
        rule=rule,
        metric=metric,
        tolerance=tolerance,
        results=results,
        output=output,
        device=device,
        threads=threads,
        trust=trust,
        observer=lambda text: say(text, file=sys.stderr),
    )
    print(branch_table.branches(made.to_dict(), output_format(format, json)), end="")
