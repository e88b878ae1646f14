"""A sweep that stops itself when the intervals of its curves are narrow enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import results as dataset
from analysis import curves, regimes
from analysis.fit.interval import Interval
from analysis.widths.width import Width, width, widths
from experiments.config.compile import Experiment, load
from experiments.execution.sweep import Summary, sweep
from experiments.plan import Trial
from experiments.records.status import status
from experiments.scheduling.messages import Event, Note, Round
from tests.experiments.fakes import FakeTraining

NOISE = 0.03
STOP = {"critical_batch_size": 1.3}


class KneeTraining(FakeTraining):
    """Steps to target of 30 (1 + 32/B) at the best rate; rates above 1.75 diverge."""

    def _point(self, trial: Trial) -> float:
        rate = float(trial.metaparameters["learning_rate"])
        luck = NOISE * np.random.default_rng(trial.seed).normal()
        least = 30 * (1 + 32 / self.pack.study.batch_size)
        return least * math.exp(0.7 * (rate - 1) ** 2 + luck) / 100 if rate < 1.75 else -0.1


def experiment(**changes: Any) -> Experiment:
    """Eleven batch sizes."""
    grid = {
        "batch_size": changes.pop("batch_size", "1..1024"),
        "optimizer": changes.pop("optimizer", "sgd"),
    }
    return load(
        {
            "name": "knee",
            "workload": "digits-softmax",
            "grid": grid,
            "search": {"learning_rate": {"linear": [0.05, 2.0]}},
            "trials": 64,
            "budget": "2500 steps",
            "evaluation_ratio": 1.1,
            "target": "validation_error < 0.05",
            **changes,
        }
    )


def run(root: Path, *, seen: list[Event] | None = None, **changes: Any) -> Summary:
    options = {name: changes.pop(name) for name in ("pack_size", "measure") if name in changes}
    return sweep(
        experiment(**changes),
        results=root,
        address="none",
        trainer=KneeTraining,
        observer=seen.append if seen is not None else None,
        **{"measure": widths, **options},
    )


def said(seen: list[Event]) -> list[str]:
    return [e.text for e in seen if isinstance(e, Note) and "trials in each study" in e.text]


def trials(root: Path) -> pd.DataFrame:
    return dataset.open(root).trials


def test_an_easy_curve_needs_a_quarter_of_the_trials(tmp_path: Path) -> None:
    seen: list[Event] = []
    did = run(tmp_path, seen=seen, stop=STOP)
    text = "stopped: critical batch size within 1.3 after 16 of 64 trials in each study."
    assert said(seen) == [text]
    assert did.complete
    found = trials(tmp_path)
    feasible = found[found["status"].ne("INFEASIBLE")]
    assert set(feasible.groupby("study").size()) == {16}  # those that diverged are replaced
    assert len(found) > 11 * 16
    assert [event.round for event in seen if isinstance(event, Round)] == [0]
    state = status(tmp_path)
    assert (state.left, *set(state.studies.wanted)) == (0, 16)
    run_ = dataset.open(tmp_path)
    (curve,) = curves(run_.trials, studies=run_.studies)
    fit = regimes(curve)
    assert fit.trials == 16
    assert width(fit.critical_batch_size) <= 1.3
    two = run_.trials[run_.trials["batch_size"] < 4]
    assert [each.factor for each in widths(two, run_.studies, "min_steps")] == [math.inf]
    assert f"the sweep stopped itself: {text[9:-1]}" in map(str, fit.notes)
    again: list[Event] = []
    assert run(tmp_path, seen=again, stop=STOP).trained == 0
    assert said(again) == [text]


def spread(rows: pd.DataFrame, *_: Any) -> Sequence[Width]:
    """A width that follows from the four best trials of each study."""
    best = rows.groupby("study")["steps_to_target"].nsmallest(4).groupby("study")
    return [Width(label="sgd", factor=float((best.max() / best.min()).mean()))]


def test_neither_packs_nor_what_is_recorded_already_change_the_answer(tmp_path: Path) -> None:
    few: dict[str, Any] = {"batch_size": "64, 128", "measure": spread}
    answers, drawn = [], []
    options: dict[str, Any]
    for name, before, options in (
        ("plain", {}, {}),
        ("packs", {}, {"pack_size": 5}),
        ("recorded", {"trials": 40}, {"pack_size": 7}),
    ):
        if before:
            assert run(tmp_path / name, **{**few, **before, "keep": 1}).complete
        seen: list[Event] = []
        run(tmp_path / name, seen=seen, stop={"critical_batch_size": 1.06}, **few, **options)
        answers += said(seen)
        found = trials(tmp_path / name)
        first = found[found["index"] < 16]
        drawn.append(first.set_index("trial")["steps_to_target"].sort_index())
        best = first.groupby("study")["steps_to_target"].nsmallest(4)
        assert best.notna().all()
    (answer,) = set(answers)
    assert answer.startswith("stopped: critical batch size within 1.06 after ")
    assert set(drawn[0].index) == set(drawn[1].index) == set(drawn[2].index)


def test_a_width_that_is_not_reached_takes_all_trials(tmp_path: Path) -> None:
    seen: list[Event] = []
    stop, few = {"critical_batch_size": 1.001, "min_steps": 9}, {"batch_size": "64, 128"}
    did = run(tmp_path, seen=seen, stop=stop, trials=20, measure=spread, **few)
    (text,) = said(seen)
    start = "not critical batch size within 1.001 and min steps within 9 after 20 of 20 trials"
    assert text.startswith(start)
    assert did.complete
    assert set(trials(tmp_path).query("status != 'INFEASIBLE'").groupby("study").size()) == {20}
    assert status(tmp_path).left == 0


def test_a_narrower_width_continues_and_a_wider_one_stops_earlier(tmp_path: Path) -> None:
    few: dict[str, Any] = {"batch_size": "64, 128", "measure": spread}
    sizes = [run(tmp_path, stop={"critical_batch_size": 2}, **few).trials]
    sizes.append(run(tmp_path, stop={"critical_batch_size": 1.001}, trials=32, **few).trials)
    assert sizes[1] > sizes[0]
    assert set(status(tmp_path).studies.wanted) == {32}
    assert run(tmp_path, stop={"critical_batch_size": 2}, **few).trained == 0
    assert status(tmp_path).left == 0
    assert set(status(tmp_path).studies.wanted) == {16}


def test_repeats_follow_the_stopped_search(tmp_path: Path) -> None:
    few: dict[str, Any] = {"batch_size": "64, 128", "measure": spread}
    assert run(tmp_path, stop={"critical_batch_size": 2}, repeats=2, **few).complete
    found = trials(tmp_path)
    assert set(found[found["role"].eq("repeat")].groupby("study").size()) == {2}
    assert (found.loc[found["role"].ne("repeat"), "index"] < 25).all()
    assert status(tmp_path).left == 0


def test_each_analysis_is_at_whole_rounds_of_all_studies(tmp_path: Path) -> None:
    """Of two curves the sweep goes on for the one that needs it."""
    analysed: list[set[int]] = []

    def measure(rows: pd.DataFrame, studies: pd.DataFrame, quantity: str) -> Sequence[Width]:
        assert quantity == "critical_batch_size"
        assert set(studies["study"]) == set(rows["study"])
        feasible = rows[rows["status"].ne("INFEASIBLE")]
        analysed.append(set(feasible.groupby("study").size()))
        enough = 1.2 if min(analysed[-1]) >= 32 else math.inf
        return [Width(label="sgd", factor=1.0), Width(label="momentum", factor=enough)]

    options: dict[str, Any] = {"optimizer": ["sgd", "momentum"], "pack_size": 6, "measure": measure}
    options |= {"search": {"learning_rate": {"linear": [0.05, 2.0]}}, "batch_size": "64, 128"}
    assert run(tmp_path, stop=STOP, **options).complete
    assert analysed == [{16}, {32}]
    # Others may have recorded more since.
    run(tmp_path, **options, trials=40)
    analysed.clear()
    assert run(tmp_path, stop=STOP, **options).trained == 0
    assert analysed == [{16}, {32}]


def test_stop_is_in_no_identity() -> None:
    plain, stopping = experiment().studies(), experiment(stop=STOP).studies()
    assert [s.id for s in plain] == [s.id for s in stopping]
    assert [s.search.id for s in plain] == [s.search.id for s in stopping]
    assert plain[0].draw(0, 9) == stopping[0].draw(0, 9)
    assert not plain[0].stops_itself


def test_the_width_is_that_of_the_farther_end() -> None:
    assert width(Interval(value=10, low=8, high=15)) == 1.5
    assert width(Interval(value=10, low=5, high=15)) == 2
    assert width(Interval(value=None, low=5)) == math.inf
    assert width(Interval(value=10, low=5)) == math.inf
