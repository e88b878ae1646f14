"""The tables of the atlas's first question, of packaged experiments that ask the same of others."""

from __future__ import annotations

import pytest

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
