"""The tables of the atlas's first question, of packaged experiments that ask the same of others."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from results.store import Store
from tests.reported import EASIER, SIZES, TARGET, trial_row
from validation import optimizers

MADE_BEFORE = (
    "experiment IN ('techniques-digits', 'techniques-mnist', 'techniques-text') "
    "AND schedule = 'constant' AND technique LIKE '{_precision_:_float32_}'"
)


@pytest.mark.slow
def test_optimizers_of_three_workloads_are_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam is in all three, SGD in two, Muon in one."""
    monkeypatch.setattr(optimizers, "WHERE", MADE_BEFORE)
    made = optimizers.tables()
    head, _, *rows = made["pooled"].splitlines()
    assert head.startswith("| optimizer | workloads | critical batch size | another workload |")
    by_name = {row.split("|")[1].strip(" `"): row.split("|")[2:-1] for row in rows}
    assert by_name["adam"][0].strip() == "3"
    assert by_name["sgd"][0].strip() == "2"
    assert by_name["sgd"][1].strip() == by_name["sgd"][2].strip() == "open"
    low, high = by_name["adam"][2].strip(" []").split(", ")
    assert float(low) < 1 < float(high)
    first, _, *workloads = made["workloads"].splitlines()
    assert first.count("|") == 5
    assert workloads[0].startswith("| `momentum` | 1")
    (at_edges,) = (row for row in workloads if row.startswith("| `momentum-99`"))
    assert at_edges.count("†") == 2
    assert any(row.startswith("| `muon` | – | – | 1") for row in workloads)
    (adam,) = (row for row in made["knee"].splitlines() if row.startswith("| `adam` |"))
    assert [cell.strip() for cell in adam.split("|")[2:4]] == ["2", "open"]


def test_two_workloads_are_not_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "WHERE", f"{MADE_BEFORE} AND workload <> 'digits-mlp'")
    made = optimizers.tables()
    assert made["pooled"] == "Fewer than 3 workloads are trained yet: nothing is pooled.\n"


LAWS = {
    "adamw": {EASIER: (20, 32), TARGET: (40, 32)},
    "muon": {EASIER: (10, 200), TARGET: (400, 6)},
    "soap": {EASIER: (15, 32), TARGET: (30, 32)},
}
"""Least steps and critical batch sizes at an easier and at a harder target."""


def test_an_optimizer_whose_gain_depends_on_the_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    for optimizer, size in itertools.product(LAWS, SIZES):
        group = {"workload": "digits-mlp", "dataset": "digits", "optimizer": optimizer,
                 "batch_size": size, "study": f"{optimizer}-{size}"}  # fmt: skip
        store.add_studies([{"experiment": "e", **group, "targets": [EASIER, TARGET]}])
        rows, looks = [], []
        for place in range(8):
            easy, hard = (
                round(least * (1 + critical / size) * (1 + 0.1 * place))
                for least, critical in LAWS[optimizer].values()
            )
            rows.append(trial_row(group, place, 0.05 * 1.5**place, hard, hard - 1))
            errors = {easy - 1: 0.09, easy: 0.07, hard - 1: 0.05, hard: 0.039}
            looks += [
                {"trial": rows[-1]["trial"], "step": step, "metrics": {"validation_error": error}}
                for step, error in errors.items()
            ]
        store.commit("e", measurements=looks, trials=rows)
    monkeypatch.setattr(optimizers, "TARGETS", ("e",))
    _, _, muon, soap = optimizers._by_target(tmp_path).splitlines()
    assert muon.startswith(f"| digits-mlp digits | `muon` | {EASIER} and {TARGET} | ")
    cells = [[cell.strip() for cell in row.split("|")[4:-1]] for row in (muon, soap)]
    easy, hard = (float(cell.split()[0]) for cell in cells[0][:2])
    assert easy > 3
    assert hard < 0.5
    assert [row[2] for row in cells] == ["yes", "not known"]
    assert all(float(cell.split()[0]) == pytest.approx(1, abs=0.05) for cell in cells[1][:2])
