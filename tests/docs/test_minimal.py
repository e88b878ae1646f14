"""The minimal program measures what the platform measures: each trial's steps, and the knee."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import batchscale as bs
from analysis.fit.convex import Points
from analysis.fit.knee import Knee
from batchscale.run import Run
from experiments import optimizers
from experiments.training.batch_order import BatchOrder
from experiments.training.evaluation_grid import evaluation_steps
from experiments.training.threads import single_thread
from tests.batchscale.conftest import ignore
from tests.docs.conftest import program
from workloads.digits import DigitsMLP, splits

TRIALS = 4
EPOCHS, STEPS = 4, 150
TARGET = 0.1


class Measured(NamedTuple):
    """The same measurement by the platform and by the minimal program."""

    run: Run
    trials: dict[int, list[Any]]
    """By batch size."""


@pytest.fixture(scope="module")
def minimal() -> Iterator[Any]:
    """What docs/minimal.py defines."""
    with single_thread():
        yield program("minimal")


def measure(
    minimal: Any, folder: Path, batch_sizes: list[int], space: tuple[float, float]
) -> Measured:
    run = bs.sweep(
        workload="digits-mlp",
        optimizer=["sgd"],
        batch_size=batch_sizes,
        trials=TRIALS,
        budget=f"{EPOCHS} epochs + {STEPS} steps",
        target=f"validation_error < {TARGET}",
        keep="off",
        engine="module",
        results=folder,
        address="none",
        observer=ignore,
        learning_rate={"log": list(space)},
    )
    data = minimal.load_data()
    settings = {"trials": TRIALS, "epochs": EPOCHS, "steps": STEPS, "target": TARGET}
    trials = {size: minimal.tune(data, size, **settings, space=space) for size in batch_sizes}
    return Measured(run, trials)


@pytest.fixture(scope="module")
def measured(minimal: Any, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Batch sizes up to the full training set."""
    folder = tmp_path_factory.mktemp("measured")
    return measure(minimal, folder, [16, 64, 256, 1024, 1297], (0.02, 2.0))


@pytest.fixture(scope="module")
def diverging(minimal: Any, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Learning rates of which most diverge."""
    return measure(minimal, tmp_path_factory.mktemp("diverging"), [64, 1024], (0.1, 1e30))


def check_trials(measured: Measured) -> None:
    assert set(measured.run.trials["batch_size"]) == set(measured.trials)
    by_size = measured.run.trials.sort_values("index").groupby("batch_size")
    for batch_size, trials in measured.trials.items():
        rows = by_size.get_group(batch_size)
        assert rows["learning_rate"].tolist() == [trial.learning_rate for trial in trials]
        diverged = [trial.diverged for trial in trials]
        assert (rows["status"] == "INFEASIBLE").tolist() == diverged
        reached = [math.isfinite(trial.steps) for trial in trials]
        assert rows["steps_to_target"].notna().tolist() == reached
        hits = rows[reached][["last_miss", "steps_to_target"]].to_numpy().tolist()
        assert hits == [
            [trial.last_miss, trial.steps] for trial in trials if trial.steps < math.inf
        ]


def test_the_data_are_those_of_the_workload(minimal: Any) -> None:
    expected = [tensor for name in ("train", "validation") for tensor in splits()[name]]
    for mine, theirs in zip(minimal.load_data(), expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("batch_size", [1, 100, 1024, 1297])
def test_batches_are_those_of_the_platform(minimal: Any, batch_size: int) -> None:
    """Over more than two epochs, the full training set in its own order."""
    count = 2 * (1297 // batch_size) + 1
    batches = list(islice(minimal.draw_batches(7, 1297, batch_size), count))
    assert torch.equal(torch.stack(batches), BatchOrder(7, 1297, batch_size).batches(0, count))


@pytest.mark.parametrize("budget", [1, 2, 100, 4001])
def test_the_evaluation_grid_is_that_of_the_platform(minimal: Any, budget: int) -> None:
    assert tuple(minimal.evaluation_grid(budget)) == evaluation_steps(1.05, budget)


def test_target_and_search_space_are_the_defaults_of_the_platform(minimal: Any) -> None:
    defaults = minimal.tune.__kwdefaults__
    assert optimizers.get("sgd").space == {"learning_rate": {"log": list(defaults["space"])}}
    assert DigitsMLP.target == f"validation_error < {defaults['target']}"


@pytest.mark.slow
def test_every_trial_has_the_learning_rate_and_the_steps_of_the_platform(
    measured: Measured,
) -> None:
    check_trials(measured)
    reached = [trial.steps for trials in measured.trials.values() for trial in trials]
    assert len(measured.trials) <= np.isfinite(reached).sum() < len(reached)


@pytest.mark.slow
def test_trials_that_diverge_are_replaced_as_the_platform_does(diverging: Measured) -> None:
    check_trials(diverging)
    for trials in diverging.trials.values():
        assert sum(not trial.diverged for trial in trials) == TRIALS
        assert any(trial.diverged for trial in trials)


@pytest.mark.slow
def test_the_fewest_steps_and_the_knee_are_those_of_the_regimes(
    minimal: Any, measured: Measured
) -> None:
    (regimes,) = measured.run.regimes()
    points = {point["batch_size"]: point["steps"] for point in regimes["points"]}
    trials = {size: minimal.best_trial(trials) for size, trials in measured.trials.items()}
    assert points == {size: trial.steps for size, trial in trials.items()}
    best = regimes["best"]
    assert best["a"] == 1
    assert best["points"] == len(points)
    middles = [trial.middle for trial in trials.values()]
    min_steps, critical, k = minimal.fit_knee(list(trials), middles)
    assert min_steps == pytest.approx(best["min_steps"], rel=1e-3)
    assert critical == pytest.approx(best["critical_batch_size"], rel=1e-3)
    assert k == pytest.approx(best["k"], rel=1e-3)


@pytest.mark.parametrize("count", [3, 4, 5, 9])
def test_the_knee_of_noisy_curves_is_that_of_the_analysis(minimal: Any, count: int) -> None:
    sizes = np.geomspace(4, 4096, count)
    for seed, bend in enumerate([0.7, 1.0, 2.5]):
        noise = 0.05 * np.random.default_rng(seed).standard_normal(count)
        log_steps = minimal.knee(sizes, 100.0, 128.0, bend) + noise
        points = Points(x=np.log(sizes), y=log_steps, variance=np.zeros(count))
        theirs = Knee.of(points)
        assert not theirs.sloped
        mine = minimal.fit_knee(sizes, np.exp(log_steps))
        assert mine == pytest.approx(np.exp(theirs.params[:3]), rel=1e-3)


def test_what_is_printed(
    minimal: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row a batch size, and the knee of those at which the target was reached."""

    def tune(_: Any, batch_size: int) -> list[Any]:
        steps = math.inf if batch_size == 8 else 60 + 3200 // batch_size
        slower = 2 * steps
        return [minimal.Trial(0.1, 0, slower), minimal.Trial(0.5, steps - 1, steps)]

    monkeypatch.setattr(minimal, "tune", tune)
    minimal.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[1].split() == ["8", "not", "within", "the", "budget"]
    assert lines[2].split() == ["16", "260", "4160", "0.5"]
    assert lines[-1].startswith("knee: S_min ")
    min_steps, critical = (float(lines[-1].split()[i]) for i in (2, 5))
    assert min_steps == pytest.approx(60, rel=0.05)
    assert critical == pytest.approx(3200 / 60, rel=0.05)
