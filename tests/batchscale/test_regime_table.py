"""How regimes are printed: intervals, bounds, and notes with the curves they are about."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from analysis import Interval
from analysis.figure_data import FigureData, Query
from analysis.fit.search_limits import SearchEffect, search_effect
from analysis.formatting import interval
from batchscale import answers
from batchscale.output.regime_table import regimes
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

OPEN = {"value": None, "low": None, "high": None}


def curve(optimizer: str, *notes: str, **changes: Any) -> dict[str, Any]:
    quantity = {"value": 64.4, "low": 48.2, "high": 90.0}
    return {
        "workload": "digits-mlp",
        "technique": '{"precision": "float32"}',
        "optimizer": optimizer,
        "perfect_scaling_until": quantity,
        "maximal_parallelism_from": quantity,
        "critical_batch_size": quantity,
        "min_steps": quantity,
        "min_examples": {"value": 12345.6, "low": 9876.5, "high": 15000.0},
        "level": 0.9,
        "tolerance": 0.2,
        "batch_sizes": [1, 2, 1024],
        "trials": 64,
        "target": "validation_error < 0.04",
        "example_unit": "example",
        "censored": [],
        "estimator": "minimum",
        "points": [],
        "noise": 0.05,
        "best": None,
        "rise": None,
        "slopes": {
            "first": {"value": -0.981, "low": -1.0, "high": -0.9},
            "last": {"value": -0.0004, "low": -0.2, "high": -0.0},
            "half": {"value": 64.4, "low": 30.0, "high": None},
        },
        "level_ends": {"small": True, "large": False},
        "notes": list(notes),
        **changes,
    }


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (64.4, 48.2, 90.0, "64 [48, 90]"),
        (3.14159, 2.0, 4.5, "3.14 [2, 4.5]"),
        (12345.6, 9876.5, 15000.0, "12,300 [9,880, 15,000]"),
        (None, 48.2, 1024.0, "[48, 1,020]"),
        (None, 48.2, None, "≥ 48"),
        (30.0, None, 90.0, "≤ 90"),
        (None, None, None, "open"),
    ],
)
def test_an_interval(value: float, low: float, high: float, shown: str) -> None:
    assert interval(value, low, high) == shown


def test_each_data_set_has_its_table_and_a_technique_is_text_without_what_all_have() -> None:
    clipped = '{"clip": 1.0, "precision": "float32"}'
    curves = [
        curve("sgd"),
        curve("sgd", "a note", technique=clipped),
        curve("adam", workload="mnist-fc", dataset="mnist", width=64),
        curve("lion", workload="mnist-fc", dataset="mnist", width=32),
    ]
    first, second = regimes(curves, "table").split("\n\nworkload ")
    assert first.startswith("workload digits-mlp, target")
    assert "clip 1 " in first
    assert "precision" not in first
    assert "technique clip 1, sgd: a note" in first
    assert "width" not in first
    assert second.startswith("mnist-fc, precision float32, dataset mnist, target")
    assert {"width", "64", "32"} <= {*second.split()}
    assert len(json.loads(regimes(curves, "json"))) == 4


def test_slopes_are_a_column_and_their_intervals_are_in_the_csv() -> None:
    columns, _, row = regimes([curve("sgd")], "table").splitlines()[3:6]
    at = columns.index("slopes")
    assert row[at:].strip() == "-0.98 … -0.00"
    (flat,) = csv.DictReader(io.StringIO(regimes([curve("sgd")], "csv")))
    ends = [flat[f"slope_first{end}"] for end in ("", "_low", "_high")]
    assert ends == ["-0.981", "-1.0", "-0.9"]
    assert (flat["slope_half_low"], flat["slope_half_high"]) == ("30.0", "")
    assert (flat["level_small_end"], flat["level_large_end"]) == ("True", "False")
    assert (flat["noise"], flat["rise"]) == ("0.05", "")
    assert not {"forms", "slopes", "level_ends"} & {*flat}


def test_a_level_plateau_has_no_negative_zero() -> None:
    level = {name: {"value": -0.0, "low": -0.1, "high": 0.0} for name in ("first", "last", "half")}
    assert "0.00 … 0.00" in regimes([curve("sgd", slopes=level)], "table")
    assert "-0.00" not in regimes([curve("sgd", slopes=level)], "table")


def test_what_all_curves_share_stands_above_the_table() -> None:
    out = regimes([curve("sgd"), curve("adam")], "table")
    head, second, _, columns = out.splitlines()[:4]
    assert head == "workload digits-mlp, precision float32, target validation_error < 0.04"
    assert second == "90% intervals, tolerance 0.2, each point the best of N"
    assert columns.startswith("optimizer   batch sizes   N ")
    assert "1–1024 (3)" in out


def test_bounds_are_explained_where_there_are_any() -> None:
    bounded = curve("sgd", critical_batch_size={"value": None, "low": 48.0, "high": None})
    assert "≥ and ≤: bounded, not reached" in regimes([bounded], "table")


def test_a_note_stands_once_with_its_curves() -> None:
    two = ("of all", "of two")
    out = regimes([curve("sgd", *two), curve("adam", *two), curve("x", "of all")], "table")
    assert out.endswith("\n\n- of all\n- sgd; adam: of two\n")


def test_csv_has_every_end_in_a_column_of_its_own() -> None:
    head, row = regimes([curve("sgd", "a", "b", min_steps=OPEN)], "csv").splitlines()
    values = dict(zip(head.split(","), row.split(","), strict=False))
    assert "critical_batch_size_low" in values
    assert "64.4" in row
    assert "a b" in row


def test_anothers_definition_is_a_column_beside_ours() -> None:
    theirs = {"value": 745.32, "low": 700.0, "high": 800.0}
    found = [curve("sgd", critical_batch_size_zhang2024=theirs)]
    head = regimes(found, "table").splitlines()[3]
    ours = head.index(" critical batch size ")
    assert ours < head.index("critical batch size zhang2024") < head.index("maximal parallelism")
    assert "745 [700, 800]" in regimes(found, "table")
    columns = regimes(found, "csv").splitlines()[0].split(",")
    assert {f"critical_batch_size_zhang2024{end}" for end in ("", "_low", "_high")} <= {*columns}


def test_a_comparison_is_a_sentence_and_columns_of_csv() -> None:
    ratio = {"value": 3.1, "low": 2.4, "high": 4.0}
    names = ("critical_batch_size", "min_steps", "perfect_scaling_until",
             "maximal_parallelism_from", "min_examples")  # fmt: skip
    against = {
        "baseline": "sgd",
        "ratios": dict.fromkeys(names, ratio),
        "sentence": "the critical batch size of momentum is 3.1 [2.4, 4.0] times that of sgd",
    }
    found = [curve("sgd", against=None), curve("momentum", "a note", against=against)]
    out = regimes(found, "table")
    said = "The critical batch size of momentum is 3.1 [2.4, 4.0] times that of sgd."
    assert f"\n\n{said}\n\n- momentum: " in out
    first, second = csv.DictReader(io.StringIO(regimes(found, "csv")))
    assert (first["baseline"], second["baseline"]) == ("", "sgd")
    assert first["critical_batch_size_ratio"] == ""
    ends = [second[f"min_steps_ratio{end}"] for end in ("", "_low", "_high")]
    assert ends == ["3.1", "2.4", "4.0"]


def test_a_law_is_said_once_and_has_columns_of_csv() -> None:
    power = {"value": 0.5, "low": 0.4, "high": 0.6}
    law = {"against": "width", "exponent": power, "coefficient": power, "scatter": 0.0,
           "sentence": "critical batch size = 5 [4, 6] · width^0.5 [0.4, 0.6]"}  # fmt: skip
    found = [curve("sgd", width=width, law=law) for width in (16, 64)]
    out = regimes(found, "table")
    assert out.count("Critical batch size = 5 [4, 6] · width^0.5 [0.4, 0.6].") == 1
    (row, _) = csv.DictReader(io.StringIO(regimes(found, "csv")))
    assert [row[f"law_exponent{end}"] for end in ("", "_low", "_high")] == ["0.5", "0.4", "0.6"]
    assert row["law_against"] == "width"


def test_json_is_what_the_api_returns() -> None:
    curves = [curve("sgd", min_steps=OPEN)]
    assert json.loads(regimes(curves, "json")) == curves


def test_targets_that_differ_are_a_column() -> None:
    out = regimes([curve("sgd"), curve("sgd", target=None)], "table")
    head, _, _, columns, *_ = out.splitlines()
    assert "target" not in head
    assert columns.startswith("target ")
    assert "validation_error < 0.04" in out
    same = regimes([curve("sgd", workload=None, technique=None, target=t) for t in "ab"], "table")
    assert same.startswith("90% intervals")
    noted = [curve("sgd", f"of {goal}", target=goal) for goal in ("loss < 1", "loss < 2")]
    assert "\n- sgd, target loss < 1: of loss < 1\n" in regimes(noted, "table")


def test_a_note_names_no_more_than_tells_its_curve() -> None:
    both = [
        curve(name, f"of {name}", workload=name, source=name, dataset="d", model=model)
        for name, model in (("a", "m"), ("b", None))
    ]
    assert "\n- workload a, a: of a\n- workload b, b: of b\n" in regimes(both, "table")
    sources = [curve("sgd", f"of {name}", source=name) for name in ("x", "y")]
    assert "\n- sgd, source x: of x\n" in regimes(sources, "table")


def test_a_field_called_n_is_a_column_beside_the_number_of_trials() -> None:
    curves = [curve("adamw", "a note", N=10**8), curve("adamw", N=2 * 10**8)]
    head, _, first, second = regimes(curves, "table").splitlines()[3:7]
    names = head.split()
    assert names[:3] == ["optimizer", "field", "N"]
    assert names.count("N") == 2
    starts = [row.split()[:2] for row in (first, second)]
    assert starts == [["adamw", "100000000"], ["adamw", "200000000"]]
    assert all("64" in row.split() for row in (first, second)), "the trials"
    assert "adamw, N 100000000: a note" in regimes(curves, "table")
    rows = list(csv.DictReader(io.StringIO(regimes(curves, "csv"))))
    assert [(row["N"], row["trials"]) for row in rows] == [("100000000", "64"), ("200000000", "64")]


def test_the_effect_of_the_search_is_in_json_and_csv_and_its_note_beneath() -> None:
    query = Query(sources=["own"], where="experiment = 'gallery-subsets'")
    found = answers.regimes(query)
    data = FigureData(query)
    for each, made, fit in zip(found, data.curves, data.regimes, strict=True):
        effect = search_effect(made, fit)
        assert effect is not None
        assert each["search_effect"] == effect.factor.to_dict()
    assert json.loads(regimes(found, "json"))[0]["search_effect"] == found[0]["search_effect"]
    rows = list(csv.DictReader(io.StringIO(regimes(found, "csv"))))
    ends = ("search_effect", "search_effect_low", "search_effect_high")
    assert [float(rows[0][name]) for name in ends] == [*found[0]["search_effect"].values()]
    assert "search_effect" not in regimes(found, "table")


def test_curves_without_a_search_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(sources=["published"], where="workload = 'mnist-simple-cnn'")
    found = answers.regimes(query)
    assert all(each["search_effect"] == OPEN for each in found)
    sure = SearchEffect(
        factor=Interval(value=9.0, low=8.0, high=10.0), trials=64, dimensions=4,
        cheapest=(1.0, 1.1), largest=(512.0, 9.9),
    )  # fmt: skip
    monkeypatch.setattr(answers, "search_effect", lambda *_: sure)
    said = regimes(answers.regimes(query), "table")
    assert said.count("the search moves the critical batch size by more than its interval") == 1


def test_an_assumed_form_is_named_as_one(command: Command, small: Path) -> None:
    said = command("regimes", small, "--form", "knee")
    assert said.status == 0
    assert "by a knee, an assumed form" in said.out
    assert "by an assumed form (" in said.out
    plain, *_ = json.loads(command("regimes", small, "--json").out)
    assumed, *_ = json.loads(command("regimes", small, "--json", "--form", "knee").out)
    assert assumed.pop("form") == "knee"
    assert assumed.keys() == plain.keys()
    assert assumed["min_steps"]["value"] == assumed["best"]["min_steps"]
    clear(
        command("regimes", small, "--form", "knee", "--baseline", "sgd"),
        "--form knee and --baseline exclude each other",
        hint="leave --form out",
    )
    clear(command("regimes", small, "--form", "kne"), "there is no form 'kne'", hint="knee?")
