"""Combinations that cannot be trained: one line and a hint, before the first step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear, sweep
from workloads.text import data_sets

MODELS = """\
import torch
from torch import nn
from batchscale import Classification, Technique


class Vectors(Classification):
    target = "validation_error < 0.1"

    def data(self):
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] > 0).long()
        return {"train": (x, y), "validation": (x, y)}

    def model(self):
        return Scaled()


class Grouped(Vectors):
    option: str = "beta1"

    def parameter_groups(self, named_parameters):
        return {"scale": {self.option: 0.0}}


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return (x * self.scale).sum(1, keepdim=True) + self.shift


class Halved(Technique):
    def evaluated(self, weights, state):
        return {name: weight / 2 for name, weight in weights.items()}
"""
TEXT = """\
workload: lm-transformer
grid:
  batch_size: 4
  optimizer: adamw
  text: file:text.txt
  context: 8
  width: 8
  heads: 2
trials: 2
budget: 3 steps
target: validation_cross_entropy < 1
"""
MATRIX = """\
workload: models.py:{}
grid:
  batch_size: 4
  optimizer: {}
trials: 2
budget: 3 steps
"""


@pytest.fixture
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """1,512 tokens for training, 84 for validation."""
    monkeypatch.setenv("BATCHSCALE_DATA", str(here / "data"))
    monkeypatch.setattr(data_sets, "reachable", lambda _: False)
    (here / "text.txt").write_text("some words and more of them\n" * 60)
    (here / "models.py").write_text(MODELS)
    return here


@pytest.mark.parametrize(
    ("old", "new", "parts", "hint"),
    [
        ("context: 8", "context: 4000", ["'train'", "1,512 tokens", "4,000"], "shorter context"),
        ("context: 8", "context: 200", ["'validation'", "84 tokens", "200"], "shorter context"),
        ("file:text.txt", "file:gone.txt", ["file:gone.txt", "no file"], "experiment file"),
        ("file:text.txt", "shakespeare", ["shakespeare", "no file"], "BATCHSCALE_DATA"),
        ("file:text.txt", "shakespear", ["mine.yaml:1", "'shakespear'"], "'shakespeare'"),
        ("optimizer: adamw", "optimizer: {'block.*': muon, '*': adamw}",
         ["mine.yaml:4", "no parameter is called 'block.*'"], "blocks.0"),
        ("budget: 3 steps", "repeat_data: false\nbudget: 48 steps",
         ["mine.yaml:11", "48 steps", "188 examples", "47"], "repeat_data"),
    ],
)  # fmt: skip
def test_a_language_model(
    command: Command, files: Path, old: str, new: str, parts: list[str], hint: str
) -> None:
    clear(sweep(command, files, TEXT.replace(old, new)), *parts, hint=hint)
    assert not (files / "results").exists()


def test_a_single_pass_over_the_windows_of_a_text(command: Command, files: Path) -> None:
    text = TEXT.replace("context: 8", "context: 64").replace("width: 8", "width: 2")
    text = text.replace("3 steps", "1 epoch\nrepeat_data: false")
    answer = sweep(command, files, text)
    assert answer.status == 0, answer.err
    assert "2 trials trained" in answer.out + answer.err


def test_byte_pairs_without_the_library(
    command: Command, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    answer = sweep(command, files, TEXT.replace("context: 8", "vocabulary: 300\n  context: 8"))
    clear(answer, "needs the package tokenizers", hint="batchscale[bpe]")


def test_muon_on_vectors_alone(command: Command, files: Path) -> None:
    answer = sweep(command, files, MATRIX.format("Vectors", "muon"))
    clear(answer, "mine.yaml:4", "muon takes hidden matrices, and no parameter", hint="adamw")


@pytest.mark.parametrize(
    ("optimizer", "option"), [("schedule-free-adamw", "beta1"), ("schedule-free-sgd", "momentum")]
)
def test_an_interpolation_of_0_for_a_group_of_parameters(
    command: Command, files: Path, optimizer: str, option: str
) -> None:
    text = MATRIX.format("Grouped", optimizer).replace("grid:", f"grid:\n  option: {option}")
    clear(
        sweep(command, files, text),
        "mine.yaml:5",
        f"parameter_groups of workload Grouped: {option} is 0.0, which is outside of (0, 1)",
        hint=f"no {option} of its own",
    )
    usual = text.replace(optimizer, {"beta1": "adamw", "momentum": "momentum"}[option])
    assert sweep(command, files, usual).status == 0


@pytest.mark.parametrize("technique", ["ema: 0.9", "models.py:Halved: true"])
@pytest.mark.parametrize(
    "optimizer",
    ["schedule-free-sgd", "schedule-free-adamw", "{scale: sgd, '*': schedule-free-sgd}"],
)
def test_two_averages_of_the_weights(
    command: Command, files: Path, technique: str, optimizer: str
) -> None:
    """Either would be measured in the place of the trained weights: not both."""
    text = MATRIX.format("Vectors", optimizer) + f"technique: {{{technique}}}\n"
    name = technique.partition(":")[0] if technique.startswith("ema") else "Halved"
    clear(
        sweep(command, files, text),
        "mine.yaml:7",
        f"technique {name} and optimizer",
        "measure other weights than those that are trained",
        hint=f"leave {name} out",
    )
