"""Curves ranked by their final losses as a table: a row a batch size, the best curve first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchscale.output import tables
from batchscale.output.tables import Format, ends, notes, render
from results.counts import count

Ranking = Mapping[str, Any]
_NAMES = ("best", "second", "third", "fourth")


def rankings(answers: Sequence[Ranking], format: Format) -> str:
    """The text of ``batchscale regimes --read final`` without a target. JSON is what
    ``batchscale.best_at_batch`` returns; CSV has a row a budget, batch size and curve."""
    if format == "json":
        return tables.answer_json(answers)
    if format == "csv":
        return render([row for answer in answers for row in _flat(answer)], "csv")
    return "\n".join(_table(answer, format) for answer in answers)


def _table(answer: Ranking, format: Format) -> str:
    most = max(len(row["curves"]) for row in answer["batch_sizes"])
    rows = []
    for row in answer["batch_sizes"]:
        texts = [_place(each) for each in row["curves"]] + [""] * most
        ranks = dict(zip(_NAMES, texts, strict=False))
        cells = {name: ranks[name] for name in _NAMES[:most]}
        more = {"others": max(len(row["curves"]) - len(_NAMES), 0)} if most > len(_NAMES) else {}
        size = {"batch size": row["batch_size"]}
        rows.append({**size, **cells, **more, "best told apart": _apart(row, answer["alpha"])})
    table = render(rows, format)
    if format != "table":
        return table
    workload = f"{answer['workload']}: " if answer["workload"] else ""
    better = "least" if answer["lower_is_better"] else "largest"
    lines = [
        f"{workload}{answer['metric']} at a budget of {tables.budget_text(answer['budget'])} "
        f"{answer['unit']}, the {better} first: means ± standard errors",
        f"told apart: at {answer['alpha']:.0%}, corrected for "
        f"{count(answer['comparisons'], 'comparison')}; intervals are of {answer['level']:.0%}; "
        "≥ and ≤: bounded, not reached",
        "",
        table.rstrip("\n"),
        "",
        *(f"{_first(each['sentence'])}." for each in answer["crossovers"]),
        *_best(answer),
        *notes([("", answer["notes"])]),
    ]
    return "\n".join(lines) + "\n"


def _place(each: Mapping[str, Any]) -> str:
    """``muon 3.2522 ± 0.0002``, the mean to the second digit of its error."""
    if each["failed"]:
        return f"{each['curve']} failed ({each['failed']} of {each['failed'] + each['runs']})"
    error = each["standard_error"]
    if error is None:
        return f"{each['curve']} {each['mean']:.4g}"
    digits = max(0, 1 - int(f"{error:e}".partition("e")[2]))
    return f"{each['curve']} {each['mean']:.{digits}f} ± {error:.{digits}f}"


def _apart(row: Mapping[str, Any], alpha: float) -> str:
    if row["significant"] is not False:
        return "yes" if row["significant"] else "not known" if len(row["curves"]) > 1 else ""
    near = [each["curve"] for each in row["curves"] if each["p"] is not None and each["p"] > alpha]
    return f"not from {', '.join(near)}"


def _first(sentence: str) -> str:
    """A sentence that begins with a curve's name keeps its letters."""
    return sentence if " cross at " in sentence else tables.capitalized(sentence)


def _best(answer: Ranking) -> list[str]:
    tested = [row["batch_size"] for row in answer["batch_sizes"]]
    lines = []
    for curve, best in answer["best_batch_sizes"].items():
        at = {tested[0]: " (the smallest)", tested[-1]: " (the largest)"}.get(
            best["best_tested"], ""
        )
        lines.append(
            f"Best batch size of {curve}: {ends(best)}; of those tested "
            f"{best['best_tested']:,}{at}."
        )
    return lines


def _flat(answer: Ranking) -> list[dict[str, Any]]:
    """A row a batch size and curve, by rank."""
    names = ("workload", "dataset", "metric", "unit", "budget")
    return [
        {
            **{name: answer[name] for name in names},
            "batch_size": row["batch_size"],
            "rank": rank,
            **each,
            "significant": row["significant"] if rank == 1 else None,
            "comparisons": answer["comparisons"],
            "notes": "; ".join(answer["notes"]),
        }
        for row in answer["batch_sizes"]
        for rank, each in enumerate(row["curves"], start=1)
    ]
