"""Shampoo and SOAP: the library's steps, by the module engine."""

from __future__ import annotations

import pytest
import pytorch_optimizer

from batchscale.names import listed
from experiments.engines.selection import choose, preferred
from experiments.training.study_context import StudyContext
from tests.problems import study, trials

NAMES = {"shampoo": pytorch_optimizer.Shampoo, "soap": pytorch_optimizer.SOAP}


@pytest.mark.parametrize("name", NAMES)
def test_the_module_engine_is_chosen_and_listed(name: str) -> None:
    of = study(optimizer=name, batch_size=8)
    pack = trials(of, 8)
    assert choose(StudyContext.load(of), pack) == "module"
    other = StudyContext.load(study(optimizer="adamw", batch_size=8))
    assert preferred(other, pack[0]) == "stacked"
    assert "; trains by the module engine: no gain from stacking" in listed("optimizers")[name]
    assert "module engine" not in listed("optimizers")["muon"]
