"""What curves are called: as few words as tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from analysis import Curve, curves, figures, regimes
from analysis.curves.groups import labels
from analysis.notes import Note, codes

Make = Callable[..., pd.DataFrame]

MNIST = {"workload": "mnist-simple-cnn", "optimizer": "sgd"}
THEIRS = {"source": "shallue_2019_digitized", **MNIST}
MINE = {
    "source": None,
    **MNIST,
    "fields.label_smoothing": 0.0,
    "schedule": "constant",
    "technique": '{"precision":"float32"}',
}


def test_measured_curves_beside_published_curves() -> None:
    """What a sweep knows of itself and a figure of a paper does not is no difference of theirs."""
    assert labels([MINE, THEIRS]) == ["own", "shallue_2019_digitized"]
    momentum = {**MINE, "optimizer": "momentum"}
    assert labels([MINE, momentum, THEIRS]) == [
        "own, sgd", "own, momentum", "shallue_2019_digitized, sgd",
    ]  # fmt: skip
    assert labels([MINE, momentum]) == ["sgd", "momentum"]


def test_what_is_needed_is_kept() -> None:
    linear = {**MINE, "schedule": "linear"}
    assert labels([MINE, linear, THEIRS]) == [
        "own, constant", "own, linear", "shallue_2019_digitized",
    ]  # fmt: skip
    half = {**MINE, "technique": '{"precision":"bfloat16"}'}
    assert labels([MINE, half]) == ["precision float32", "precision bfloat16"]
    smooth = {**MINE, "fields.label_smoothing": 0.1}
    assert labels([MINE, smooth]) == ["label_smoothing 0", "label_smoothing 0.1"]
    large = [{**MINE, "width": width} for width in (1_281_167, 1_281_168.0, 1_000_000)]
    assert labels(large) == ["width 1281167", "width 1281168", "width 1e+06"]
    # Equal names were two curves of one, and of these "best-at-batch" had the last alone.
    yes = [{**MNIST, **each} for each in ({}, {"pretrain": "yes"}, {"distill": "yes"})]
    assert labels(yes) == ["sgd", "pretrain yes", "distill yes"]
    near = [{**MNIST, "fields.noise": noise} for noise in (0.1234567, 0.1234568)]
    assert labels(near) == ["noise 0.1234567", "noise 0.1234568"]
    assert labels([MNIST, MNIST], ["a < 1", "a < 2"]) == ["sgd, a < 1", "sgd, a < 2"]


def test_a_collection_has_its_name_and_an_ordinary_workload_none() -> None:
    plain, quality = MNIST, {**MNIST, "collection": "solution_quality"}
    assert labels([{**plain, "collection": None}, quality]) == ["sgd", "solution_quality"]
    adam = {**plain, "optimizer": "adam", "collection": None}
    assert labels([adam, quality]) == ["adam", "sgd, solution_quality"]
    assert labels([plain, adam, quality]) == ["sgd", "adam", "sgd, solution_quality"]
    assert labels([{}]) == labels([{"width": None}]) == ["steps to target"]


def test_a_sweep_of_a_packaged_experiment_is_a_separate_curve(search: Make) -> None:
    measured = search()
    packaged = measured.assign(source="batchscale")
    labelled = curves(pd.concat([measured, packaged]))
    assert [curve.label for curve in labelled] == ["own", "batchscale"]
    assert [point.steps for point in labelled[0].points] == [
        point.steps for point in labelled[1].points
    ]


def best_of(trials: pd.DataFrame, estimator: str = "best_of_10") -> Curve:
    (curve,) = curves(trials, estimator=estimator)
    return curve


@pytest.mark.usefixtures("closed_figures")
def test_a_target_met_before_the_first_step_has_a_note(search: Make) -> None:
    trials = search(keep=None)
    trials.loc[trials.index[:2], ["steps_to_target", "last_miss"]] = 0.0
    (curve,) = curves(trials)
    assert curve.points[0].steps == 0
    assert Note("met_at_start", at=[1]) in curve.notes
    assert "met_at_start" not in codes(curves(search())[0].notes)
    assert curve.tabulate()[0]["half_trials_ratio"] is None
    assert not curve.relative
    assert best_of(trials).points[0].steps == 0
    again = trials[:3].assign(role="repeat", trial=["r0", "r1", "r2"])
    assert best_of(pd.concat([trials, again]), "minimum").points[0].repeats is not None
    twice = trials.assign(replicate=1, trial=trials["trial"] + "-1")
    replicates = best_of(pd.concat([trials.assign(replicate=0), twice]), "minimum")
    assert replicates.points[0].steps == 0
    assert not {"replicate_missed", "relative"} & {*codes(regimes(replicates).notes)}
    labelled = regimes(curve)
    assert figures.draw("steps", [curve], [labelled]).get_ylim()[0] > 1
    trials.loc[trials.index[:4], ["steps_to_target", "last_miss"]] = 0.0
    assert curves(trials)[0].points[0].bar == (0, 0)


def test_points_below_a_step_have_a_note(plain_curve: Callable[..., Curve]) -> None:
    sizes = [2.0**i for i in range(14)]
    steps = [100 * (1 + 40 / size) for size in sizes]
    whole, epochs = (regimes(plain_curve(sizes, [each * by for each in steps])) for by in (1, 1e-4))
    assert Note("relative") in epochs.notes
    assert Note("relative") not in whole.notes
    assert epochs.min_steps.value == pytest.approx(whole.min_steps.value * 1e-4, rel=1e-3)  # type: ignore[operator]
    assert epochs.critical_batch_size.value == pytest.approx(whole.critical_batch_size.value)


def names(drawn: Any, count: int) -> list[str]:
    """The names of so many curves in the legend."""
    texts = drawn.get_figure().legends[0].get_texts()
    return [text.get_text().replace("\n", " ") for text in texts[:count]]


def test_what_techniques_have_in_common_is_no_difference() -> None:
    def of(technique: str | None, **more: str) -> dict[str, str | None]:
        return {**MNIST, "technique": technique, **more}

    plain, clip, both = (
        f'{{{part}"precision":"float32"}}' for part in ("", '"clip":1.0,', '"clip":1.0,"ema":0.9,')
    )
    assert labels([of(plain), of(clip), of(both)]) == ["sgd", "clip 1.0", "clip 1.0, ema 0.9"]
    assert labels([of(clip), of(both)]) == ["sgd", "ema 0.9"]
    assert labels([of(plain), of(clip, optimizer="adam")]) == ["sgd", "adam, clip 1.0"]
    assert labels([of(None), of(plain)]) == ["sgd", "precision float32"]


@pytest.mark.usefixtures("closed_figures")
def test_a_legend_names_sources_in_short(plain_curve: Callable[..., Curve]) -> None:
    sizes = [2.0**i for i in range(10)]
    groups = [MINE, {**MINE, "optimizer": "adam"}, THEIRS, {**THEIRS, "optimizer": "momentum"}]
    labelled = [
        plain_curve(sizes, [100 * (1 + 40 / size) for size in sizes], group=group, label=str(i))
        for i, group in enumerate(groups)
    ]
    assert names(figures.draw("steps", labelled, [None] * 4), 4) == [
        "own, sgd", "own, adam", "Shallue et al. 2019, sgd", "Shallue et al. 2019, momentum",
    ]  # fmt: skip
    twins = [{**THEIRS, "source": f"a_cluster_of_ours_{year}"} for year in (2025, 2026)]
    labelled = [plain_curve(sizes, sizes, group=group, label=group["source"]) for group in twins]
    assert names(figures.draw("steps", labelled, [None] * 2), 2) == [
        "a cluster of ours 2025", "a cluster of ours 2026",
    ]  # fmt: skip
