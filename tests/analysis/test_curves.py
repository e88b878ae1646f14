"""From trials to curves: what groups, what is minimized over, N, censoring, repeats."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis import compare, curves, regimes
from analysis.notes import Note, codes
from results.errors import ResultsError

Make = Callable[..., pd.DataFrame]


def test_a_point_is_the_best_of_its_study(search: Make) -> None:
    trials = search()
    (curve,) = curves(trials)
    assert curve.batch_sizes == [2**i for i in range(11)]
    assert curve.trials == 16
    assert curve.label == "sgd"
    assert str(curve.target) == "validation_error < 0.04"
    least = trials.groupby("batch_size")["steps_to_target"].min()
    assert [point.steps for point in curve.points] == least.tolist()
    point = curve.points[0]
    best = trials[trials["trial"] == point.trial].iloc[0]
    assert point.middles == ((best["last_miss"] + 1 + best["steps_to_target"]) / 2,)
    assert point.best == json.loads(best["metaparameters"])
    fourth = trials[trials["batch_size"] == 1]["steps_to_target"].dropna().sort_values().iloc[3]
    assert point.bar == (point.steps**2 / fourth, fourth)  # type: ignore[operator]


def test_optimizers_make_curves_and_by_minimizes_over_the_rest(search: Make) -> None:
    both = pd.concat([search("sgd"), search("adam", seed=1), search("adam", seed=1)])
    two = curves(both)  # the same trials twice: from two experiments, say
    assert [curve.label for curve in two] == ["sgd", "adam"]
    assert [curve.trials for curve in two] == [16, 16]
    (one,) = curves(both, by=["schedule"])
    assert one.trials == 32
    assert any("optimizer" in note and "adam (N = 16)" in note for note in one.notes)
    for merged, sgd, adam in zip(one.points, two[0].points, two[1].points, strict=True):
        assert merged.steps == min(sgd.steps, adam.steps)  # type: ignore[type-var]
        assert merged.best["optimizer"] in ("sgd", "adam")


def test_two_gradients_a_step_are_a_note_and_no_more_examples(search: Make) -> None:
    """E stays B·S; what of a step's gradients is not one an example is said, in its unit."""
    trials = search(example_unit="image")
    (plain,) = curves(trials.assign(gradients_per_step=None))
    (other,) = curves(trials.assign(gradients_per_step=1.0))
    (sam,) = curves(trials.assign(gradients_per_step=2.0))
    assert [point.examples for point in sam.points] == [point.examples for point in plain.points]
    assert Note("gradients", steps="each step takes", n=2, unit="image") in sam.notes
    assert "gradients" not in codes((*plain.notes, *other.notes))
    mixed = trials.assign(gradients_per_step=[2.0] + [np.nan] * (len(trials) - 1))
    (curve,) = curves(mixed)
    assert any(note.startswith("steps of some of its trials take 2 ") for note in curve.notes)


def test_workload_fields_that_vary_always_group(search: Make) -> None:
    wide = search(fields='{"depth": 2, "width": 256}')
    narrow = search(seed=1, fields='{"depth": 2, "width": 64}').assign(trial=range(len(wide)))
    found = curves(pd.concat([wide, narrow]), by=["optimizer"])
    assert [curve.group["width"] for curve in found] == [256, 64]
    assert "depth" not in found[0].group


def test_fields_that_the_reader_has_made_columns_keep_their_names(search: Make) -> None:
    wide = search(fields='{"width": 256}').assign(width=256)
    narrow = search(seed=1, fields='{"width": 64}').assign(width=64)
    found = curves(pd.concat([wide, narrow.assign(trial=range(len(narrow)))]))
    assert [curve.group["width"] for curve in found] == [256, 64]
    assert "fields.width" not in found[0].group


def test_a_field_named_as_a_column_is_told_from_it(search: Make) -> None:
    one = search(fields='{"optimizer": "inner"}')
    two = search(seed=1, fields='{"optimizer": "outer"}').assign(trial=range(len(one)))
    found = curves(pd.concat([one, two]))
    assert [curve.group["fields.optimizer"] for curve in found] == ["inner", "outer"]
    assert {curve.group["optimizer"] for curve in found} == {"sgd"}


def test_what_the_studies_say_is_a_note_of_their_curve(search: Make, studies_of: Make) -> None:
    trials = search()
    studies = studies_of(trials)
    notes = [json.dumps(["of all", "of the first"]), *[json.dumps(["of all"])] * 3]
    studies["notes"] = notes + [None] * (len(studies) - 4)
    (curve,) = curves(trials, studies=studies)
    said = [note for note in curve.notes if note.code == "recorded"]
    assert said == ["of all", "of the first"]
    (silent,) = curves(trials, studies=studies.drop(columns="notes"))
    assert "recorded" not in codes(silent.notes)


def test_by_a_key_of_technique_and_by_nonsense(search: Make) -> None:
    single = search(technique={"precision": "float32"})
    double = search(technique={"precision": "float64"}).assign(trial=range(176))
    both = pd.concat([single, double])
    assert len(curves(both)) == 2
    assert [c.group["precision"] for c in curves(both, by=["precision"])] == ["float32", "float64"]
    with pytest.raises(ResultsError, match="no column 'optimiser'") as caught:
        curves(both, by=["optimiser"])
    assert caught.value.hint == "did you mean optimizer?"


def test_n_is_the_most_that_all_batch_sizes_share(search: Make) -> None:
    trials = search(keep=None)
    short = trials[(trials["batch_size"] != 8) | (trials["index"] < 5)]
    (curve,) = curves(short)
    assert curve.trials == 5
    assert any("first 5 feasible trials: batch size 8" in note for note in curve.notes)
    first = trials[(trials["batch_size"] == 64) & (trials["index"] < 5)]
    assert curve.points[6].steps == first["steps_to_target"].min()


def test_infeasible_trials_do_not_count_and_their_share_is_of_those_that_ran(search: Make) -> None:
    trials = search()
    dead = (trials["index"] % 4 == 1) & trials["steps_to_target"].isna()
    trials.loc[dead, ["status", "stop_reason", "steps_run"]] = ("INFEASIBLE", "diverged", 3)
    broken = (trials["index"] == 2) & trials["steps_to_target"].isna()
    trials.loc[broken, "stop_reason"] = "error"
    (curve,) = curves(trials)
    point = max(curve.points, key=lambda point: point.infeasible)
    assert point.infeasible >= 2
    assert point.ran == point.trials + point.infeasible
    assert all(p.trials == curve.trials for p in curve.points)
    # One that went on and diverged after its target reached it, as if it had been stopped there.
    hit = trials["stop_reason"] == "target"
    trials.loc[hit, ["status", "stop_reason"]] = "INFEASIBLE", "diverged"
    assert curves(trials)[0].points == curve.points


def test_nothing_depends_on_what_happened_beyond_the_last_exact_order_statistic(
    search: Make,
) -> None:
    """In another order of packs a dominated trial might have run on, hit late, or diverged."""
    trials = search()
    beyond = trials["stop_reason"] == "dominated"
    late = trials.copy()
    late.loc[beyond, ["status", "stop_reason"]] = ["COMPLETE", "target"]
    late.loc[beyond, "steps_to_target"] = 1e5
    dead = trials.copy()
    dead.loc[beyond, ["status", "stop_reason", "steps_run"]] = ("INFEASIBLE", "diverged", 90_000)
    points = curves(trials)[0].points
    assert curves(late)[0].points == curves(dead)[0].points == points
    assert all(point.budget and point.order_statistics for point in points)


def test_a_batch_size_that_never_gets_there_is_a_point(search: Make) -> None:
    trials = search()
    lost = trials["batch_size"] == 1
    trials.loc[lost, ["steps_to_target", "last_miss"]] = np.nan
    trials.loc[lost, ["status", "stop_reason"]] = ["COMPLETE", "budget"]
    (curve,) = curves(trials)
    assert curve.censored == [1]
    assert curve.points[0].trials == 16
    assert curve.points[0].bar is None
    assert "nothing reached the target at batch size 1" in curve.notes
    assert 1 not in curve.to_fit()[0]
    assert curve.to_frame()["steps"].isna().tolist() == [True] + [False] * 10


def test_a_batch_size_where_all_diverged_does_not_set_n(search: Make) -> None:
    trials = search()
    lost = trials["batch_size"] == 1024
    trials.loc[lost, ["steps_to_target", "last_miss"]] = np.nan
    trials.loc[lost, ["status", "stop_reason", "steps_run"]] = ("INFEASIBLE", "diverged", 2)
    (curve,) = curves(trials)
    assert curve.trials == 16
    assert curve.censored == [1024]
    assert "no trial stayed feasible at batch size 1024" in curve.notes
    assert curve.points[-1].infeasible == curve.points[-1].ran == 16


def test_a_point_has_the_reading_error_of_its_best_trial(search: Make) -> None:
    trials = search()
    errors = np.linspace(0.01, 0.1, len(trials))
    (curve,) = curves(trials.assign(relative_error=errors))
    of_trial = dict(zip(trials["trial"], errors, strict=True))
    assert [p.relative_error for p in curve.points] == [of_trial[p.trial] for p in curve.points]
    # Frames of older files lack the column.
    assert {point.relative_error for point in curves(trials)[0].points} == {None}


def test_the_reading_error_of_several_runs_is_their_root_mean_square() -> None:
    sizes = [8] * 3 + [16] * 2 + [32] * 2
    rows = pd.DataFrame({"batch_size": sizes, "steps_to_target": [9.0, 8, 7, 6, np.nan, 3, 4]})
    rows = rows.assign(role="repeat", status="COMPLETE", stop_reason="target", study="s")
    rows["relative_error"] = [0.03, 0.04, np.nan, 0.1, 0.5, np.nan, np.nan]
    rows["trial"] = [f"t{i}" for i in rows.index]
    (curve,) = curves(rows)
    expected = [np.sqrt((0.03**2 + 0.04**2) / 2), 0.1, None]  # of a run that missed: none
    assert [point.relative_error for point in curve.points] == pytest.approx(expected)


def test_repeats_are_runs_and_never_minimized_over() -> None:
    trials = pd.DataFrame(
        {
            "batch_size": [8, 8, 16, 16, 32, 32],
            "steps_to_target": [110.5, 90.0, 60.0, np.nan, 42.0, 40.0],
            "role": "repeat",
            "status": "COMPLETE",
        }
    )
    (curve,) = curves(trials)
    assert curve.repeats
    assert curve.trials == 1
    assert curve.points[0].runs == (90.0, 110.5)
    assert curve.points[0].steps == pytest.approx((90 * 110.5) ** 0.5)
    assert codes(curve.notes) == ["runs_missed"]
    sizes, steps = curve.to_fit()
    assert sizes.tolist() == [8, 8, 16, 32, 32]
    assert sorted(steps[:2]) == [90.0, 110.5]


def test_most_runs_that_miss_leave_no_mean() -> None:
    """Of five runs the one that is lucky says little: the batch size is not fitted."""
    steps = [np.nan, 90.0, np.nan, np.nan, np.nan, 60, 70, 80, 90, np.nan]
    trials = pd.DataFrame({"batch_size": [8] * 5 + [16] * 5, "steps_to_target": steps})
    (curve,) = curves(trials.assign(role="repeat", status="COMPLETE"))
    assert [(point.steps is None, point.hits) for point in curve.points] == [(True, 1), (False, 4)]
    assert [(note.code, note.values["at"]) for note in curve.notes] == [
        ("runs_mostly_missed", [8]),
        ("runs_missed", [16]),
    ]


def test_runs_that_were_evaluated_once_are_known_to_a_factor_of_two() -> None:
    trials = pd.DataFrame({"batch_size": [8, 16, 32], "steps_to_target": [1000.0, 600, 400]})
    trials = trials.assign(role="repeat", status="COMPLETE", last_miss=0.0)
    (curve,) = curves(trials)
    assert [point.last_miss for point in curve.points] == [0, 0, 0]
    assert "wide_brackets" in codes(regimes(curve).notes)


def test_trials_on_unequal_grids_make_curves_of_their_own(search: Make) -> None:
    again = search("sgd", ratio=1.1, seed=1)
    again = again.assign(trial="again-" + again["trial"], study="again-" + again["study"])
    both = pd.concat([search("sgd"), search("adam"), again])
    made = curves(both)
    assert [curve.label for curve in made] == [
        *("evaluation_ratio 1.05, sgd", "evaluation_ratio 1.05, adam", "evaluation_ratio 1.1, sgd")
    ]
    fits = [regimes(curve) for curve in made]
    comparisons = compare(made, fits, "evaluation_ratio 1.05, sgd")
    assert [each and each.baseline for each in comparisons] == [None, made[0].label, None]
    assert "not compared" in comparisons[2].notes[0]  # type: ignore[union-attr]
    elsewhere = both["evaluation_ratio"] == 1.1
    apart = both.assign(workload=both["workload"].where(~elsewhere, "other"))
    assert "evaluation_ratio" not in curves(apart)[0].group  # nobody compares these


def test_studies_bring_edges_dimensions_and_what_is_waiting(search: Make, studies_of: Make) -> None:
    trials = search()
    studies = studies_of(trials)
    lost = trials[trials["batch_size"] != 1024]
    edge = {"learning_rate": {"log": [1e-3, 0.1]}}
    studies.loc[studies["batch_size"] == 64, "search_space"] = json.dumps(edge)
    (curve,) = curves(lost, studies=studies)
    assert curve.dimensions == 1
    assert [bool(p.edges) for p in curve.points].count(True) == 1
    assert any("upper end 0.1, at batch size 64" in note for note in curve.notes)
    assert "not run yet: batch size 1024" in curve.notes


def test_the_baseline_comes_first(search: Make) -> None:
    both = pd.concat([search("sgd"), search("adam")])
    assert [curve.label for curve in curves(both, baseline="adam")] == ["adam", "sgd"]
    with pytest.raises(ResultsError, match="no curve is called 'lion'") as error:
        curves(both, baseline="lion")
    assert error.value.hint == "curves: sgd; adam"
    many = pd.concat([search(f"sgd-{number}") for number in range(9)])
    with pytest.raises(ResultsError) as error:
        curves(many, baseline="lion")
    assert (error.value.hint or "").endswith("sgd-5; 3 more")


def test_no_trials_is_an_error(search: Make) -> None:
    with pytest.raises(ResultsError, match="no trials"):
        curves(search().iloc[:0])
