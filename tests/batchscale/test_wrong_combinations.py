"""Combinations that ``trial`` and ``check`` refuse: one line and a hint, before the first step.

Those of experiment files are in ``tests/experiments/wrong_files``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear, sweep
from tests.user_models import LINEAR
from workloads import download

MODELS = f"""\
from torch import nn
{LINEAR.replace("torch.nn.Linear(4, 2)", "Scaled()")}

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return (x * self.scale).sum(1, keepdim=True) + self.shift
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
    monkeypatch.setattr(download, "reachable", lambda _: False)
    (here / "text.txt").write_text("some words and more of them\n" * 60)
    (here / "models.py").write_text(MODELS)
    return here


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
    command: Command, verb: str, arguments: tuple[str, ...], parts: list[str], hint: str
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
        ("models.py:Mine", ("--optimizer", "muon", "--param", "weight_decay=0"),
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


def test_a_check_of_an_experiment_file(command: Command, files: Path) -> None:
    text = "workload: digits-softmax\nbudget: 9 steps\ntrials: 1\nsearch: {learning_rate: 0.1}\n"
    (files / "mine.yaml").write_text(f"{text}grid: {{batch_size: 8, optimizer: sgd}}\n")
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
