"""Sweeps through Ray: the same results as without it, and clear errors where it cannot be."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

import results as dataset
from experiments.config.compile import Experiment, load
from experiments.errors import ExperimentError
from experiments.execution.ray import start as ray_session
from experiments.execution.sweep import sweep
from experiments.scheduling.messages import Begun, Ended, Event, Note
from tests.forked import SERVER

pytestmark = pytest.mark.ray


def experiment(**changes: Any) -> Experiment:
    given = {
        "name": "small",
        "workload": "digits-softmax",
        "grid": {"batch_size": [64, 256], "optimizer": ["sgd"]},
        "trials": 6,
        "budget": "60 steps",
        "target": "validation_error < 0.1",
        "keep": "off",
        "engine": "stacked",
        "evaluation_ratio": 1.3,
        **changes,
    }
    return load(given)


def table(root: Path) -> pd.DataFrame:
    columns = ["trial", "status", "steps_to_target", "last_miss", "steps_run"]
    return dataset.open(root).trials.sort_values("trial")[columns].reset_index(drop=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the experiment without Ray."""
    root = tmp_path_factory.mktemp("alone")
    sweep(experiment(), results=root, address="none")
    return root


@pytest.mark.slow
def test_the_same_table_as_without_ray(tmp_path: Path, ray_address: str, alone: Path) -> None:
    from ray.tune import Callback

    class Counts(Callback):
        trials: ClassVar[dict[str, int]] = {}

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any):
            del iteration, trials
            self.trials[trial.config["pack"]] = result["trials"]

    seen: list[Event] = []
    how: dict[str, Any] = {"address": ray_address, "observer": seen.append}
    did = sweep(experiment(), results=tmp_path, callbacks=[Counts()], **how)
    assert did.complete
    assert table(tmp_path).equals(table(alone))
    assert Counts.trials == dataset.open(tmp_path).trials.groupby("pack").size().to_dict()
    assert sum(isinstance(event, Begun) for event in seen) == 2
    ended = [event for event in seen if isinstance(event, Ended) and event.run is None]
    assert sum(len(event.outcomes) for event in ended) == did.trained
    assert not list((tmp_path / "claims").glob("*.json"))
    measured = [dataset.open(root).measurements for root in (tmp_path, alone)]
    keys = ["trial", "step", "validation_error", "validation_cross_entropy"]
    first, second = (
        m.sort_values(["trial", "step"])[keys].reset_index(drop=True) for m in measured
    )
    assert first.equals(second)  # bit for bit


@pytest.mark.slow
def test_two_workers_end_with_the_same_table(tmp_path: Path, ray_address: str, alone: Path) -> None:
    of = experiment(workers=2, grid={"batch_size": [64], "optimizer": ["sgd"]})
    seen: list[Event] = []
    did = sweep(of, results=tmp_path, address=ray_address, observer=seen.append)
    assert did.complete
    rows = dataset.open(tmp_path).trials
    assert (rows.world_size == 2).all()
    both = table(tmp_path)
    one = table(alone)
    assert both.equals(one[one.trial.isin(both.trial)].reset_index(drop=True))


@pytest.mark.slow
def test_rows_return_to_the_driver_of_a_remote_cluster(
    tmp_path: Path, ray_address: str, alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ray_session.session

    @contextmanager
    def remote(*arguments: Any) -> Iterator[Any]:
        with real(*arguments) as connected:
            yield replace(connected, single_machine=False)

    monkeypatch.setattr(ray_session, "session", remote)
    of = experiment(grid={"batch_size": [64], "optimizer": ["sgd"]})
    assert sweep(of, results=tmp_path, address=ray_address).complete
    back, whole = table(tmp_path), table(alone)
    assert len(back) == 6
    assert back.equals(whole[whole.trial.isin(back.trial)].reset_index(drop=True))


@pytest.mark.slow
def test_a_cluster_that_may_grow_is_asked_for_all_of_it(
    tmp_path: Path, ray_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four packs are out on two processors; the two that wait say so, and all are trained."""
    from experiments.execution.ray import demand

    monkeypatch.setattr(demand, "_WAIT_SECONDS", 1.0)
    of = experiment(
        grid={"batch_size": [64, 128, 256, 512], "optimizer": ["sgd"]},
        budget="4000 steps",
        target="validation_error < 0.03",
        stop_at_target=False,
    )
    seen: list[Event] = []
    did = sweep(of, results=tmp_path, address=ray_address, grows_to=4, observer=seen.append)
    assert did.complete
    assert did.trained == 24
    notes = [event.text for event in seen if isinstance(event, Note)]
    (first, *_) = [text for text in notes if "waited" in text]
    assert "for 1 CPU; the cluster has 2 CPUs and no GPU on 1 machine, of which no CPU" in first


@pytest.mark.slow
def test_a_port_that_something_else_answers_at(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ExperimentError, match=r"what answers at .* is not Ray"):
            sweep(experiment(), results=tmp_path, address=address)


@pytest.mark.slow
def test_without_ray_installed(tmp_path: Path) -> None:
    alone = SERVER.Process(target=_without_ray, args=(tmp_path,))
    alone.start()
    alone.join(240)
    assert alone.exitcode == 0


def _without_ray(folder: Path) -> None:
    assert "ray" not in sys.modules
    sys.modules["ray"] = None  # type: ignore[assignment]
    of = experiment(grid={"batch_size": 64, "optimizer": ["sgd"]}, trials=2, engine="module")
    assert sweep(of, results=folder, address="none").complete
    of = experiment(grid={"batch_size": 64, "optimizer": ["sgd"]}, workers=2)
    with pytest.raises(ExperimentError, match="Ray cannot be imported") as caught:
        sweep(of, results=folder / "other", address="auto")
    assert "--address none" in str(caught.value.hint)
