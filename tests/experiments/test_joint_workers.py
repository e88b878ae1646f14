"""Ray workers that train several packs at once."""

from __future__ import annotations

import uuid
from pathlib import Path

import pandas as pd
import pytest

from experiments.config.compile import Experiment, load
from experiments.execution.sweep import sweep
from experiments.scheduling.events import Event, Note, PackFinished, PackStarted
from results.store import Store
from tests.experiments.recorded_workers import DiesOnce

pytestmark = [pytest.mark.ray, pytest.mark.slow]
COLUMNS = ["trial", "status", "stop_reason", "steps_to_target", "steps_run"]


def _experiment(name: str) -> Experiment:
    return load(
        {
            "name": name,
            "workload": "digits-mlp",
            "grid": {"batch_size": "16, 32, 64, 128", "optimizer": ["momentum"]},
            "search": {"learning_rate": {"log": [0.01, 1.0]}},
            "precision": "float64",
            "trials": 6,
            "budget": "8 epochs",
            "target": "validation_error < 0.08",
            "keep": "off",
            "engine": "stacked",
        }
    )


def _table(root: Path) -> pd.DataFrame:
    return Store(root).trials()[COLUMNS].sort_values("trial").reset_index(drop=True)


class _Packs:
    """How many packs train at once."""

    def __init__(self) -> None:
        self.out: set[str] = set()
        self.most, self.notes = 0, list[str]()

    def __call__(self, event: Event) -> None:
        if isinstance(event, PackStarted):
            self.out.add(event.pack)
        if isinstance(event, PackFinished):
            self.out.discard(event.pack)
        if isinstance(event, Note):
            self.notes.append(event.text)
        self.most = max(self.most, len(self.out))


def test_guests_train_as_packs_of_their_own(
    tmp_path: Path, ray_address: str, request: pytest.FixtureRequest
) -> None:
    """Two workers train more than two packs at once; one of them dies, and its packs go on."""
    name = f"joint-{uuid.uuid4().hex}"
    request.addfinalizer(lambda: Path("/tmp", name).unlink(missing_ok=True))
    packs = _Packs()
    did = sweep(
        _experiment(name), results=tmp_path / "ray", address=ray_address, trainer=DiesOnce,
        observer=packs,
    )  # fmt: skip
    assert did.complete
    assert packs.most > 2
    assert not packs.out
    assert any("died" in note for note in packs.notes), packs.notes
    sweep(_experiment(name), results=tmp_path / "none", address="none")
    pd.testing.assert_frame_equal(_table(tmp_path / "ray"), _table(tmp_path / "none"))
