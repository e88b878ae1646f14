"""What a sweep would have to train, as a table: a row an alternative."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from batchscale.output.tables import Format, answer_json, render
from batchscale.output.tally import clock
from results.counts import count

if TYPE_CHECKING:
    from analysis.widths.expected import Expected
    from batchscale.planning.wanted import CurvePlan, Want


def wanted(made: Sequence[CurvePlan], want: Want, source: str, format: Format) -> str:
    """The text of ``batchscale sweep --plan``.

    Args:
        source: the experiment, as it was given.
    """
    rows = [row for each in made for row in each.rows()]
    if format == "json":
        return answer_json(rows)
    if format == "csv":
        texts = [{**row, "batch_sizes": " ".join(map(str, row["batch_sizes"]))} for row in rows]
        return render(texts, "csv")
    return "\n".join(_of_curve(each, want, source, format) for each in made)


def _of_curve(made: CurvePlan, want: Want, source: str, format: Format) -> str:
    bound = "" if made.measured else "at most "
    rows = []
    for each in made.expected:
        design, seconds, sizes = each.design, made.cost(each), each.design.batch_sizes
        rows.append({
            "": "→" if each is made.chosen else "",
            "batch sizes": f"{sizes[0]:,}–{sizes[-1]:,} ({len(sizes)})",
            "trials": design.trials, "searches": design.searches,
            "width": f"{_width(each.factor)} [{_width(each.low)}, {_width(each.high)}]",
            f"within {want.factor:g}": f"{each.share:.0%}", "trained": design.trained,
            "time": f"{bound}{clock(seconds)}" if math.isfinite(seconds) else "unknown",
        })  # fmt: skip
    table = render(rows, format)
    if format != "table":
        return table
    name = want.quantity.replace("_", " ")
    basis = (
        f"from {count(made.pilot, 'recorded trial')} of each batch size"
        if made.pilot
        else "from packaged curves (own, published): the folder does not hold eight trials of each "
        "batch size yet"
    )
    head = f"{made.curve}: {name} within {want.factor:g}, {basis}"
    return f"{head}\n\n{table}\n{_ending(made, want, source)}\n"


def _ending(made: CurvePlan, want: Want, source: str) -> str:
    chosen = made.chosen
    if chosen is None:
        last = made.expected[-1]
        interval = f"{_width(last.factor)} [{_width(last.low)}, {_width(last.high)}]"
        return (
            f"nothing here is expected to be within {want.factor:g}: the largest gives {interval}, "
            f"and {last.share:.0%} of its simulated sweeps are within it{_why_open(last)}"
        )
    every = max((each.design.batch_sizes for each in made.expected), key=len)
    return f"next: {command(chosen, source, every)}"


def _why_open(last: Expected) -> str:
    if last.open < (1 - last.share) / 2:
        return ""
    return (
        f"; in {last.open:.0%} an end of the curve is not surely level: batch sizes beyond it help "
        "more than trials"
    )


def command(chosen: Expected, source: str, every: Sequence[int]) -> str:
    """The command that trains a design."""
    design, settings = chosen.design, []
    if design.batch_sizes != tuple(every):
        settings.append(f"grid.batch_size=[{','.join(map(str, design.batch_sizes))}]")
    settings.append(f"trials={design.trials}")
    if design.searches > 1:
        settings.append(f"design={{one_factor: {{baseline: {design.searches}}}}}")
    parts: list[Any] = ["batchscale", "sweep", source]
    for setting in settings:
        parts += ["--set", setting]
    return shlex.join(parts)


def _width(factor: float) -> str:
    return f"{factor:.2f}" if math.isfinite(factor) else "open"
