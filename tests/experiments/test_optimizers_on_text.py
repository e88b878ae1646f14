"""Every packaged optimizer trains a small Transformer with every schedule, in each engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from experiments import optimizers, schedules
from experiments.engines import Engine, make_engine, stackable
from experiments.plan import WorkloadRef
from experiments.training.study_context import StudyContext
from tests.problems import largest_difference, study, trials

FIELDS = {"text": "file:text.txt", "layers": 1, "width": 8, "heads": 2, "context": 8}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> WorkloadRef:
    folder: Path = tmp_path_factory.mktemp("text")
    letters = np.cumsum(np.random.default_rng(0).integers(1, 4, size=2000)) % 11
    (folder / "text.txt").write_bytes(bytes(97 + letters.astype(np.uint8)))
    return WorkloadRef(spec="lm-transformer", fields=FIELDS, base=str(folder))


def compared(engine: Engine) -> dict[str, Tensor]:
    """The weights without the bias of the keys.

    A softmax does not change if all scores do alike, so that its gradient is 0 but for rounding,
    of which lion and signum take the sign.
    """
    weights = dict(engine.weights(0))
    query, _, value = weights.pop("blocks.0.attention.qkv.bias").chunk(3)
    return {**weights, "query bias": query, "value bias": value}


def quick(optimizer: str) -> list[str]:
    """Every fourth schedule, from another on for each optimizer: each of them is there."""
    start = optimizers.names().index(optimizer)
    return [name for j, name in enumerate(schedules.names()) if (start + j) % 4 == 0]


def test_the_quick_pairs_have_every_schedule() -> None:
    assert {s for o in optimizers.names() for s in quick(o)} == set(schedules.names())
    assert all(map(quick, optimizers.names()))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", optimizers.names())
def test_each_optimizer_trains_a_transformer_with_each_schedule(
    text: WorkloadRef, optimizer: str, every: bool
) -> None:
    """Two steps in float64: all weights move, and the engines agree where the optimizer stacks."""
    given: dict[str, Any] = {"target": "validation_cross_entropy < 1", "precision": "float64"}
    of = study(workload=text, optimizer=optimizer, batch_size=4, **given)
    context = StudyContext.load(of)
    for schedule in schedules.names() if every else quick(optimizer):
        scheduled = replace(of, schedule=schedule)
        pack = trials(scheduled, 1, learning_rate=0.01)
        its = replace(context, study=scheduled, schedule=schedules.get(schedule))
        module = make_engine("module", its, pack)
        start = module.weights(0)
        module.advance(2)
        for name, weight in module.weights(0).items():
            assert weight.isfinite().all()
            assert not weight.equal(start[name]), name
        if optimizers.get(optimizer).stacks:
            assert stackable(its, pack) is None
            stacked = make_engine("stacked", its, pack)
            stacked.advance(2)
            assert largest_difference(compared(module), compared(stacked)) < 1e-9
