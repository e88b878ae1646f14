"""`batchscale check` finds each promise that a workload breaks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from batchscale.trials import reference
from experiments.training.check import Finding, check
from workloads import Classification


class Sound(Classification):
    target = "validation_error < 0.1"

    def data(self) -> dict[str, tuple[Tensor, ...]]:
        x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] > 0).long()
        return {"train": (x[:64], y[:64]), "validation": (x[64:], y[64:])}

    def model(self) -> nn.Module:
        return nn.Linear(4, 2)


class LooksAround(Sound):
    """Its loss depends on the other examples of the batch."""

    def forward(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        out: Tensor = model(batch[0] - batch[0].mean(0))
        return out


class OwnDice(Sound):
    """Its weights do not come from torch's global generator."""

    def model(self) -> nn.Module:
        model = nn.Linear(4, 2)
        generator = torch.Generator()
        generator.seed()
        with torch.no_grad():
            model.weight.normal_(generator=generator)
        return model


class Ranked(Sound):
    """Its metric compares examples with each other."""

    def metrics(self, output: Tensor, batch: tuple[Tensor, ...]) -> dict[str, Tensor]:
        ranks = output[:, 0].argsort().argsort().double()
        return {**super().metrics(output, batch), "rank": ranks}


class Dropping(Sound):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))


class Normalized(Sound):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


class OwnSplit(Sound):
    """Which examples are for training is another draw each time."""

    def data(self) -> dict[str, tuple[Tensor, ...]]:
        data, drawn = super().data(), torch.randperm(64)
        return {**data, "train": tuple(x[drawn] for x in data["train"])}


class Augmented(Sound):
    """Its Dataset draws as it reads, which is seeded."""

    def data(self) -> dict[str, Any]:
        class Noisy(TensorDataset):
            def __getitem__(self, i: int) -> tuple[Tensor, ...]:
                x, y = super().__getitem__(i)
                return x + torch.randn(4), y

        data = super().data()
        return {**data, "train": Noisy(*data["train"])}


class Holed(Sound):
    def data(self) -> dict[str, tuple[Tensor, ...]]:
        data = super().data()
        data["train"][0][3, 1] = math.nan
        return {**data, "validation": data["train"]} if self.measured else data

    measured: bool = False


class Untargeted(Sound):
    target = "validation_perplexity < 2"


class Shuffling(Sound):
    def forward(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        x = batch[0][:, torch.randperm(4)] if model.training else batch[0]
        out: Tensor = model(x)
        return out


class Brief(Classification):
    """A training set smaller than the usual batch."""

    target = "validation_error < 0.1"

    def data(self) -> dict[str, tuple[Tensor, ...]]:
        x, y = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 2
        return {"train": (x, y), "validation": (x, y)}

    def model(self) -> nn.Module:
        return nn.Linear(3, 2)


@pytest.mark.parametrize(
    ("workload", "fields", "broken"),
    [
        (OwnSplit, {}, {"data": "data() gives another train split each time: seed what it draws"}),
        (Holed, {}, {"micro-batches": "the loss is not finite: example 3 of train has NaN"}),
        (
            *(Holed, {"measured": True}),
            {"micro-batches": "example 3 of train", "evaluation": "is nan: example 3 of train"},
        ),
        (Untargeted, {}, {"target": "no metric 'perplexity', but cross_entropy, error"}),
    ],
)
def test_data_and_target_that_no_sweep_can_use(
    workload: type[Sound], fields: dict[str, Any], broken: dict[str, str]
) -> None:
    findings = check(reference(workload, fields))
    failed = {f.check: f.finding for f in findings if f.passed is False}
    assert failed.keys() == broken.keys()
    assert all(text in failed[name] for name, text in broken.items())


def test_data_that_draws_as_it_is_read_is_seeded() -> None:
    assert found(Augmented)["data"].passed is True


def found(workload: type[Classification]) -> dict[str, Finding]:
    return {finding.check: finding for finding in check(reference(workload, {}))}


@pytest.mark.slow
def test_a_sound_workload_keeps_every_promise() -> None:
    findings = found(Sound)
    assert all(finding.passed is not False for finding in findings.values())
    assert findings["data"].finding == "train 64, validation 32 examples"
    assert findings["stackable"].finding == "yes, by torch.func"
    assert "model steps/s at batch 64" in findings["stacked engine"].finding


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "broken"),
    [
        (LooksAround, {"micro-batches", "evaluation"}),
        (OwnDice, {"initialization"}),
        (Ranked, {"evaluation"}),
    ],
)
def test_a_broken_promise_is_named(workload: type[Sound], broken: set[str]) -> None:
    failed = {name for name, finding in found(workload).items() if finding.passed is False}
    assert broken <= failed
    assert failed - broken <= {"micro-batches"}  # weights of two inits differ in those too


@pytest.mark.slow
def test_dropout_is_no_broken_promise() -> None:
    findings = found(Dropping)
    assert findings["micro-batches"].passed is True
    assert findings["stackable"].finding == "yes, by torch.func"


def test_batch_norm_is_divided_into_whole_ghost_batches() -> None:
    findings = found(Normalized)
    assert findings["micro-batches"].finding.startswith("64 as 1 and as 2 parts, 5 steps: equal to")
    assert all(finding.passed is not False for finding in findings.values())


def test_random_numbers_that_do_not_follow_the_example_are_one() -> None:
    findings = found(Shuffling)
    assert findings["micro-batches"].passed is False
    assert "(torch.randperm)" in findings["micro-batches"].finding
    assert "torch.randperm" in findings["stackable"].finding
    assert "stacked engine" not in findings


@pytest.mark.slow
def test_a_training_set_smaller_than_the_usual_batch() -> None:
    findings = found(Brief)
    assert findings["micro-batches"].passed is True
    assert "batch 5" in findings["module engine"].finding
