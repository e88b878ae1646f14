"""Metrics are float64 sums with counts: the size of the chunks and the ranks change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.engines.metric_sums import MetricSums, chunks
from experiments.engines.module import ModuleEngine
from experiments.engines.stacked import StackedEngine
from experiments.parallel.ranks import SOLO
from experiments.plan import WorkloadRef
from experiments.seeds import derive
from experiments.training import splits
from experiments.training.study_context import StudyContext
from tests.problems import engine, study, trials

OWN = """
import torch
from tests.problems import TinyData
from workloads import Classification

class Counted(Classification):
    target = "validation_recall > 0.5"
    def data(self): return TinyData.splits(examples=101)
    def model(self): return TinyData.model()
    def metrics(self, output, batch):
        right = output.argmax(-1) == batch[1]
        return {**super().metrics(output, batch), "recall": (right.sum(), len(batch[1]))}
"""


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_any_chunk_gives_the_same_metrics(kind: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    of = study(
        workload=WorkloadRef(spec="own.py:Counted", base=str(tmp_path)),
        target="validation_recall > 0.5",
        batch_size=8,
    )
    one = engine(kind, of, trials(of, 3))
    assert isinstance(one, ModuleEngine | StackedEngine)
    one.advance(20)
    expected = one.evaluate("validation")
    for chunk in (1, 7, 100, 1000):
        one.chunk = chunk
        found = one.evaluate("validation")
        for a, b in zip(expected, found, strict=True):
            assert (a["error"], a["recall"]) == (b["error"], b["recall"])
            assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-6)
            assert a["recall"] == pytest.approx(1 - a["error"], abs=1e-12)


def test_a_split_that_is_kept_gives_what_reading_it_again_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = study(batch_size=8)
    one = engine("stacked", of, trials(of, 3))
    assert isinstance(one, StackedEngine)
    kept = []
    for steps in (0, 5, 5):
        one.advance(steps)
        kept.append(one.evaluate("validation"))
        with monkeypatch.context() as patch:
            patch.setattr(splits, "_KEPT_BYTES", 0)
            assert one.evaluate("validation") == kept[-1]
    assert kept[0] != kept[1] != kept[2]
    few = one.context.splits["validation"].head(10)
    one.context = replace(one.context, splits={**one.context.splits, "validation": few})
    assert one.evaluate("validation") != kept[2]  # another split is read, not what was kept


def test_a_number_that_is_not_finite_is_found_wherever_it_is() -> None:
    of = study(batch_size=8)
    one = engine("stacked", of, trials(of, 6))
    assert isinstance(one, StackedEngine)
    weights, last = one.stack.weights, one.stack.size - 1
    spoiled = {0: (0, torch.nan), 2: (last, torch.inf), 3: (7, -torch.inf), 5: (last, torch.nan)}
    for row, (place, value) in spoiled.items():
        weights[row, place] = value
    weights[1, 5] = torch.finfo(weights.dtype).max
    assert one.finite() == [row not in spoiled for row in range(6)]
    assert one.finite() == weights.isfinite().all(dim=1).tolist()


def test_a_model_begins_as_torch_seeds_it() -> None:
    of = study(workload="digits-mlp")
    first, second = trials(of, 2)
    context = StudyContext.load(of)
    before = torch.random.get_rng_state()
    model = context.model(first)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(first.seed, "init"))
        expected = context.workload.model()
    assert all(map(torch.equal, model.parameters(), expected.parameters()))
    assert not all(map(torch.equal, model.parameters(), context.model(second).parameters()))


def test_a_mean_of_batch_means_would_differ() -> None:
    """The last short chunk weighs what it holds: 3 examples, not a whole chunk."""
    sums = MetricSums(1, torch.device("cpu"), StudyContext.load(study()).workload, 13, None)
    values = torch.tensor([0.0] * 10 + [1.0] * 3)
    for indices in chunks(slice(0, 13), 10):
        sums.add({"error": values[indices]}, indices, ())
    assert sums.means(SOLO.all_reduce_) == [{"error": 3 / 13}]


def test_float32_values_are_summed_in_float64() -> None:
    sums = MetricSums(1, torch.device("cpu"), StudyContext.load(study()).workload, 10_001, None)
    sums.add({"loss": torch.full((10_000,), 1e8, dtype=torch.float32)}, torch.arange(10_000), ())
    sums.add({"loss": torch.ones(1, dtype=torch.float32)}, torch.arange(1), ())
    assert sums.means(SOLO.all_reduce_)[0]["loss"] == (1e12 + 1) / 10_001
