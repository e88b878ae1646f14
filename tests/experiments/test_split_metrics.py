"""Metrics of a whole split: of all outputs, whatever the chunks, the ranks and the engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.compile import load as load_experiment
from experiments.engines import check_contract
from experiments.engines.module import ModuleEngine
from experiments.engines.stacked import StackedEngine
from experiments.plan import WorkloadRef
from experiments.training.study_context import StudyContext
from tests.marks import quick
from tests.problems import engine, measurements, study, train, trials
from tests.thread_ranks import ranks, together
from workloads import WorkloadError, load
from workloads.images.multilabel import MultiLabel

TARGET = "validation_average_precision > 0.99"
KINDS: list[tuple[str, type[ModuleEngine] | type[StackedEngine]]] = [
    ("module", ModuleEngine),
    ("stacked", StackedEngine),
]


def multilabel(**changes: Any) -> Any:
    fields = {"widths": [8], "labels": 5}
    ref = WorkloadRef(spec="multilabel-mlp", fields=fields)
    return study(workload=ref, target=TARGET, precision="float64", **changes)


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
    of = multilabel()
    run = engine(kind, of, trials(of, 3, learning_rate=0.1))
    run.advance(30)
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


@pytest.mark.parametrize(("kind", "cls"), KINDS)
def test_ranks_gather_all_outputs(kind: str, cls: Any) -> None:
    of = multilabel()
    of_pack = trials(of, 2, learning_rate=0.1)
    alone = engine(kind, of, of_pack)
    group = [cls(StudyContext.load(of, "cpu", rank), of_pack) for rank in ranks(3)]
    expected = alone.evaluate("validation")
    for of_rank in group:
        of_rank.chunk = 50
    if kind == "stacked":  # torch traces a graph on one thread
        for of_rank in group:
            for size in (50, 41, 42):
                of_rank.stepper.metrics(
                    of_rank.context.splits["validation"].fetch(torch.arange(size), training=False)
                )
    for measured in together([partial(of_rank.evaluate, "validation") for of_rank in group]):
        for metrics, whole in zip(measured, expected, strict=True):
            assert metrics == pytest.approx(whole, rel=1e-12)


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


FILE = """
import torch
from tests.problems import TinyData
from workloads import Classification

class Own(Classification):
    target = "validation_spread > 0.5"
    wrong: str = ""

    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()

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
    (tmp_path / "own.py").write_text(FILE)
    ref = WorkloadRef(spec="own.py:Own", fields={"wrong": wrong}, base=str(tmp_path))
    of = study(workload=ref, batch_size=32, target="validation_spread > 0.5")
    with pytest.raises(WorkloadError, match=message):
        check_contract(StudyContext.load(of), trials(of, 1)[0])


def test_a_target_may_name_a_metric_of_the_split(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILE)
    text = "workload: own.py:Own\ngrid: {batch_size: 8, optimizer: sgd}\ntrials: 1\n"
    text += "budget: 5 steps\ntarget: "
    (tmp_path / "right.yaml").write_text(text + "validation_spread > 0.1\n")
    assert load_experiment(tmp_path / "right.yaml").plans()
