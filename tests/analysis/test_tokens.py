"""Every figure, table and report in tokens: examples times the tokens of an example, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from analysis import figures
from analysis.curves import units
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Query
from analysis.report.payload import payload
from batchscale import answers
from batchscale.output.regime_table import regimes as table
from results.batch_phases import BatchPhases
from results.errors import ResultsError
from tests.analysis import gallery, noisy_trajectories
from tests.analysis.compared import compared
from tests.analysis.gallery import Row
from tests.analysis.legible import texts
from tests.analysis.measured import measured
from tests.marks import quick

pytestmark = pytest.mark.usefixtures("closed_figures")
TOKENS = 48
"""Of an example: no power of two, as the batch sizes are."""
PAPER = [name for name in figures.names() if name.startswith("shallue-")]
ELSEWHERE = {"optimal_batch"}
"""Figures of final losses, whose law is not proportional to the unit: ``test_final_losses``."""
OURS = [name for name in figures.names() if name not in {*PAPER, *ELSEWHERE}]
WITHOUT = {"training", "search", "techniques", "collapse", "shallue-fig9", "shallue-fig10"}
"""Figures without an axis of batch sizes."""
EXACT = {"batch_size", "examples"}
"""Columns that are exactly TOKENS times those in examples."""
SCALED = EXACT | {"value", "low", "high", "limit", "perfect_scaling", "normalized_at"}
SCALED |= {
    "budget",
    "critical_batch_size",
    "min_examples",
    "fitted_examples",
    "crossover",
    "crossover_low",
    "crossover_high",
    "critical_low",
    "critical_high",
    "noise_scale",
    "noise_low",
    "noise_high",
}


def sequences(row: Row) -> Row:
    if "metrics" in row:
        return row
    return {**row, "example_unit": "sequence", "tokens_per_example": TOKENS}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FigureData]:
    root = tmp_path_factory.mktemp("tokens")
    paper = gallery.write(root / "paper", sequences)
    pair = compared(root / "pair", sequences)
    return {
        "paper": FigureData(Query(sources=[results.open(paper)])),
        "ours": measured(root / "ours", sequences),
        "crossover": pair,
        "collapse": pair,
        "noise": noisy_trajectories.recorded(root / "noise", sequences),
    }


def source_of(name: str, sources: dict[str, FigureData]) -> FigureData:
    if name in sources:
        return sources[name]
    return sources["paper" if name in PAPER else "ours"]


def in_unit(data: FigureData, unit: str | None) -> FigureData:
    return FigureData(replace(data.query, unit=unit))


def written(name: str, data: FigureData) -> str:
    return "\n".join(texts(figures.draw(name, data)))


def compare(plain: pd.DataFrame, tokens: pd.DataFrame) -> set[str]:
    """The columns that are TOKENS times as large; all others are the same."""
    assert list(plain.columns) == list(tokens.columns)
    assert len(plain) == len(tokens)
    scaled = set()
    for name in plain.columns:
        before, after = plain[name], tokens[name]
        if name == "unit":
            assert {*after} == {"tokens"}
            continue
        if before.map(lambda cell: isinstance(cell, str)).any():
            texts, in_tokens = (column.fillna("").map(str).tolist() for column in (before, after))
            assert [_in_tokens(text) for text in texts] == in_tokens, name
            continue
        x, y = (pd.to_numeric(c, errors="coerce").to_numpy(float) for c in (before, after))
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y), err_msg=name)
        x, y = x[np.isfinite(x)], y[np.isfinite(y)]
        if name in EXACT:
            np.testing.assert_array_equal(y, TOKENS * x, err_msg=name)
            scaled.add(name)
        elif not np.allclose(x, y, rtol=1e-5, atol=1e-12):
            np.testing.assert_allclose(y, TOKENS * x, rtol=1e-5, err_msg=name)
            scaled.add(name)
    return scaled


def _in_tokens(text: str) -> str:
    """A batch size that a column names."""
    return re.sub(r"B = ([\d,]+)", lambda m: f"B = {TOKENS * int(m[1].replace(',', '')):,}", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", quick([*OURS, *(pytest.param(name, marks=pytest.mark.slow) for name in PAPER)], 4)
)
def test_numbers_are_those_in_examples_times_tokens(
    name: str, sources: dict[str, FigureData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FigureData, "published", property(lambda _: []))
    kind, data = figures.get(name), source_of(name, sources)
    if name in PAPER:  # fits are those of our figures
        monkeypatch.setattr(FigureData, "regimes", property(lambda data: [None] * len(data.curves)))
    if name == "shallue-fig11":  # its default budgets are round numbers of the unit
        limits = tuple(Limit.parse(text) for text in ("20 steps", f"{640 * TOKENS} tokens"))
        data = FigureData(replace(data.query, under=limits))
    plain = figures.numbers(kind, data, options={})
    tokens = figures.numbers(kind, in_unit(data, "tokens"), options={})
    if name == "techniques":  # ratios
        pd.testing.assert_frame_equal(plain, tokens)
        return
    if "quantity" in plain:
        for quantity, rows in plain.groupby("quantity"):
            scaled = compare(rows, tokens.loc[rows.index])
            lengths = {"value", "low", "high"} & scaled
            assert bool(lengths) == (quantity != "min_steps"), quantity
        scaled = {"batch_size"}
    else:
        scaled = compare(plain, tokens)
    assert scaled <= SCALED
    assert ("batch_size" in scaled) == ("batch_size" in plain or "quantity" in plain)
    if name in OURS:  # sequences are the examples of this workload
        same = figures.numbers(kind, in_unit(data, "sequences"), options={})
        pd.testing.assert_frame_equal(plain, same)


@pytest.mark.parametrize(
    "name", [*OURS, *(pytest.param(name, marks=pytest.mark.slow) for name in PAPER)]
)
def test_axes_are_of_tokens(
    name: str, sources: dict[str, FigureData], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FigureData, "published", property(lambda _: []))
    if name in PAPER:
        monkeypatch.setattr(FigureData, "regimes", property(lambda data: [None] * len(data.curves)))
    text = written(name, in_unit(source_of(name, sources), "tokens"))
    assert "sequences" not in text
    # A field of the paper's workloads is called examples; axes name units in brackets.
    assert ("(examples)" if name in PAPER else "examples") not in text
    if name not in WITHOUT:
        assert re.search(r"\(tokens\)|tokens to target", text)


def test_regimes_are_those_in_examples_times_tokens(sources: dict[str, FigureData]) -> None:
    query = sources["ours"].query
    plain, tokens = (answers.regimes(replace(query, unit=unit)) for unit in (None, "tokens"))
    assert len(plain) == len(tokens) == 2
    for before, after in zip(plain, tokens, strict=True):
        assert (before["example_unit"], after["example_unit"]) == ("sequence", "token")
        assert after["batch_sizes"] == [TOKENS * size for size in before["batch_sizes"]]
        for name in ("critical_batch_size", "min_examples", "perfect_scaling_until", "min_steps"):
            by = 1 if name == "min_steps" else TOKENS
            for end in ("value", "low", "high"):
                x, y = before[name][end], after[name][end]
                assert (x is None) == (y is None)
                assert y is None or y == pytest.approx(by * x, rel=1e-6)
        for x, y in zip(before["points"], after["points"], strict=True):
            assert y["examples"] == (x["examples"] and TOKENS * x["examples"])
            assert y["steps"] == x["steps"]
    text = table(tokens, "table")
    assert "batch sizes are of tokens" in text
    assert "min tokens" in text
    assert "384–196608 (3)" in text


def test_the_default_is_examples(sources: dict[str, FigureData]) -> None:
    query = sources["ours"].query
    assert answers.regimes(query) == answers.regimes(replace(query, unit="examples"))


def test_the_report_counts_in_tokens(sources: dict[str, FigureData]) -> None:
    made = payload(in_unit(sources["ours"], "tokens"))
    view = made["panels"][0]["views"][0]
    assert {curve["units"] for curve in view["curves"]} == {"tokens"}
    names = {column["name"] for each in view["tables"] for column in each["columns"]}
    assert {"min tokens", "tokens"} <= names
    assert made["about"]["examples"] == "tokens"
    assert "sequences" not in re.sub(r"<[^>]*>", " ", made["html"])
    assert set(view["curves"][0]["points"]["batch_size"]) == {8 * 48, 128 * 48, 4096 * 48}


def _swept(context: int) -> Callable[[Row], Row]:
    """A context's sweep: its batch sizes have the same tokens as those of context 16."""

    def change(row: Row) -> Row:
        row = {key: f"{v}-{context}" if key in ("trial", "study") else v for key, v in row.items()}
        if "metrics" in row:
            return row
        size = row["batch_size"] * 16 // context
        fields = {**(row.get("fields") or {}), "context": context}
        row |= {"batch_size": size, "fields": fields, "train_examples": 160_000 // context}
        return {**row, "example_unit": "sequence", "tokens_per_example": context}

    return change


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Query:
    root = tmp_path_factory.mktemp("contexts")
    made = [measured(root / str(context), _swept(context)) for context in (16, 64)]
    return Query(sources=[source for data in made for source in data.query.sources])


@pytest.mark.slow
def test_curves_of_two_contexts_compare_in_tokens(contexts: Query) -> None:
    plain, tokens = FigureData(contexts), FigureData(replace(contexts, unit="tokens"))
    kind = figures.get("steps")
    by_context = {
        context: [c for c in plain.curves if c.group.get("context") == context]
        for context in (16, 64)
    }
    assert [len(each) for each in by_context.values()] == [2, 2]
    for short, long in zip(*by_context.values(), strict=True):
        assert short.batch_sizes == [4 * size for size in long.batch_sizes]
    frame = figures.numbers(kind, tokens, options={})
    rows = {
        context: frame[frame["curve"].str.contains(f"context {context}")].reset_index(drop=True)
        for context in (16, 64)
    }
    # The same steps at the same tokens: one curve lies on the other.
    for name in ("batch_size", "steps"):
        assert rows[16][name].fillna(0).tolist() == rows[64][name].fillna(0).tolist()
    assert rows[16]["batch_size"].tolist() == [128, 2048, 65536] * 2
    fits = {c.label: fit.critical_batch_size for c, fit in tokens.pairs if fit is not None}
    assert {*fits} == {"context 16, sgd", "context 64, sgd"}  # momentum has two points
    for label, interval in fits.items():
        other = fits[label.replace("context 16", "context 64")]
        assert interval.low == pytest.approx(other.low)
        assert interval.high == pytest.approx(other.high)


def test_a_budget_in_tokens_is_the_same_in_every_unit(contexts: Query) -> None:
    under = (Limit.parse("100000 tokens"),)
    plain = FigureData(replace(contexts, under=under))
    tokens = FigureData(replace(contexts, under=under, unit="tokens"))
    steps = [[point.steps for point in curve.points] for curve in plain.curves]
    assert steps == [[point.steps for point in curve.points] for curve in tokens.curves]
    unlimited = [[p.steps for p in curve.points] for curve in FigureData(contexts).curves]
    assert steps != unlimited
    for before, after in zip(steps, unlimited, strict=True):
        last = [100_000 // size for size in (128, 2048, 65536)]
        kept = [n if n and n <= most else None for n, most in zip(after, last, strict=True)]
        assert before == kept


def without_tokens(row: Row) -> Row:
    return row if row.get("optimizer") == "sgd" else sequences(row)


def recorded_notes(row: Row) -> Row:
    row = sequences(row)
    return (
        {**row, "notes": ["other steps at 128"]}
        if "index" not in row and "metrics" not in row
        else row
    )


def test_notes_of_studies_keep_their_unit(tmp_path: Path) -> None:
    data = in_unit(measured(tmp_path / "runs", recorded_notes), "tokens")
    assert "other steps at 128 (recorded in sequences)" in data.curves[0].notes


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"unit": "tokens"},
            r"\d+ trials of digits-softmax cannot be counted in tokens, without tokens_per_example",
            '--where "tokens_per_example > 0"',
        ),
        (
            {"unit": "sequences"},
            r"\d+ trials of digits-softmax cannot be counted in sequences",
            "--where \"example_unit = 'sequence'\"",
        ),
        ({"unit": "steps"}, "steps are not a unit of batch sizes", "tokens"),
        ({"unit": "token"}, "no unit 'token'", "did you mean"),
        (
            {"unit": "tokens", "under": [Limit.parse("1e6 examples")]},
            "a budget of 1,000,000 examples, and the unit is tokens",
            '--under "1e6 tokens"',
        ),
        (
            {"under": [Limit.parse("1e6 tokens")]},
            r"\d+ trials of digits-softmax cannot be counted in tokens",
            "tokens_per_example > 0",
        ),
    ],
)
def test_what_cannot_be(
    changes: dict[str, Any], message: str, hint: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    query = measured(tmp_path_factory.mktemp("mixed") / "runs", without_tokens).query
    with pytest.raises(ResultsError, match=message) as raised:
        _ = FigureData(replace(query, **changes)).curves
    assert hint in (raised.value.hint or "")
    left = FigureData(replace(query, unit="tokens", where="tokens_per_example > 0"))
    assert [curve.label for curve in left.curves] == ["momentum"]


def test_a_file_of_steps_may_have_tokens(tmp_path: Path) -> None:
    sizes = (4, 16, 64, 256)
    lines = ["batch_size,steps,tokens_per_example", *(f"{b},{1000 / b + 10},32" for b in sizes)]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    (answer,) = answers.regimes(Query(sources=[tmp_path / "mine.csv"], unit="tokens"))
    assert answer["batch_sizes"] == [32 * b for b in sizes]
    (tmp_path / "plain.csv").write_text("\n".join(["batch_size,steps", "4,100", "8,60", "16,40"]))
    with pytest.raises(ResultsError, match="3 trials of plain cannot be counted in tokens"):
        answers.regimes(Query(sources=[tmp_path / "plain.csv"], unit="tokens"))


def test_a_batch_size_that_grows_is_counted_in_tokens() -> None:
    phases = '{"starts": [0, 50], "sizes": [16, 32], "schedule_steps": 200}'
    row = {"batch_size": 16, "tokens_per_example": TOKENS, "batch_sizes": phases}
    frame = units.in_unit(pd.DataFrame([row, {**row, "batch_sizes": None}]), "tokens")
    plain, scaled = BatchPhases.of(phases), BatchPhases.of(frame["batch_sizes"][0])
    assert plain is not None
    assert scaled is not None
    assert scaled.examples(70) == TOKENS * plain.examples(70) == TOKENS * (50 * 16 + 20 * 32)
    assert BatchPhases.of(frame["batch_sizes"][1]) is None
