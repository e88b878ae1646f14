"""Metrics are float64 sums with counts: the size of the chunks and the ranks change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.compile import load as load_experiment
from experiments.engines import check_contract
from experiments.engines.metric_sums import MetricSums
from experiments.engines.module import ModuleEngine
from experiments.engines.stacked import StackedEngine
from experiments.parallel.ranks import SOLO
from experiments.plan import WorkloadRef
from experiments.training import splits
from experiments.training.study_context import StudyContext
from tests.experiments import stream_workloads
from tests.marks import quick
from tests.problems import engine, largest_difference, measurements, saved, study, train, trials
from workloads import WorkloadError, load
from workloads.images.multilabel import MultiLabel

COUNTED = """
import torch
from tests.problems import TinyData
from workloads import Classification

class Counted(Classification):
    target = "validation_recall > 1.0"
    def data(self): return TinyData.splits(examples=101)
    def model(self): return TinyData.model()
    def metrics(self, output, batch):
        right = output.argmax(-1) == batch[1]
        return {**super().metrics(output, batch), "recall": (right.sum(), 0.5 * len(batch[1]))}

class Sampling(Counted):
    def forward(self, model, batch): return model(batch[0] + torch.randn_like(batch[0]))
"""


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


def test_what_samples_in_evaluation_measures_the_same_in_any_pack(tmp_path: Path) -> None:
    """And leaves the caller's random numbers alone."""
    (tmp_path / "counted.py").write_text(COUNTED)
    of = study(batch_size=8, workload=WorkloadRef(spec=f"{tmp_path}/counted.py:Sampling"))
    some = trials(of, 3)
    many = engine("auto", of, some, steps=2)
    (first,) = engine("module", of, some[2:], steps=2).evaluate("validation")
    before = torch.get_rng_state()
    assert many.evaluate("validation")[2] == first
    assert torch.equal(before, torch.get_rng_state())
    many.advance(1)
    assert many.evaluate("validation")[2] != first


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


def test_float32_values_are_summed_in_float64() -> None:
    sums = MetricSums(1, torch.device("cpu"), StudyContext.load(study()).workload, 10_001, None)
    sums.add({"loss": torch.full((10_000,), 1e8, dtype=torch.float32)}, torch.arange(10_000), ())
    sums.add({"loss": torch.ones(1, dtype=torch.float32)}, torch.arange(1), ())
    assert sums.means(SOLO.all_reduce_)[0]["loss"] == (1e12 + 1) / 10_001


PADDED = '''
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
    (tmp_path / "padded.py").write_text(PADDED)
    ref = WorkloadRef(spec="padded.py:Padded", base=str(tmp_path))
    of = study(workload=ref, target="validation_loss < 0.1", precision="float64")
    run = engine(kind, of, trials(of, 3, learning_rate=0.1), steps=5)
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


def by_sklearn(run: Any, row: int) -> dict[str, float]:
    """The two average precisions of a row's weights, computed at once by scikit-learn."""
    from sklearn.metrics import average_precision_score

    workload = run.context.workload
    model = workload.model().double()
    model.load_state_dict(run.weights(row))
    batch = run.context.splits["validation"].fetch(torch.arange(1024), training=False)
    with torch.no_grad():
        scores = model(batch[0]).numpy()
    return {
        "average_precision": average_precision_score(batch[1].numpy().ravel(), scores.ravel()),
        "macro_average_precision": average_precision_score(batch[1].numpy(), scores),
    }


@pytest.mark.parametrize("kind", quick(["module", "stacked"], 1))
def test_average_precision_is_scikit_learns_of_the_whole_split(kind: str) -> None:
    ref = WorkloadRef(spec="multilabel-mlp", fields={"widths": [8], "labels": 5})
    of = study(workload=ref, target="validation_cross_entropy < 0.01", precision="float64")
    run = engine(kind, of, trials(of, 3, learning_rate=0.1), steps=30)
    assert isinstance(run, ModuleEngine | StackedEngine)
    expected = [by_sklearn(run, row) for row in range(3)]
    for chunk in (7, 100, 5000):
        run.chunk = chunk
        for metrics, of_whole in zip(run.evaluate("validation"), expected, strict=True):
            assert {name: metrics[name] for name in of_whole} == pytest.approx(of_whole, rel=1e-9)
            assert metrics["cross_entropy"] > 0
    few = run.evaluate("validation", [2])
    assert few[0]["average_precision"] == pytest.approx(expected[2]["average_precision"], rel=1e-9)
    assert len({m["average_precision"] for m in expected}) == 3


def test_a_target_on_it_stops_a_trial() -> None:
    ref = WorkloadRef(spec="multilabel-mlp", fields={"widths": [16], "labels": 5})
    of = study(workload=ref, target="validation_average_precision > 0.5", budget_steps=300)
    events = train(of, trials(of, 1, learning_rate=0.3))
    curve = [m.metrics["validation_average_precision"] for m in measurements(events)]
    assert curve[-1] > 0.5 > curve[0]
    assert all(value <= 0.5 for value in curve[:-1])


def test_average_precision_of_nothing_is_no_number() -> None:
    workload = load("multilabel-mlp")
    assert isinstance(workload, MultiLabel)
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    labels = torch.tensor([[1, 0], [0, 0], [0, 0]], dtype=torch.uint8)
    assert workload.split_metrics(scores, labels)["macro_average_precision"] == 1.0, "of label 0"
    assert workload.split_metrics(scores, labels)["average_precision"] == 0.5
    for outputs, targets in ((scores, labels * 0), (scores * float("nan"), labels)):
        metrics = workload.split_metrics(outputs, targets)
        assert all(value != value for value in metrics.values())


def test_the_loss_is_a_sum_over_labels() -> None:
    output, y = torch.randn(4, 3), torch.tensor([[1, 0, 1]] * 4)
    expected = -(torch.sigmoid(output).log() * y + torch.sigmoid(-output).log() * (1 - y)).sum(1)
    torch.testing.assert_close(load("multilabel-mlp").loss(output, (output, y)), expected)


SPREAD = """
import torch
from tests.problems import Tiny

class Own(Tiny):
    target = "validation_spread > 0.5"
    wrong: str = ""

    def forward(self, model, batch):
        output = model(batch[0])
        return (output,) if self.wrong == "output" else output

    def loss(self, output, batch):
        return super().loss(output[0] if self.wrong == "output" else output, batch)

    def metrics(self, output, batch):
        return super().metrics(output[0] if self.wrong == "output" else output, batch)

    def split_metrics(self, outputs, targets):
        spread = (outputs.max() - outputs.min()).item()
        if self.wrong == "mapping": return spread
        if self.wrong == "value": return {"spread": [spread]}
        if self.wrong == "name": return {"a b": spread}
        return {"spread": spread}
"""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("output", r"forward\(\) of Own returned tuple for 32 examples"),
        ("mapping", r"split_metrics\(\) of Own returned a float"),
        ("value", r"split_metrics\(\) of Own: 'spread' is a list"),
        ("name", r"split_metrics\(\) of Own: 'a b' is not a metric's name"),
    ],
)
def test_what_a_workload_returns_is_checked(tmp_path: Path, wrong: str, message: str) -> None:
    (tmp_path / "own.py").write_text(SPREAD)
    ref = WorkloadRef(spec="own.py:Own", fields={"wrong": wrong}, base=str(tmp_path))
    of = study(workload=ref, batch_size=32, target="validation_spread > 0.5")
    with pytest.raises(WorkloadError, match=message):
        check_contract(StudyContext.load(of), trials(of, 1)[0])


def test_a_target_may_name_a_metric_of_the_split(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SPREAD)
    text = "workload: own.py:Own\ngrid: {batch_size: 8, optimizer: sgd}\ntrials: 1\n"
    text += "budget: 5 steps\ntarget: "
    (tmp_path / "right.yaml").write_text(text + "validation_spread > 0.1\n")
    assert load_experiment(tmp_path / "right.yaml").studies()


NORMED = """
from torch import nn
from workloads.digits import DigitsMLP

class Normed(DigitsMLP):
    target = "validation_error < 0.04"

    def model(self):
        return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
"""


@pytest.mark.parametrize(
    ("technique", "optimizer"),
    [({"ema": 0.99}, "sgd"), ({"swa": 0.0}, "sgd"), ({"lookahead": 40}, "sgd"),
     ({}, "schedule-free-sgd")],
)  # fmt: skip
def test_an_average_is_measured_with_its_own_statistics_of_batch_norm(
    technique: dict[str, Any], optimizer: str, tmp_path: Path
) -> None:
    """As ``update_bn`` of torch takes them, of all training examples; training does not see it."""
    (tmp_path / "normed.py").write_text(NORMED)
    workload = WorkloadRef(spec="normed.py:Normed", base=str(tmp_path))
    of = study(workload=workload, technique=technique, optimizer=optimizer, batch_size=32)
    (trial,) = trials(of, 1, learning_rate=0.5, weight_decay=0.0)
    run = engine("module", of, (trial,), steps=60)
    before = saved(run)
    data, model = run.context.splits, run.context.workload.model()
    model.load_state_dict(run.measured(0))
    found = {n: b.clone() for n, b in model.named_buffers()}
    batches = [data["train"].fetch(p, training=True) for p in torch.arange(1280).split(32)]
    torch.optim.swa_utils.update_bn(batches, model)
    for name in ("1.running_mean", "1.running_var"):
        expected, trained = model.get_buffer(name), run.weights(0)[name]
        torch.testing.assert_close(found[name], expected, rtol=0.1, atol=0.05)
        assert (found[name] - expected).norm() < 0.5 * (trained - expected).norm()
    (measured,) = run.evaluate("validation")
    x, y = data["validation"].fetch(torch.arange(500), training=False)
    error = float((model.eval()(x).argmax(1) != y).double().mean())
    assert measured["error"] == pytest.approx(error, abs=0.02)
    assert saved(run) == before


def test_statistics_of_an_average_are_those_of_all_branches(tmp_path: Path) -> None:
    """None is left out at random, as in every evaluation, though its last module is a norm."""
    layers = "nn.BatchNorm1d(32), nn.Linear(32, 32), nn.BatchNorm1d(32)"
    (tmp_path / "normed.py").write_text(NORMED.replace("nn.BatchNorm1d(32)", layers))
    workload = WorkloadRef(spec="normed.py:Normed", base=str(tmp_path))
    technique = {"ema": 0.9, "stochastic_depth": {"rate": 0.5, "branches": ("1",)}}
    found = []
    for part in (64, 32):
        of = study(workload=workload, technique=technique, precision="float64", micro_batch=part)
        run = engine("module", of, trials(of, 1), steps=20)
        found.append(run.measured(0))
    assert largest_difference(*found) < 1e-9
    model = run.context.workload.model().double()
    model.load_state_dict(found[0])
    batches = [run.context.train.fetch(p, training=True) for p in torch.arange(1280).split(32)]
    torch.optim.swa_utils.update_bn(batches, model)
    expected = model.get_buffer("3.running_var")
    torch.testing.assert_close(found[0]["3.running_var"], expected, rtol=0.15, atol=0.05)


def test_statistics_are_taken_of_the_beginning_of_a_stream(tmp_path: Path) -> None:
    """Of what the budget reads, since it may have no more."""
    normed = """
class Normed(Stream):
    def model(self):
        return torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)
        )
"""
    (tmp_path / "streams.py").write_text(stream_workloads.FILE + normed)
    fields = {"data_set": "Ends", "examples": 100}
    ref = WorkloadRef(spec="streams.py:Normed", base=str(tmp_path), fields=fields)
    technique = {"ema": 0.9, "ghost_batch": 4}
    of = study(workload=ref, technique=technique, batch_size=8, budget_steps=12)
    run = engine("module", of, trials(of, 1), steps=12)
    found, trained = run.measured(0), run.weights(0)
    linear = torch.nn.Linear(6, 8)
    linear.load_state_dict({name: found[f"0.{name}"] for name in ("weight", "bias")})
    x, _ = run.context.splits["train"].fetch(torch.arange(96), training=False)
    torch.testing.assert_close(found["1.running_mean"], linear(x).mean(0).detach())
    assert not torch.allclose(found["1.running_mean"], trained["1.running_mean"])
