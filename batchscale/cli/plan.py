"""``batchscale plan``: time and money to the target by the number of devices."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.options import SOURCE, Device, Fmt, Json, Out, option, output_format, with_query

if TYPE_CHECKING:
    from analysis.figure_data import Query


@with_query(sources=False)
def plan(
    query: Query,
    sources: Annotated[
        list[str] | None, typer.Argument(help=SOURCE, metavar="[SOURCE]", show_default=False)
    ] = None,
    like: Annotated[
        str | None,
        option(
            "--like",
            "WORKLOAD",
            "Instead of a SOURCE: the packaged curves nearest to a workload, or to a data set and "
            "a model (cifar10/resnet18). They are another workload's, and said to be.",
        ),
    ] = None,
    devices: Annotated[
        str | None,
        option(
            "--devices",
            "N..M",
            "Numbers of devices: 1..64 doubles; or 1,8,12. Default: 1..1024, or those measured.",
        ),
    ] = None,
    price: Annotated[
        str | None, option("--price", "AMOUNT/h", "Of a device, an hour: 2.5/h; adds the cost.")
    ] = None,
    step_time: Annotated[
        str | None,
        option(
            "--step-time",
            "FILE.csv",
            "Measured seconds a step: columns devices, batch_size, seconds, and curve, where "
            "curves differ. Several rows of one place give it an interval.",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure the seconds of a step on this machine, as the curves trained.",
        ),
    ] = False,
    ranks: Annotated[
        str | None,
        option("--ranks", "N..M", "Of --measure: GPUs, or processes on CPUs, that share a batch."),
    ] = None,
    save_times: Annotated[
        str | None,
        option("--save-times", "FILE.csv", "Of --measure: write them here, for --step-time."),
    ] = None,
    device: Device = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Of --measure: run the Python files that the record names. Those of yours that "
            "you have run before, unchanged, need none.",
        ),
    ] = False,
    seconds_per_example: Annotated[
        float | None,
        typer.Option("--seconds-per-example", help="Instead, of one device: forward and backward."),
    ] = None,
    seconds_per_step: Annotated[
        float | None,
        typer.Option("--seconds-per-step", help="What a step takes besides, at any batch size."),
    ] = None,
    gradient_bytes: Annotated[
        float | None,
        typer.Option("--gradient-bytes", help="What a ring all-reduce sums over the devices."),
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", help="Of a device's link, bytes a second.")
    ] = None,
    latency: Annotated[
        float | None, typer.Option("--latency", help="Of a message, seconds.")
    ] = None,
    overlap: Annotated[
        float | None,
        typer.Option("--overlap", help="Share of the compute that hides communication, 0 to 1."),
    ] = None,
    output: Out = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """How many devices pay: time and cost to the target, with intervals.

    Each number of devices has the batch size that is best for it.
    """
    from batchscale.answers import fitted, refuse_overwriting
    from batchscale.output import plan_table
    from batchscale.output.errors import CommandError
    from batchscale.output.progress import ProgressLines, say
    from batchscale.planning import devices as planning
    from results.storage.save import destination

    model = {
        "seconds_per_example": seconds_per_example,
        "seconds_per_step": seconds_per_step,
        "gradient_bytes": gradient_bytes,
        "bandwidth": bandwidth,
        "latency": latency,
        "overlap": overlap,
    }
    query = replace(query, sources=planning.sources_of(sources or (), like))
    numbers = None if devices is None else numbers_of(devices)
    of_hour = None if price is None else price_of(price)
    alone: dict[str, Any] = {"--ranks": ranks, "--save-times": save_times, "--device": device}
    alone |= {"--trust": trust or None}
    others: dict[str, Any] = {"--step-time": step_time, "--seconds-per-step": seconds_per_step}
    others |= {"--seconds-per-example": seconds_per_example, "--like": like}
    for name, value in (others if measure else alone).items():
        if value is not None:
            why = "excludes" if measure else "needs"
            hint = "step times are measured here, read of a file, or a model's"
            raise CommandError(f"{name} {why} --measure", hint=hint)
    times: Any = step_time
    data, progress = None, ProgressLines()
    if measure:
        if output is not None:
            refuse_overwriting(destination(output), [save_times])
        on = None if ranks is None else numbers_of(ranks, "--ranks")
        data = fitted(query, progress)
        times = planning.measure(
            data, ranks=on, device=device, trust=trust, save=save_times, progress=progress
        )
        say(plan_table.step_times(times), file=sys.stderr)
    made = planning.answer(
        query, numbers, price=of_hour, step_time=times, model=model,
        output=output, data=data, like=like, progress=progress,
    )  # fmt: skip
    print(plan_table.plans(made, output_format(format, json)), end="")


def numbers_of(
    text: str,
    option: str = "--devices",
    what: str = "numbers of devices",
    example: str = "--devices 1..64, or 1,8,12",
) -> list[int]:
    """``1..8`` is 1, 2, 4, 8; ``1,8,12`` these; ascending.

    Raises:
        CommandError: it is neither.
    """
    from batchscale.output.errors import CommandError

    if match := re.fullmatch(r"\s*(\d+)\s*\.\.\s*(\d+)\s*", text):
        first, last = int(match[1]), int(match[2])
        if 0 < first <= last:
            return [first * 2**n for n in range((last // first).bit_length())]
    elif re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        numbers = sorted({int(each) for each in text.split(",")})
        if numbers[0] > 0:
            return numbers
    raise CommandError(f"{option} {text} are no {what}", hint=f"for example {example}")


def price_of(text: str) -> float:
    """Of an hour: ``2.5/h``, or the number alone.

    Raises:
        CommandError: it is none.
    """
    from batchscale.output.errors import CommandError

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:/\s*h)?\s*", text)
    if match is None or not float(match[1]):
        raise CommandError(f"--price {text} is no price of an hour", hint="for example 2.5/h")
    return float(match[1])
