"""Branches as a table: a row a step and window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.formatting import short
from batchscale.output import tables
from batchscale.output.tables import Format, ends, notes, render
from results.counts import count, plural

Answer = Mapping[str, Any]
_VERDICTS = {"within": "", "above": " ✗", "open": " ?"}


def branches(answer: Answer, format: Format) -> str:
    """The text of ``batchscale branch``. JSON is what ``Branches.to_dict`` returns."""
    if format == "json":
        return tables.answer_json(answer)
    if format == "csv":
        return render([_flat(answer, point) for point in answer["points"]], "csv")
    table = render([_row(answer, point) for point in answer["points"]], format)
    if format != "table":
        return table
    lines = [_title(answer), table.rstrip("\n"), "", _ending(answer), *_ramp(answer)]
    return "\n".join([*lines, *notes([("", answer["notes"])])]) + "\n"


def _title(answer: Answer) -> str:
    rule = answer["learning_rate"]
    rate = "unchanged" if rule == "none" else f"by the {rule} rule"
    unit = plural(str(answer["example_unit"] or "example"))
    return (
        f"{answer['workload']}, {answer['optimizer']}: {answer['metric']} against batch size "
        f"{answer['batch_size']:,} ({unit}) of trial {answer['trial']}; learning rate {rate}"
    )


def _row(answer: Answer, point: Answer) -> dict[str, Any]:
    size = answer["batch_size"]
    row: dict[str, Any] = {
        "at step": point["step"],
        "window": f"{count(point['window_steps'], 'step')} ({_seen(answer, point)})",
        "critical batch size": _critical(point["critical_batch_size"]),
    }
    if answer["tolerance_of"] == "examples":
        of_loss = point["tolerance"]
        row["tolerance"] = "open" if of_loss is None else f"{100 * of_loss:.2g} %"
    for each in point["comparisons"]:
        row[f"at {each['times'] * size:,}"] = _excess(each) + _VERDICTS[each["verdict"]]
    return row


def _seen(answer: Answer, point: Answer) -> str:
    examples, tokens = point["window_examples"], answer["tokens_per_example"]
    if tokens:
        return f"{examples * tokens:,} tokens"
    return count(examples, str(answer["example_unit"] or "example"))


def _critical(each: Answer) -> str:
    value, text = each["value"], ends(each)
    if value is None or (each["low"] is not None and each["high"] is not None):
        return text
    return f"about {short(value)}, {text}" if text != "open" else f"about {short(value)} (open)"


def _excess(comparison: Answer) -> str:
    excess = [comparison["excess"][name] for name in ("value", "low", "high")]
    if comparison["diverged"]:
        return "diverged"
    if excess[0] is None:
        return "open"
    value, low, high = (None if end is None else f"{100 * end:+.2f}" for end in excess)
    return f"{value} %" if low is None else f"{value} % [{low}, {high}]"


def _ending(answer: Answer) -> str:
    return (
        f"{answer['level']:.0%} intervals by seeds; excess over batch size "
        f"{answer['batch_size']:,} at equal examples, tolerance {_tolerance(answer)}; "
        "✗: surely above it, ?: open; ≥ and ≤: the other end is open"
    )


def _tolerance(answer: Answer) -> str:
    of = " more examples to the same loss" if answer["tolerance_of"] == "examples" else ""
    return f"{100 * answer['tolerance']:.3g} %{of}"


def _ramp(answer: Answer) -> list[str]:
    ramp = answer["ramp"]
    if ramp is None:
        return ["", "No ramp: no larger batch size is surely within the tolerance."]
    saved = f"{ramp['saves']:.0%} fewer steps: {ramp['ramp_steps']:,} for {ramp['steps']:,}"
    window = max(point["window_steps"] for point in answer["points"])
    longest = ramp["longest_steps"]
    beyond = [
        f"A size is kept for up to {longest:,} of these, longer than the window: what it costs "
        "beyond is not measured."
    ]
    cost = f"the loss after them may be up to {_tolerance(answer)} higher."
    if answer["tolerance_of"] == "examples":
        cost = f"to the same loss it may need up to {100 * answer['tolerance']:.3g} % more of them."
    where, line = "for the grid of an experiment with this", f"  batch_size: {ramp['batch_size']}"
    if ramp["batch_size"] is None:
        where = "for the program to take, of the same"
        line = "  " + ", ".join(f"{k}× from step {step:,}" for step, k in ramp["changes"])
    return [
        "",
        f"By windows of {count(window, 'step')}, a ramp {where} "
        f"budget ({count(ramp['budget_steps'], 'step')} of batch size {answer['batch_size']:,}):",
        line,
        f"For the examples to the trial's {ramp['to']} {saved}; {cost}",
        *(beyond if longest > window else []),
    ]


def _flat(answer: Answer, point: Answer) -> dict[str, Any]:
    row = {name: point[name] for name in ("step", "examples", "window_steps", "window_examples")}
    row["tolerance"] = point["tolerance"]
    row |= tables.end_columns("critical_batch_size", point["critical_batch_size"])
    for each in point["comparisons"]:
        size = each["times"] * answer["batch_size"]
        row |= tables.end_columns(f"excess_{size}", each["excess"])
        row[f"verdict_{size}"] = each["verdict"]
    return row
