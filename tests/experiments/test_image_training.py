"""Image folders in training: the same trial with any reader, ghost batches in any layout."""

from __future__ import annotations

import multiprocessing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.engines.module import ModuleEngine
from experiments.engines.selection import stackable
from experiments.plan import Pack, Study, WorkloadRef
from experiments.training import prefetch, splits
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests import image_folders
from tests.problems import engine, largest_difference, measurements, study, trials
from tests.thread_ranks import ranks, together
from workloads import WorkloadError

pytestmark = pytest.mark.usefixtures("one_thread", "root")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHSCALE_DATA", str(tmp_path))
    splits._load.cache_clear()
    image_folders.imagenet(tmp_path)
    return tmp_path / "imagenet"


def tiny(name: str = "imagenet-resnet50", **changes: Any) -> Study:
    fields = {"size": 16, "width": 2, **changes.pop("fields", {})}
    return study(
        workload=WorkloadRef(spec=name, fields=fields),
        batch_size=12,
        technique={"ghost_batch": 4},
        target="validation_error < 0.01",
        **changes,
    )


def has_trained(training: Training, step: int) -> bool:
    return training.step >= step


@pytest.mark.slow
@pytest.mark.parametrize("augmented", [True, False])
def test_any_number_of_workers_reads_the_same_images(monkeypatch, augmented: bool) -> None:
    """Two trials of a pack, evaluations in between, a resume from a snapshot."""
    of = tiny("imagenet-resnet18", fields={"augmented": augmented}, budget_steps=4)
    pack = Pack(id="pack", study=of, trials=trials(of, 2), engine="module")
    curves = []
    for count in (0, 2):
        splits._load.cache_clear()
        monkeypatch.setattr(prefetch, "worker_count", lambda *_, count=count: count)
        monkeypatch.setattr(prefetch, "TASK", 5)
        training = Training(pack)
        events = []
        for of_step in training.run(partial(has_trained, training, 2)):
            events += of_step
        resumed = Training(pack, snapshot=training.snapshot())
        events += [event for of_step in resumed.run() for event in of_step]
        assert not multiprocessing.active_children()
        curves.append([(m.trial, m.step, m.metrics) for m in measurements(events)])
    assert curves[0] == curves[1]
    assert {step for _, step, _ in curves[0]} == {1, 2, 3, 4}


def test_a_broken_image_ends_the_pack_with_its_name(monkeypatch, root: Path) -> None:
    monkeypatch.setattr(prefetch, "worker_count", lambda *_: 2)
    of = tiny()
    loaded = StudyContext.load(of).train
    for file in {str(file) for file in (root / "train").rglob("*.JPEG")}.difference(
        loaded._data.files[:12]  # with which the engine tries the model
    ):
        Path(file).write_bytes(b"no image")
    training = engine("module", of, trials(of, 1))
    with pytest.raises(WorkloadError, match=r"^image .*\.JPEG cannot be decoded: "):
        training.advance(1)
    training.close()


@pytest.mark.slow
def test_ghost_batches_do_not_depend_on_micro_batches_or_ranks() -> None:
    """A narrow ResNet-50 of torchvision: its weights, running statistics and evaluations."""
    whole = tiny(precision="float64", fields={"augmented": False})
    alike = trials(whole, 1, learning_rate=0.01)
    alone = engine("module", whole, alike)
    pieced = tiny(precision="float64", fields={"augmented": False}, micro_batch=4)
    parts = engine("module", pieced, alike)
    group = [ModuleEngine(StudyContext.load(whole, "cpu", rank), alike) for rank in ranks(2)]
    for each in (alone, parts):
        each.advance(3)
    together([partial(of_rank.advance, 3) for of_rank in group])
    of_ranks = together([partial(of_rank.weights, 0) for of_rank in group])
    for weights in (parts.weights(0), *of_ranks):
        assert largest_difference(alone.weights(0), weights) < 1e-6
    assert alone.weights(0)["bn1.num_batches_tracked"] == 3
    expected = alone.evaluate("train")[0]
    assert isinstance(alone, ModuleEngine)
    alone.chunk = 5  # not a multiple of the ghost batch
    assert alone.evaluate("train")[0] == pytest.approx(expected, rel=1e-9)
    for metrics in together([partial(of_rank.evaluate, "train") for of_rank in group]):
        assert metrics[0] == pytest.approx(expected, rel=1e-5)


def test_the_batch_of_evaluation_changes_no_example() -> None:
    of = tiny(precision="float64", fields={"augmented": False})
    run = engine("module", of, trials(of, 1))
    run.advance(1)
    assert isinstance(run, ModuleEngine)
    model, split = run.runs[0].model.eval(), run.context.train
    batch = split.fetch(torch.arange(10), training=False)[0]
    torch.testing.assert_close(model(batch)[:3], model(batch[:3]))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("imagenet-resnet50", "its batch norm keeps running statistics"),
        ("cifar10-resnet18", "its batch norm keeps running statistics"),
    ],
)
def test_what_cannot_be_stacked_says_so(monkeypatch, name: str, reason: str) -> None:
    fields = {"width": 2}
    if name.startswith("cifar"):
        x = torch.zeros(64, 3, 32, 32, dtype=torch.uint8)
        data = dict.fromkeys(("train", "validation", "test"), (x, torch.arange(64) % 10))
        monkeypatch.setattr("workloads.images.cifar.images", lambda _: data)
    of = tiny(name, fields={"size": 16} if name.startswith("imagenet") else {})
    ref = WorkloadRef(spec=name, fields=fields | ({} if "cifar" in name else {"size": 16}))
    of = study(workload=ref, batch_size=8, technique={"ghost_batch": 8})
    assert stackable(StudyContext.load(of), trials(of, 2)) == reason
