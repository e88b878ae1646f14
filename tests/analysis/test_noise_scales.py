"""Noise scales along the trajectory to the target are those that the trials were made with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import batchscale as bs
from analysis import figures
from analysis.noise.scales import BEST, NEAR, WINDOWS, by_curve, trajectories
from results.errors import ResultsError
from tests.analysis.gallery import Row
from tests.analysis.noisy_trajectories import CURVES, SIZES, SLOWER, recorded

IMPROVING = 0.9 / (0.9 - (math.log(10) + 0.1 - 1) / 18)
"""∫ w / ∫ w (1 - s/2) with the weights w = 9 / (1 + 9 s)², by which the error falls."""


def expected(first: float, low: float, high: float) -> float:
    """tr(Σ) over the mean |G|² between two shares."""
    return first / (1 - (low + high) / 4)


def test_windows_have_the_noise_scale_that_was_made(tmp_path: Path) -> None:
    data = recorded(tmp_path)
    made = trajectories(data)
    assert [(w.curve.label, w.point.batch_size) for w in made] == [
        (name, size) for name in CURVES for size in SIZES
    ]
    for trajectory in made:
        _, first = CURVES[trajectory.curve.label]
        steps = trajectory.point.steps
        assert steps is not None
        for low, high in WINDOWS.values():
            given = trajectory.between(low, high)
            assert given is not None
            # A window ends at evaluations, 5 % of the trajectory from one to the next.
            assert given.noise_scale == pytest.approx(expected(first, low, high), rel=0.03)
        improving = trajectory.by_improvement()
        assert improving is not None
        assert improving.noise_scale == pytest.approx(first * IMPROVING, rel=0.02)
        assert improving.low is improving.high is None


def test_a_trial_on_the_curves_of_two_targets_has_its_steps_to_each(tmp_path: Path) -> None:
    """4,096 is trained to 0.2, which the errors of the others reach at 4/9 of their steps."""

    def easier(row: Row) -> Row:
        if "trial" not in row or "-4096" not in row["study"]:
            return row
        if "metrics" not in row:
            return {**row, "target_value": 0.2}
        error = 2 * row["metrics"]["validation_error"]
        return {**row, "metrics": {**row["metrics"], "validation_error": error}}

    made = trajectories(recorded(tmp_path, easier))
    assert len(made) == len(CURVES) * (2 * len(SIZES) - 1)
    for trajectory in made:
        _, first = CURVES[trajectory.curve.label.split(",")[0]]
        part = "< 0.2" in trajectory.curve.label and trajectory.point.batch_size != 4096
        given = trajectory.between(0.0, 1.0)
        assert given is not None
        truth = expected(first, 0.0, 4 / 9 if part else 1.0)
        assert given.noise_scale == pytest.approx(truth, rel=0.01)


def test_the_best_trials_count_that_are_near_the_first(tmp_path: Path) -> None:
    trajectory = trajectories(recorded(tmp_path))[0]
    assert [name.rsplit("-", 1)[1] for name in trajectory.trials] == ["0", "1", "2"]
    assert max(SLOWER[:BEST]) < NEAR < SLOWER[-1]


def test_the_interval_holds_the_truth_where_the_terms_are_noisy(tmp_path: Path) -> None:
    """Of 12 trajectories with noise as large as |G|² in each step, at 90 %."""
    data = recorded(tmp_path, deviation=1.0)
    held = 0
    for trajectory in trajectories(data):
        given = trajectory.between(0.0, 1.0)
        assert given is not None
        truth = expected(CURVES[trajectory.curve.label][1], 0.0, 1.0)
        held += (given.low or 0) <= truth <= (given.high or math.inf)
        assert given.high is None or given.low is None or given.high / given.low > 1.02
    assert held >= 9


def test_doubling_windows_end_where_an_interval_does(tmp_path: Path) -> None:
    for trajectory in trajectories(recorded(tmp_path)):
        windows = trajectory.doublings()
        assert [high for _, high, _ in windows] == [0.5**k for k in reversed(range(len(windows)))]
        assert all(each.low is not None for *_, each in windows)


def test_a_trial_too_short_for_an_interval_is_one_window(tmp_path: Path) -> None:
    def short(row: Row) -> Row:
        metrics = row.get("metrics")
        if metrics is None:
            return row
        rare = {n: v / 1000 if n == "train_noise_steps" else v for n, v in metrics.items()}
        return {**row, "metrics": {**rare, "train_noise_steps": float(row["step"] >= 5)}}

    for trajectory in trajectories(recorded(tmp_path, short)):
        ((low, high, each),) = trajectory.doublings()
        assert (low, high, each.low) == (0.0, 1.0, None)


def test_what_was_not_recorded_is_said(tmp_path: Path) -> None:
    def without(row: Row) -> Row:
        kept = {"validation_error": row["metrics"]["validation_error"]} if "metrics" in row else {}
        return {**row, "metrics": kept} if kept else row

    with pytest.raises(ResultsError, match="no trial that reached its target has recorded") as e:
        trajectories(recorded(tmp_path, without))
    assert e.value.hint == "sweep with technique: noise_scale, and keep the measurements"


def test_the_public_answer_and_the_figures_numbers(tmp_path: Path) -> None:
    data = recorded(tmp_path)
    answer = bs.noise_scales(tmp_path)
    assert [each["label"] for each in answer] == [*CURVES]
    for each, (_, fit, _) in zip(answer, by_curve(data), strict=True):
        assert fit is not None
        assert each["critical_batch_size"] == fit.critical_batch_size.to_dict()
        first = CURVES[each["label"]][1]
        for row in each["batch_sizes"]:
            assert row["path"]["value"] == pytest.approx(expected(first, 0, 1), rel=0.03)
            assert row["path"]["low"] <= row["path"]["value"] <= row["path"]["high"]
    numbers = figures.numbers("noise", data)
    last = numbers.groupby(["curve", "batch_size"], as_index=False).last()
    for _, row in last.iterrows():
        truth = expected(CURVES[str(row["curve"])][1], 0.5, 1.0)
        assert row["noise_scale"] == pytest.approx(truth, rel=0.03)
    assert bs.plot("noise", tmp_path).get_yscale() == "log"
