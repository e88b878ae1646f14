"""``batchscale plan``: time and money to the target by the number of devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.options import Fmt, Json, Out, option, output_format, with_query

if TYPE_CHECKING:
    from analysis.figure_data import Query


@with_query()
def plan(
    query: Query,
    devices: Annotated[
        str,
        option("--devices", "N..M", "Numbers of devices: 1..64 doubles; or 1,8,12."),
    ] = "1..1024",
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
    from batchscale import answers
    from batchscale.output import plan_table
    from batchscale.output.progress import ProgressLines

    model = {
        "seconds_per_example": seconds_per_example,
        "seconds_per_step": seconds_per_step,
        "gradient_bytes": gradient_bytes,
        "bandwidth": bandwidth,
        "latency": latency,
        "overlap": overlap,
    }
    made = answers.plan(
        query,
        numbers_of(devices),
        price=None if price is None else price_of(price),
        step_time=step_time,
        model=model,
        output=output,
        progress=ProgressLines(),
    )
    print(plan_table.plans(made, output_format(format, json)), end="")


def numbers_of(text: str) -> list[int]:
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
    raise CommandError(
        f"--devices {text} are no numbers of devices", hint="for example --devices 1..64, or 1,8,12"
    )


def price_of(text: str) -> float:
    """Of an hour: ``2.5/h``, or the number alone.

    Raises:
        CommandError: it is none.
    """
    from batchscale.output.errors import CommandError

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:/\s*h)?\s*", text)
    if match is None:
        raise CommandError(f"--price {text} is no price of an hour", hint="for example 2.5/h")
    return float(match[1])
