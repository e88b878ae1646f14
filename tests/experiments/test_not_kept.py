"""Trials whose state cannot be saved: they train on, the user hears of it once, and those that are
cut off begin again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.config.compile import load
from experiments.engines.selection import Kind
from experiments.execution.sweep import sweep
from experiments.execution.worker import Pace
from experiments.plan import Pack
from experiments.scheduling.messages import Begun, Event, Note
from experiments.training.pack_training import Training
from tests import problems
from tests.experiments.test_paused_trials import coarse, some_of
from tests.marks import quick

QUICK = Pace(ask=0.01, renew=0.02, commit=0.0, snapshot=0.0)

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIMIZER = """
import collections
import torch


class Remembers(torch.optim.SGD):
    space = {"learning_rate": {"log": [1e-3, 1]}}

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("last", collections.deque(maxlen=3)).append(1)
        return super().step(closure)
"""


EXPERIMENT = """\
name: odd
workload: digits-softmax
grid:
  batch_size: 64
  optimizer: odd.py:Remembers
trials: 20
keep: 2
budget: 60 steps
target: validation_error < 0.1
evaluation_ratio: 1.3
"""


@pytest.mark.parametrize("engine", quick(["module", "stacked"], 1))
def test_what_cannot_be_kept_trains_on_and_is_said_once(tmp_path: Path, engine: Kind) -> None:
    (tmp_path / "odd.py").write_text(OPTIMIZER)
    (tmp_path / "odd.yaml").write_text(EXPERIMENT)
    events: list[Event] = []
    root, of = tmp_path / "runs", load(tmp_path / "odd.yaml", [f"engine={engine}"])
    how: Any = {"address": "none", "pace": QUICK, "observer": events.append, "pack_size": 8}
    did = sweep(of, results=root, **how)
    assert did.complete
    assert len([event for event in events if isinstance(event, Begun)]) > 1
    (note,) = [event.text for event in events if isinstance(event, Note) and "saved" in event.text]
    assert "optimizer" in note or "update" in note
    assert "collections.deque" in note
    assert not list((root / "checkpoints").glob("*"))


@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_trials_that_cannot_be_set_aside_end_as_ever(tmp_path: Path, engine: Kind) -> None:
    (tmp_path / "odd.py").write_text(OPTIMIZER)
    of = coarse()
    of = replace(
        of, workload=replace(of.workload, base=str(tmp_path)), optimizer="odd.py:Remembers"
    )
    drawn = tuple(
        replace(trial, metaparameters={"learning_rate": rate})
        for trial, rate in zip(some_of(coarse(), 4), (0.001, 0.01, 0.1, 0.3), strict=True)
    )
    pack = Pack(id="pack", study=replace(of, keep=1), trials=drawn, engine=engine, known=(15,))
    training = Training(replace(pack, keep_paused=True))
    events = [event for part in training.run() for event in part]
    assert training.paused == {}
    assert "collections.deque" in str(training.not_kept)
    cut = [o for o in problems.outcomes(events).values() if o.stop_reason == "dominated"]
    assert len(cut) > 1
    plain = [event for part in Training(pack).run() for event in part]
    assert problems.measurements(events) != []
    assert problems.said(events) == problems.said(plain)
