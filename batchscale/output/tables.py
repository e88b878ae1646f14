"""Tables in several formats: for the terminal, a program, a paper, a page."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from results.errors import escaped, lines
from results.storage.cells import as_json, cell

if TYPE_CHECKING:
    import pandas as pd

Format = Literal["table", "csv", "json", "latex", "markdown"]
Row = Mapping[str, Any]

_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "<": "$<$",
    ">": "$>$",
    "…": r"\ldots{}",
    "–": "--",
    "\n": " ",
}
_MARKDOWN = re.compile(r"[|\\<>\n]|&(?=#?\w+;)|\]\(")
_ENDS = {"": "value", "_low": "low", "_high": "high"}
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def frame_text(frame: pd.DataFrame, format: Format) -> str:
    """A data frame as text; its header is printed even without rows."""
    names = [str(column) for column in frame.columns]
    rows = [dict(zip(names, values, strict=True)) for values in frame.itertuples(index=False)]
    text = render(rows, format, columns=names)
    return f"{text}no rows\n" if format == "table" and frame.empty else text


def write_frame(frame: pd.DataFrame, output: str, format: Format) -> Path:
    """Write a data frame: by the file's suffix, or as a table for a paper or a page."""
    from results.storage.save import destination, save

    path = destination(output)
    forms: dict[str, Format] = {".tex": "latex", ".md": "markdown"}
    if path.suffix.lower() in forms or format in ("latex", "markdown"):
        from results.storage.disk_errors import writing
        from results.storage.whole_file import write_file

        with writing(path):
            text = frame_text(frame, forms.get(path.suffix.lower(), format))
            write_file(str(path.absolute()), text.encode())
    else:
        save(frame, path)
    return path


def render(rows: Sequence[Row], format: Format = "table", *, columns: Sequence[str] = ()) -> str:
    """The rows as text, one newline at its end.

    Args:
        columns: the columns and their order; the first row's where not given.
        format: ``csv`` and ``json`` keep full precision, nulls empty or ``null``; the others
            round to four digits, for reading.
    """
    names = list(columns) or list(rows[0] if rows else ())
    if format == "json":
        plain = [{name: as_json(row.get(name)) for name in names} for row in rows]
        return _json(plain, indent=2) + "\n"
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([cell(name) for name in names])
        writer.writerows([_exact(row.get(name)) for name in names] for row in rows)
        return out.getvalue()
    cells = [[text(row.get(name)) for name in names] for row in rows]
    right = [all(_is_number(row.get(name)) for row in rows) for name in names]
    names = [lines(name) for name in names]
    if format == "latex":
        return _latex(names, cells, right)
    if format == "markdown":
        return _markdown(names, cells, right)
    return _terminal(names, cells, right)


def notes(curves: Iterable[tuple[str, Iterable[str]]]) -> list[str]:
    """Each note once with the labels of the curves that it is about, as lines after an empty one;
    without labels where it is of all. No lines where there are no notes."""
    about: dict[str, list[str]] = {}
    labels = []
    for label, its_notes in curves:
        labels.append(label)
        for note in its_notes:
            about.setdefault(note, []).append(label)
    lines = [
        f"- {'' if len(whose) == len(labels) else '; '.join(whose) + ': '}{note}"
        for note, whose in about.items()
    ]
    return ["", *lines] if lines else []


def ends(each: Mapping[str, Any]) -> str:
    """An interval as text, ``64 [48, 90]``."""
    from analysis.formatting import interval  # not at start: it brings NumPy

    return interval(each["value"], each["low"], each["high"])


def end_columns(name: str, each: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns of an interval: ``name``, ``name_low`` and ``name_high``; nulls for None."""
    return {name + suffix: each and each[end] for suffix, end in _ENDS.items()}


def budget_text(budget: float) -> str:
    """``2,048``; from ten thousand on three digits, ``1.5e+06``."""
    return f"{budget:,.4g}" if budget < 1e4 else f"{budget:.3g}"


def capitalized(sentence: str) -> str:
    """With its first letter large, the others as they are."""
    return f"{sentence[0].upper()}{sentence[1:]}"


def answer_json(answer: Any) -> str:
    """What a command answers, as its ``--format json`` prints it."""
    return json.dumps(as_json(answer), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def text(value: Any) -> str:
    """A value for reading: four significant digits, nothing for a null."""
    value = as_json(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, list | dict):
        return _json(value)
    return lines(str(value))


def _json(value: Any, indent: int | None = None) -> str:
    """JSON in which characters that a terminal would take for more than text are escapes."""
    plain = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], plain)


def _exact(value: Any) -> Any:
    value = as_json(value)
    if isinstance(value, list | dict):
        return _json(value)
    if isinstance(value, str):
        return cell(value)
    return "" if value is None else value


def _is_number(value: Any) -> bool:
    value = as_json(value)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _terminal(names: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    import rich.box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, numeric in zip(names, right, strict=True):
        head = Text(escaped(name.replace("_", " ")))
        table.add_column(head, justify="right" if numeric else "left")
    for row in cells:
        table.add_row(*map(Text, row))
    # A pipe has no width: nothing is folded there. On a terminal, however narrow, texts are folded
    # between their words, and no number is cut off.
    console = Console(width=10_000, highlight=False)
    if sys.stdout.isatty():
        least = Measurement.get(console, console.options, table).minimum + 2 * len(names)
        console = Console(width=max(Console().width, least), highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _markdown(names: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    rule = ["--:" if numeric else "---" for numeric in right]
    body = [[_MARKDOWN.sub(_as_text, cell) for cell in row] for row in [names, *cells]]
    return "".join("| " + " | ".join(row) + " |\n" for row in [body[0], rule, *body[1:]])


def _as_text(match: re.Match[str]) -> str:
    """What Markdown would read as a column, a tag, an entity, a line or a link, as text."""
    entities = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": "<br>", "](": r"]\("}
    return entities.get(match[0], f"\\{match[0]}")


def _latex(names: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    def line(row: Sequence[str]) -> str:
        texts = ["".join(_LATEX.get(c, c) for c in cell) for cell in row]
        if texts and texts[0].startswith(("[", "*")):  # an argument of the line's end before it
            texts[0] = f"{{{texts[0][0]}}}{texts[0][1:]}"
        return " & ".join(texts) + r" \\"

    shape = "".join("r" if numeric else "l" for numeric in right)
    lines = [
        rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule",
        line([n.replace("_", " ") for n in names]),
    ]
    lines += [r"\midrule", *(line(row) for row in cells), r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"
