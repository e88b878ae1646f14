"""Files that are parsed together against each read by itself, line by line, with plain Python."""

from __future__ import annotations

import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.imports.support.shallue_points import points
from results.imports.support.shallue_tree import TrialFolder

HEADS = {
    "step,val/classification_error": ["validation_error"],
    "step,val/classification_error,test/cross_entropy_error": [
        *("validation_error", "test_cross_entropy")
    ],
    "val/average_precision,step": ["validation_average_precision"],
    "step,train/top_five,val/top_five": ["train_top_five", "validation_top_five"],
    "step": [],
}
_NUMBERS = ["0.5", "1e-3", " 2.5E2", "-.5", "nan", "inf", "-Infinity", "", "None", "3", '"0.25"']
_WRONG = ["half", "0x1g", "1_0"]
_STEPS = ["0", "7", "12", "100", "1e2", "40.0", '"3"']
_WRONG_STEPS = ["-1", "", "1.5", "nan", "ten"]

_CELL = st.one_of(*[st.sampled_from(_NUMBERS)] * 12, st.sampled_from(_WRONG))
_STEP = st.one_of(*[st.sampled_from(_STEPS)] * 12, st.sampled_from(_WRONG_STEPS))


@st.composite
def _files(draw: st.DrawFn) -> str:
    head = draw(st.sampled_from(sorted(HEADS)))
    at, width = head.split(",").index("step"), len(head.split(","))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    lines = []
    for _ in range(draw(st.integers(0, 5))):
        cells = [draw(_CELL) for _ in range(width)]
        cells[at] = draw(_STEP)
        if draw(st.integers(0, 30)) == 0:
            cells.append("0.5")
        lines += [",".join(cells)] + [""] * draw(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1]))
    first = "\n" if end == "\r" else end
    return head + first + end.join(lines) + end * draw(st.integers(0, 1))


def _trial(text: str) -> TrialFolder:
    return TrialFolder(
        name="t",
        trial_id=1,
        status="INFEASIBLE",
        steps=0,
        parameters={},
        measurements=text.encode(),
    )


Looks = list[tuple[int, dict[str, float | None]]]


def _plain(text: str) -> Looks | str:
    """The looks of one file by step, or why it is refused and in which line."""
    head, *lines = csv.reader(text.splitlines())
    names = iter(HEADS[",".join(head)])
    columns = [name if name == "step" else next(names) for name in head]
    found: Looks = []
    if not any(lines):
        return found
    for number, cells in enumerate(lines, 2):
        if not cells:
            continue
        try:
            if len(cells) != len(columns):
                raise ValueError
            values = {n: _number(c) for n, c in zip(columns, cells, strict=True)}
            step = values.pop("step")
            if step is not None and step % 1:
                raise ValueError
        except ValueError:
            return f"measurements.csv line {number}: does not parse"
        if step is None or step < 0:
            return f"measurements.csv line {number}: a step is missing or negative"
        found.append((int(step), values))
    return sorted(found, key=lambda look: look[0])


def _number(cell: str) -> float | None:
    if "_" in cell:  # which Python takes for a number
        raise ValueError
    return None if cell in {"", "None"} else float(cell)


def _read(texts: list[str]) -> list[Looks | str]:
    table, refused = points([_trial(text) for text in texts])
    rows = table.to_pylist()
    found: list[Looks | str] = []
    for at, text in enumerate(texts):
        if at in refused:
            found.append(refused[at])
            continue
        names = HEADS[text.splitlines()[0]]
        own: Looks = []
        for row in rows:
            if row["trial"] == at:
                held = {**row, **json.loads(row.get("metrics") or "{}")}
                values = {name: held.get(name) for name in names}
                own.append(
                    (row["step"], {n: None if v is None else float(v) for n, v in values.items()})
                )
        found.append(own)
    return found


def _same(found: Looks | str, expected: Looks | str) -> bool:
    if isinstance(found, str) or isinstance(expected, str):
        return isinstance(found, str) and isinstance(expected, str) and found.startswith(expected)
    return repr(found).replace("-inf", "m").replace("-nan", "nan") == repr(expected).replace(
        "-inf", "m"
    )


@given(st.lists(_files(), max_size=6))
def test_together_they_say_what_each_says_alone(texts: list[str]) -> None:
    for found, text in zip(_read(texts), texts, strict=True):
        expected = _plain(text)
        assert _same(found, expected), (found, expected, text)


def test_a_quote_that_is_not_closed_takes_no_line_of_another_file() -> None:
    head = "step,val/classification_error\n"
    texts = [head + "1,0.5\n2,0.4\n", head + '1,"0.5\n', head + '3,0.5"\n4,0.1\n', head + "5,1\n"]
    alone = [_read([text])[0] for text in texts]
    assert _read(texts) == alone
    assert alone[0] == [(1, {"validation_error": 0.5}), (2, {"validation_error": 0.4})]
    assert alone[3] == [(5, {"validation_error": 1.0})]


def test_blank_lines_of_one_file_make_up_for_no_row_of_another() -> None:
    """As many rows as lines in all, though neither file has as many."""
    head = "step,val/classification_error\n"
    texts = [head + "1,0.5\n\n2,0.4\n", head + "3,0.3\r4,0.2\r\n"]
    found = _read(texts)
    assert [
        [step for step, _ in looks] if isinstance(looks, list) else looks for looks in found
    ] == [
        [1, 2],
        [3, 4],
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_is_counted_as_the_file_counts_it(end: str) -> None:
    text = end.join(["step,val/classification_error", "1,0.5", "", "2,0.4", "3,bad", "4,worse"])
    (why,) = _read([text])
    assert str(why).startswith("measurements.csv line 5: does not parse: ")
    assert str(why).endswith("invalid value 'bad'")
