"""What tests of experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
from experiments.engines.capture import captured_step
from experiments.optimizers.stacked_update import ElementwiseUpdate
from experiments.plan import WorkloadRef
from tests.experiments.files import RIGHT
from tests.experiments.recorded_graph import RecordedGraph
from tests.experiments.technique_file import USER_FILE
from tests.experiments.test_user_optimizers import GROUPED
from tests.experiments.undisturbed import TRIALS, Sweep, undisturbed


@pytest.fixture
def user_techniques(tmp_path: Path) -> WorkloadRef:
    """digits-mlp, in a folder with a file of techniques: ``my.py``."""
    (tmp_path / "my.py").write_text(USER_FILE)
    return WorkloadRef(spec="digits-mlp", base=str(tmp_path))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with users' files and the weights of a trial, ``first.safetensors``."""
    (tmp_path / "models.py").write_text(RIGHT["files"]["models.py"])
    (tmp_path / "grouped.py").write_text(GROUPED)
    bs.trial(
        "digits-mlp", batch_size=64, learning_rate=0.3, budget="60 steps",
        save=tmp_path / "first.safetensors",
    )  # fmt: skip
    return tmp_path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Steps on a CPU are captured, and updates have the form that they have on a GPU."""
    monkeypatch.setitem(captured_step.RECORDERS, "cpu", RecordedGraph)
    monkeypatch.setattr(captured_step, "_WARM_UP", 2)
    monkeypatch.setattr(ElementwiseUpdate, "_is_uniform", lambda *_: False)
    monkeypatch.setattr(captured_step.Program, "broken", False)
    monkeypatch.setattr(RecordedGraph, "made", 0)
    monkeypatch.setattr(RecordedGraph, "replays", 0)
    captured_step.forget()
    yield
    captured_step.forget()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The rows of a sweep of 200 trials that nothing disturbs."""
    rows = undisturbed(tmp_path_factory.mktemp("whole") / "runs")
    assert len(rows) >= TRIALS
    return rows


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Starts such sweeps of one results folder, and ends what a failing test leaves."""
    started: list[Sweep] = []

    def start(**environment: str) -> Sweep:
        started.append(Sweep(tmp_path / "runs", **environment))
        return started[-1]

    yield start
    for sweep in started:
        sweep.kill_group()
