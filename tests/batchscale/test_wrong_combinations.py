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
        ("heads: 2", "heads: 2\n  validation_tokens: 4", ["5 tokens", "of 8"], "shorter context"),
        ("batch_size: 4", "batch_size: 100 tokens", ["mine.yaml:3", "8 tokens each"], "96 tokens"),
        ("batch_size: 4", "batch_size: 4100..262144 tokens", ["mine.yaml:3", "4100"], "4096 tok"),
        ("batch_size: 4", "batch_size: 32 tokes", ["mine.yaml:3", "'32 tokes'"], "8..4096"),
        ("batch_size: 4", "batch_size: 4096..8192 tokens", ["mine.yaml:3", "188 ex"], "full"),
        ("file:text.txt", "file:gone.txt", ["file:gone.txt", "no file"], "experiment file"),
        ("file:text.txt", "file:.", ["not a file but a folder"], "experiment file"),
        ("file:text.txt", "text.txt", ["mine.yaml:5", "'text.txt'"], "file:text.txt"),
        ("file:text.txt", "shakespeare", ["shakespeare", "no file"], "BATCHSCALE_DATA"),
        ("file:text.txt", "lm1b", ["text lm1b", "no file"], "BATCHSCALE_DATA"),
        ("file:text.txt", "shakespear", ["mine.yaml:5", "'shakespear'"], "'shakespeare'"),
        ("heads: 2", "heads: 2\n  vocabulary: 100", ["mine.yaml:9", "100 tokens"], "256 bytes"),
        ("heads: 2", "heads: 3", ["mine.yaml:7", "'width' is 8", "3"], "a width of 9"),
        ("heads: 2", "heads: 8\n  positions: rotary", ["mine.yaml:7", "odd"], "a width of 16"),
        ("heads: 2", "heads: 2\n  positions: sinus", ["mine.yaml:9", "'sinus'", "'rotary'"], None),
        ("heads: 2", "heads: 2\n  dropout: 1", ["mine.yaml:9", "'dropout'", "than 1"], None),
        ("optimizer: adamw", "optimizer: [{'*': adamw}]", ["mine.yaml:4", "not a value"], "search"),
        ("budget: 3 steps", "budget: 3 tokens", ["mine.yaml:10", "less than one step"], "steps"),
        ("budget: 3 steps", "repeat_data: false\nbudget: 48 steps",
         ["mine.yaml:11", "48 steps", "188 examples", "47"], "repeat_data"),
        ("budget: 3 steps", "repeat_data: false\nbudget: 2e6 tokens",
         ["mine.yaml:11", "62,500 steps", "47"], "repeat_data"),
        ("budget: 3 steps", "budget: 3 steps\nschedule: cosine\nsearch: {cosine: {decai: 0.5}}",
         ["mine.yaml:12", "no argument 'decai'"], "'decay'"),
        ("budget: 3 steps", "budget: 3 steps\nschedule: {cosine: {decay: 0.5}}",
         ["mine.yaml:11", "must be text"], "below search"),
        ("budget: 3 steps", "budget: 3 steps\nlayout: tensor",
         ["mine.yaml:11", "'tensor'"], "layout: {tensor: 2}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_language_model(
    command: Command,
    files: Path,
    old: str,
    new: str,
    parts: list[str],
    hint: str | None,
    options: tuple[str, ...],
) -> None:
    clear(sweep(command, files, TEXT.replace(old, new), *options), *parts, hint=hint)
    assert not (files / "results").exists()


def test_a_context_that_no_batch_size_of_a_range_is_a_multiple_of(
    command: Command, files: Path
) -> None:
    text = TEXT.replace("batch_size: 4", "batch_size: 4096..262144 tokens")
    answer = sweep(command, files, text.replace("context: 8", "context: 24"))
    clear(answer, "mine.yaml:3", "4096 tokens", "24 tokens each", hint="4104 tokens")


@pytest.mark.parametrize(
    ("workload", "old", "new", "parts", "hint"),
    [
        ("digits-fc", "3 steps", "2e5 tokens", ["mine.yaml:6", "tokens_per_example"], "examples"),
        ("digits-fc", "batch_size: 4", "batch_size: 64 tokens",
         ["mine.yaml:3", "tokens_per_example"], "examples"),
        ("digits-fc", "grid:", "grid:\n  classes: 0", ["mine.yaml:3", "'classes'", "0"], None),
        ("digits-fc", "grid:", "grid:\n  classes: 1.5", ["mine.yaml:3", "'classes'", "1"], None),
        ("digits-fc", "grid:", "grid:\n  classes: 0.1", ["leaves 1 of its 10"], "at least 0.2"),
        ("digits-fc", "grid:", "grid:\n  train_share: 2", ["mine.yaml:3", "'train_share'"], None),
        ("digits-fc", "batch_size: 4", "batch_size: {from: 4, ramp: {at: [[1.5, 2]]}}",
         ["mine.yaml:3", "ramp"], ""),
        ("digits-fc", "3 steps", "3 steps\nschedule: cosine\nsearch: {decay_tokens: 64}",
         ["mine.yaml:8", "decay_tokens", "tokens_per_example"], "decay_examples"),
        ("digits-fc", "3 steps", "3 steps\nschedule: cosine\nsearch: {cycle: 0.5}",
         ["mine.yaml:8", "only cyclical, one-cycle, sgdr"], "cyclical"),
        ("teacher", "3 steps", "3 epochs", ["mine.yaml:6", "have no end"], "2000 steps"),
        ("teacher", "batch_size: 4", "batch_size: full", ["mine.yaml:3", "no end"], "largest"),
    ],
)  # fmt: skip
def test_other_workloads(
    command: Command, files: Path, workload: str, old: str, new: str, parts: list[str], hint: str
) -> None:
    text = MATRIX.replace("models.py:{}", workload).format("sgd")
    for options in ((), ("--dry-run",)):
        answer = sweep(command, files, text.replace(old, new), *options)
        clear(answer, *parts, hint=hint)
        assert not (files / "results").exists()


LM = ("--param", "layers=1", "--param", "width=8", "--param", "heads=2", "--param", "context=8")
TRAINED = ("--batch-size", "4", "--budget", "3 steps", "--param", "learning_rate=0.01")


@pytest.mark.parametrize(
    ("arguments", "parts", "hint"),
    [
        ((*LM, "--param", "context=4000"), ["'train'", "1,512 tokens"], "shorter context"),
        ((*LM, "--param", "text=file:gone.txt"), ["no file"], "experiment file"),
        ((*LM, "--param", "text=wikitext"), ["'wikitext'"], "'wikitext2'"),
        ((*LM, "--param", "heads=3"), ["'width' is 8"], "a width of 9"),
        ((*LM, "--param", "head=4"), ["'head'"], "'heads'"),
    ],
)
@pytest.mark.parametrize("verb", ["trial", "check"])
@pytest.mark.usefixtures("files")
def test_a_trial_and_a_check(
    command: Command,
    verb: str,
    arguments: tuple[str, ...],
    parts: list[str],
    hint: str,
) -> None:
    given = ("--param", "text=file:text.txt", *arguments)
    options = ("--optimizer", "adamw", *TRAINED) if verb == "trial" else ()
    clear(command(verb, "lm-transformer", *given, *options), *parts, hint=hint)


@pytest.mark.parametrize(
    ("workload", "arguments", "parts", "hint"),
    [
        ("digits-softmax", ("--schedule", "cosine", "--param", "decai=0.5"), ["'decai'"], "decay"),
        ("digits-softmax", ("--schedule", "cosin"), ["'cosin'"], "'cosine'"),
        ("digits-softmax", ("--technique", "emma=0.9"), ["'emma'"], "'ema'"),
        ("digits-softmax", ("--budget", "200 tokens"), ["tokens_per_example"], "examples"),
        ("digits-fc", ("--param", "classes=0.1"), ["leaves 1 of its 10"], "at least 0.2"),
        ("teacher", ("--budget", "2 epochs"), ["have no end"], "2000 steps"),
        ("models.py:Vectors", ("--optimizer", "muon", "--param", "weight_decay=0"),
         ["muon takes hidden matrices"], "adamw"),
        ("digits-softmax", ("--optimizer", "schedule-free-sgd", "--technique", "ema=0.9",
         "--param", "momentum=0.9"), ["both make evaluations measure"], "leave ema out"),
    ],
)  # fmt: skip
def test_a_trial(
    command: Command,
    files: Path,
    workload: str,
    arguments: tuple[str, ...],
    parts: list[str],
    hint: str,
) -> None:
    before = sorted(files.iterdir())
    clear(command("trial", workload, *TRAINED, *arguments), *parts, hint=hint)
    assert [path for path in sorted(files.iterdir()) if path.name != "__pycache__"] == before


@pytest.mark.usefixtures("files")
def test_a_check_of_an_experiment_file(command: Command) -> None:
    clear(command("check", "mine.yaml"), "mine.yaml is an experiment file", hint="--dry-run")


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
@pytest.mark.parametrize("optimizer", ["schedule-free-sgd", "schedule-free-adamw"])
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
