"""Convolutions on a CPU: few examples at a time, channels last; the same steps to rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from experiments import convolutions
from experiments.convolutions import narrow
from experiments.engines.module import ModuleEngine
from experiments.plan import Study, WorkloadRef
from experiments.training import micro_batch
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, trials

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = """\
import torch
from batchscale import Classification
from torch import nn
from torch.nn import functional as F


class Images(Classification):
    target = "validation_error < 0.01"
    width: int = 8

    def data(self):
        x = torch.randn(96, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        split = (x, (x.mean((1, 2, 3)) > 0).long())
        return {"train": split, "validation": split}

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, self.width, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(self.width, 8, 3), nn.Flatten(), nn.Linear(8, 2),
        )


class Gray(Images):
    def transform(self, batch, *, training):
        return batch[0].mean(1, keepdim=True), batch[1]

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 2)
        )


class Normed(Images):
    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3),
            nn.Flatten(), nn.Linear(128, 2),
        )


class _Viewed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 3), nn.Linear(288, 2)

    def forward(self, x):
        return self.out(self.conv(x).view(len(x), -1))


class Viewed(Images):
    def model(self):
        return _Viewed()


class _Odd(_Viewed):
    def forward(self, x):
        y = self.conv(x)
        return self.out(y[torch.randperm(len(y)).argsort()].reshape(len(x), -1))


class Odd(Images):
    def model(self):
        return _Odd()
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "images.py").write_text(MODELS)
    monkeypatch.setattr(micro_batch, "_CACHED_BYTES", 2**16)

    def of(name: str, **changes) -> Study:
        fields = changes.pop("fields", {})
        ref = WorkloadRef(spec=f"images.py:{name}", base=str(tmp_path), fields=fields)
        return study(
            workload=ref,
            target="validation_error < 0.01",
            **{"batch_size": 96, "precision": "float64", **changes},
        )

    return of


def module(of: Study) -> ModuleEngine:
    made = engine("module", of, trials(of, 1))
    assert isinstance(made, ModuleEngine)
    return made


@pytest.mark.parametrize("name", ["Images", "Gray", "Normed"])
def test_steps_and_metrics_are_those_of_whole_batches_with_channels_first(
    made, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = module(made(name))
    assert ours.micro < 96
    assert ours.chunk < 96
    monkeypatch.setattr(convolutions, "_CHANNELS", 0)
    plain = module(made(name))
    assert (plain.micro, plain.micro_batch) == (plain.chunk, 96)
    start = plain.weights(0)
    for one in (ours, plain):
        one.advance(8)
    assert largest_difference(start, plain.weights(0)) > 1e-4
    assert largest_difference(ours.weights(0), plain.weights(0)) < 1e-9
    ((a,), (b,)) = (one.evaluate("validation") for one in (ours, plain))
    assert a == pytest.approx(b, rel=1e-9)


@pytest.mark.parametrize("name", ["Images", "Gray"])
def test_what_convolutions_give_has_channels_last_and_weights_have_not(made, name: str) -> None:
    run = module(made(name)).runs[0]
    given: list[torch.Tensor] = []
    assert isinstance(run.model, nn.Sequential)
    for layer in run.model:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda *values: given.append(values[2]))
    run.advance(1)
    assert len(given) > 2
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in given)
    assert all(p.is_contiguous() for p in run.model.parameters())


def test_a_model_that_views_its_images_as_rows_trains_as_before(made) -> None:
    run = module(made("Viewed"))
    start = run.weights(0)
    run.advance(3)
    assert largest_difference(start, run.weights(0)) > 1e-4


@pytest.mark.parametrize("ghost", [8, 24])
def test_parts_are_whole_ghost_batches_and_alike(made, ghost: int) -> None:
    run = module(made("Normed", technique={"ghost_batch": ghost}))
    assert run.micro % ghost == 0
    assert run.chunk % ghost == 0
    parts = -(-96 // run.micro)
    assert parts > 1
    assert 96 - (parts - 1) * run.micro > run.micro - ghost


def test_numbers_that_depend_on_how_a_batch_is_divided_leave_it_whole(made) -> None:
    run = module(made("Odd"))
    assert run.runs[0].draws.unsupported
    assert run.micro_batch == 96
    assert run.chunk < 96
    start = run.weights(0)
    run.advance(2)
    assert largest_difference(start, run.weights(0)) > 1e-4


def test_a_stated_micro_batch_is_taken_as_it_is(made) -> None:
    assert module(made("Images", micro_batch=50)).micro == 50


def test_wide_layers_other_devices_and_stacks_are_as_they_were(made) -> None:
    wide = module(made("Images", fields={"width": 257}))
    assert wide.micro_batch == 96
    assert not narrow(nn.Conv2d(3, 8, 3), torch.device("cuda"))
    assert not narrow(nn.Linear(3, 8), torch.device("cpu"))
    of = made("Images")
    context = StudyContext.load(of)
    model = context.model(trials(of, 1)[0])
    few, many = (micro_batch.chunk_size(context, model, models) for models in (1, 2))
    assert few < many
    gpu = replace(context, device=torch.device("cuda"))
    assert 8 <= micro_batch.chunk_size(gpu, model, 2) / many < 9


def test_the_size_does_not_depend_on_the_pack(made) -> None:
    of = made("Images")
    sizes = {engine("module", of, trials(of, count)).micro for count in (1, 3)}
    assert len(sizes) == 1
