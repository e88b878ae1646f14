"""Metrics that are a sum and a count of each example: means over tokens, not over examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.engines.module import ModuleEngine
from experiments.engines.stacked import StackedEngine
from experiments.plan import WorkloadRef
from tests.problems import engine, study, trials

SPEC = '''
import torch
from torch import nn
from torch.nn import functional as F
from batchscale import Workload

PAD = 0


class Padded(Workload):
    """The next of six tokens, of sentences of unequal lengths."""

    target = "validation_loss < 0.1"

    def data(self):
        generator = torch.Generator().manual_seed(0)
        splits = {}
        for split, examples in (("train", 64), ("validation", 37)):
            tokens = torch.randint(1, 6, (examples, 9), generator=generator)
            lengths = torch.randint(2, 10, (examples, 1), generator=generator)
            splits[split] = (tokens.where(torch.arange(9) < lengths, torch.tensor(PAD)),)
        return splits

    def model(self):
        return nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 6))

    def forward(self, model, batch):
        return model(batch[0][:, :-1])

    def losses(self, output, batch):
        of_token = F.cross_entropy(output.mT, batch[0][:, 1:], reduction="none")
        mask = batch[0][:, 1:] != PAD
        return (of_token * mask).sum(1), mask.sum(1)

    def loss(self, output, batch):
        total, tokens = self.losses(output, batch)
        return total / tokens

    def metrics(self, output, batch):
        return {"loss": self.losses(output, batch)}
'''


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_the_mean_is_that_of_all_tokens(kind: str, tmp_path: Path) -> None:
    (tmp_path / "padded.py").write_text(SPEC)
    ref = WorkloadRef(spec="padded.py:Padded", base=str(tmp_path))
    of = study(workload=ref, target="validation_loss < 0.1", precision="float64")
    run = engine(kind, of, trials(of, 3, learning_rate=0.1))
    run.advance(5)
    assert isinstance(run, ModuleEngine | StackedEngine)
    run.chunk = 10
    for row, measured in enumerate(run.evaluate("validation")):
        workload: Any = run.context.workload
        model = workload.model().double()
        model.load_state_dict(run.weights(row))
        batch = run.context.splits["validation"].fetch(torch.arange(37), training=False)
        with torch.no_grad():
            total, tokens = workload.losses(workload.forward(model, batch), batch)
        assert measured["loss"] == pytest.approx(float(total.sum() / tokens.sum()), rel=1e-12)
        assert measured["loss"] != pytest.approx(float((total / tokens).mean()), rel=1e-3)
