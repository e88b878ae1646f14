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
from experiments.errors import ExperimentError, TrainingError
from experiments.execution.ray import start as ray_session
from experiments.execution.sweep import sweep
from experiments.scheduling.messages import Begun, Ended, Event, Note
from tests.forked import SERVER

pytestmark = pytest.mark.ray

MINE = """
import torch
from batchscale import Classification
from layers import net

class Mine(Classification):
    target = "validation_error < 0.1"

    def data(self):
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return {split: (x, (x[:, 0] > 0).long()) for split in ("train", "validation")}

    def model(self):
        return net()
"""
LAYERS = """
import torch

def net():
    return torch.nn.Linear(4, 2)
"""


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
def test_own_files_travel_and_nothing_else(tmp_path: Path, ray_address: str) -> None:
    """The files that are named, and what they import of their folder."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "__init__.py").write_text("raise ImportError('not ours')")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "layers.py").write_text(LAYERS)
    (tmp_path / "rule.py").write_text("from rules.sgd import Rule\n")
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "sgd.py").write_text(
        "import torch\nclass Rule(torch.optim.SGD):\n    def __init__(self, params, lr=0.1):\n"
        "        super().__init__(params, lr=lr)\n"
    )
    (tmp_path / "rules" / "late.py").write_text("LATE = 0.5\n")
    (tmp_path / "late.py").write_text(
        "from batchscale import Schedule\nfrom rules.late import LATE\nclass Late(Schedule):\n"
        "    def shape(self, step, stable_steps=20):\n"
        "        return 1.0 if step < stable_steps else LATE\n"
    )
    file = tmp_path / "mine.yaml"
    file.write_text(
        "workload: mine.py:Mine\ngrid: {batch_size: 32, optimizer: [rule.py:Rule]}\n"
        "trials: 3\nbudget: 40 steps\nschedule: late.py:Late\n"
    )
    did = sweep(load(file), results=tmp_path / "runs", address=ray_address)
    assert did.complete
    assert did.failed == 0


@pytest.mark.slow
def test_what_a_workload_raises_comes_back(tmp_path: Path, ray_address: str) -> None:
    (tmp_path / "mine.py").write_text(
        MINE.replace("from layers import net", "net = lambda: torch.nn.Linear(4, 2)")
        + """
    calls = 0

    def loss(self, output, batch):
        type(self).calls += 1
        if type(self).calls > 7:
            raise ValueError("the seventh step is one too many")
        return super().loss(output, batch)
"""
    )
    file = tmp_path / "mine.yaml"
    file.write_text(
        "workload: mine.py:Mine\ngrid: {batch_size: 32, optimizer: [sgd]}\nbudget: 40 steps\n"
    )
    with pytest.raises(TrainingError, match="the seventh step is one too many") as caught:
        sweep(load(file), results=tmp_path / "runs", address=ray_address)
    assert caught.value.traceback.count(str(tmp_path / "mine.py")) == 1
    assert "experiments/" not in caught.value.traceback


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
def test_a_demand_that_no_cluster_meets(tmp_path: Path, ray_address: str) -> None:
    with pytest.raises(ExperimentError, match="asks for 3 workers with 1 CPU each") as caught:
        sweep(experiment(workers=3), results=tmp_path, address=ray_address)
    assert "has 2 CPUs and no GPU on 1 machine" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "a driver outside the cluster"),
        ("nonsense", "is not HOST:PORT"),
        ("127.0.0.1:99999", "is not HOST:PORT"),
        ("127.0.0.1:1", "nothing answers at 127.0.0.1:1"),
    ],
)
def test_addresses(tmp_path: Path, address: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        sweep(experiment(), results=tmp_path, address=address)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


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
