"""Plans as tables: a row a number of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from analysis.formatting import interval, time_unit
from batchscale.output.tables import Format, answer_json, capitalized, end_columns, notes, render
from results.counts import count

if TYPE_CHECKING:
    import pandas as pd

Answer = Mapping[str, Any]
T = TypeVar("T")
_UNITS = {"days": "d", "hours": "h", "minutes": "min", "seconds": "s"}


def plans(answer: Mapping[str, Any], format: Format) -> str:
    """The text of ``batchscale plan``. JSON is what ``batchscale.plan`` returns."""
    if format == "json":
        return answer_json(answer)
    made = answer["plans"]
    if format == "csv":
        return render([row for plan in made for row in _flat(plan)], "csv")
    tables = [_table(plan, format) for plan in made]
    if format == "table" and (like := answer.get("like")):
        if made[0]["note_codes"][:1] == ["other_workload"]:
            tables.insert(0, f"{capitalized(made[0]['notes'][0])}\n")
        tables.append(_over_task(like))
    return "\n".join([*tables, *_ending(answer, format)])


def _over_task(like: Answer) -> str:
    low, high = (like["enough"][end] for end in ("low", "high"))
    known = "no number is known" if low is None else f"{low:,.0f} to {high:,.0f} devices"
    curves = f"{count(like['curves'], 'packaged curve')} of {like['task']}"
    return f"Enough over {curves}: {known} (open for {like['open']}).\n"


def step_times(measured: pd.DataFrame) -> str:
    """What was measured as a table: the median of each place, and the range; and what was not."""
    places = [name for name in ("curve", "devices", "batch_size") if name in measured]
    rows = []
    for place, seconds in measured.groupby(places, sort=False)["seconds"]:
        low, middle, high = (_seconds(float(seconds.quantile(q))) for q in (0, 0.5, 1))
        row = {name.replace("_", " "): at for name, at in zip(places, place, strict=True)}
        rows.append({**row, "a step": middle, "least to most": f"{low} to {high}"})
    return "\n".join([render(rows, "table").rstrip("\n"), *measured.attrs["left_out"]])


def _table(plan: Answer, format: Format) -> str:
    seconds = [_ends(choice["seconds"]) for choice in plan["choices"]]
    unit, size = time_unit(min(end for ends in seconds for end in ends if end is not None))
    priced = any(choice["cost"] for choice in plan["choices"])
    rows = []
    for choice, ends in zip(plan["choices"], seconds, strict=True):
        row = {
            "devices": choice["devices"],
            "batch size": choice["batch_size"],
            "steps": interval(*_ends(choice["steps"])),
            "a step": _seconds(choice["step_seconds"]),
            f"time ({_UNITS[unit]})": interval(*(end and end / size for end in ends)),
            "saves": _saves(choice["saves"]),
        }
        row |= {"cost": interval(*_ends(choice["cost"]))} if priced else {}
        rows.append({**row, "frontier": "yes" if choice["frontier"] else ""})
    table = render(rows, format)
    if format != "table":
        return table
    lines = [
        f"{_name(plan)}to {plan['target'] or 'the target of the source'}",
        table.rstrip("\n"),
        "",
        _sentence(plan),
    ]
    return "\n".join([*lines, *notes([("", plan["notes"])])]) + "\n"


def _ending(answer: Answer, format: Format) -> list[str]:
    if format != "table":
        return []
    lines = []
    for name, winners in _grouped(answer["winners"], lambda each: each["question"]):
        for (curve, apart), same in _grouped(winners, lambda e: (e["curve"], e["significant"])):
            first, last = same[0]["devices"], same[-1]["devices"]
            several = f"{first:,} to {count(last, 'device')}"
            text = several if last > first else count(first, "device")
            lines.append(f"{name}, {text}: {curve} is quickest{_APART[apart]}")
    lines += [f"left out: {each}" for each in answer["left_out"]]
    level = answer["plans"][0]["level"]
    lines.append(
        f"{level:.0%} intervals; ≥ and ≤: bounded, not reached; saves: of the time, against the "
        "row above; frontier: no row is known to be both quicker and cheaper, by the values alone"
    )
    return ["\n".join(lines) + "\n"]


_APART = {True: "", False: ", not told apart from the next", None: ", as far as times are known"}


def _grouped(rows: Iterable[T], key: Callable[[T], Any]) -> list[tuple[Any, list[T]]]:
    return [(each, [*group]) for each, group in groupby(rows, key)]


def _sentence(plan: Answer) -> str:
    enough = plan["enough"]
    last = plan["choices"][-1]["devices"]
    if enough["value"] is not None:
        return f"More than {enough['value']:,.0f} devices gain less than 5 % of the time."
    if len(plan["choices"]) == 1:
        return f"Of {count(last, 'device')} alone: whether more pay is open."
    return f"Up to {last:,} devices each doubling may still pay: the number that is enough is open."


def _saves(saves: Mapping[str, Any] | None) -> str:
    if saves is None:
        return ""
    return interval(*_ends(saves), number=lambda share: f"{round(share, 2) + 0.0:.0%}")


def _ends(each: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    return each["value"], each["low"], each["high"]


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _name(plan: Answer) -> str:
    names = [str(plan.get("workload") or ""), plan["label"]]
    return ", ".join(filter(None, names)) + ": " if any(names) else ""


def _flat(plan: Answer) -> list[dict[str, Any]]:
    rows = []
    for choice in plan["choices"]:
        row = {"workload": plan.get("workload"), "label": plan["label"], "target": plan["target"]}
        row |= {k: choice[k] for k in ("devices", "batch_size", "step_seconds", "frontier")}
        for name in ("steps", "seconds", "cost", "saves"):
            row |= end_columns(name, choice[name])
        rows.append(row)
    return rows
