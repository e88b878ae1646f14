"""Techniques that a workload, a batch size or another technique does not suit: one line and a hint,
when the experiment file is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from ray._common.utils import get_ray_address_file

import workloads
from experiments import precision
from experiments.config.compile import load
from experiments.execution.executors import find, local_ray
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear, sweep

FILE = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: none
trials: 1
budget: 4 steps
target: validation_error < 0.01
"""
LOSS = ("validation_error < 0.01", "validation_loss < 0.01")
CROSS_ENTROPY = ("validation_error < 0.01", "validation_cross_entropy < 0.01")
QUADRATIC = ("digits-mlp", "quadratic")
TRANSFORMER = [
    ("digits-mlp", "lm-transformer"),
    ("batch_size: 64", "batch_size: 4\n  text: stdlib\n  context: 8\n  layers: 1\n  width: 8"),
    CROSS_ENTROPY,
]
NORMED = """\
import torch
from torch import nn
from batchscale import Classification


class Normed(Classification):
    target = "validation_error < 0.1"

    def data(self):
        x = torch.randn(128, 4, generator=torch.Generator().manual_seed(0))
        y = (x[:, 0] > 0).long()
        return {"train": (x, y), "validation": (x, y)}

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class Several(Normed):
    def loss(self, output, batch):
        return nn.functional.binary_cross_entropy_with_logits(
            output[:, 0], batch[1].float(), reduction="none"
        )
"""


@pytest.fixture
def files(here: Path) -> Path:
    (here / "models.py").write_text(NORMED)
    (here / "broken.safetensors").write_text("no weights")
    for name in ("digits-softmax", "digits-mlp"):
        weights = workloads.load(name).model().state_dict()
        safetensors.torch.save_file(weights, here / f"{name}.safetensors")
    return here


def _of(technique: str) -> tuple[str, str]:
    return ("technique: none", f"technique: [none, {technique}]")


@pytest.mark.parametrize(
    ("changes", "parts", "hint"),
    [
        ([_of("{quantize: 8, prune: 0.5}")], ["mine.yaml:5", "cannot be together"], "one by one"),
        ([("batch_size: 64", "batch_size: 60\n  ghost_batch: 16")],
         ["mine.yaml:4", "16 does not divide batch size 60"], "divisor"),
        ([("digits-mlp", "models.py:Normed"), ("size: 64", "size: [32, 48]")],
         ["mine.yaml:3", "batch size 48", "32 unless given"], "ghost_batch"),
        ([("trials: 1", "trials: 1\nmicro_batch: 24\nghost_batch: 16")],
         ["ghost_batch 16 does not divide micro_batch 24"], "whole ghost batches"),
        ([_of("{accumulate: 3}")], ["mine.yaml:5", "64", "3 equal micro-batches"], "a divisor"),
        ([_of("{accumulate: 128}")], ["mine.yaml:5", "128 equal micro-batches"], "a divisor"),
        ([_of("{accumulate: 4}"), ("trials: 1", "trials: 1\nghost_batch: 32")],
         ["mine.yaml:5", "4 equal micro-batches of whole ghost batches of 32"], "a divisor"),
        ([_of("{select: 0}")], ["mine.yaml:5", "share cannot be 0"], None),
        ([_of("{distill: gone.safetensors}")], ["mine.yaml:5", "gone.safetensors", "no file"],
         "relative to the experiment file"),
        ([_of("{fine_tune: gone.safetensors}")], ["mine.yaml:5", "gone.safetensors", "no file"],
         "relative to the experiment file"),
        ([_of("{fine_tune: broken.safetensors}")],
         ["mine.yaml:5", "broken.safetensors is not a whole safetensors file"], "--save"),
        ([_of("{fine_tune: digits-softmax.safetensors}")],
         ["mine.yaml:5", "the file lacks 2.bias, 2.weight"], "partial: true"),
        ([_of("{distill: {teacher: digits-softmax.safetensors, workload: digits-mlp}}")],
         ["mine.yaml:5", "the file lacks 2.bias, 2.weight"], "whole model of workload digits-mlp"),
        ([_of("{distill: digits-mlp.safetensors}")],
         ["mine.yaml:5", "no workload that it names"], "say it: workload: NAME"),
        ([QUADRATIC, LOSS,
          _of("{distill: {teacher: digits-mlp.safetensors, workload: digits-mlp}}")],
         ["mine.yaml:5", "the model of workload digits-mlp does not take these examples"],
         "trained on such examples"),
        ([_of("{cutmix: 1.0}")], ["mine.yaml:5", "cutmix needs images", "(32, 64)"], "mnist-fc"),
        ([_of("{augment: 0.1}")], ["mine.yaml:5", "augment needs images"], "mnist-fc"),
        ([_of("{rand_augment: 5}")], ["mine.yaml:5", "rand_augment needs images"], "mnist-fc"),
        ([_of("{resize: 0.5}")], ["mine.yaml:5", "resize needs images"], "mnist-fc"),
        ([_of("{channels_last: true}")], ["mine.yaml:5", "is for convolutions"], "leave it out"),
        ([_of("{fused: true}"), ("sgd", "[sgd, lion]")],
         ["mine.yaml:5", "torch has no fused form of", "Lion"], "adamw"),
        ([_of("{compile: eager, dropout: 0.1}")],
         ["mine.yaml:5", "compile cannot be used with dropout"], "without dropout"),
        ([QUADRATIC, LOSS, _of("{label_smoothing: 0.1}")],
         ["mine.yaml:5", "one class an example"], "leave it out"),
        ([("digits-mlp", "models.py:Several"), _of("{label_smoothing: 0.1}")],
         ["mine.yaml:5", "plain cross entropy", "Several"], "leave it out"),
        ([_of("{ema: 0.9}"), ("sgd", "schedule-free-sgd")],
         ["mine.yaml:5", "technique ema and optimizer schedule-free-sgd"], "leave ema out"),
        ([("digits-mlp", "digits-softmax"), _of("{dropout: 0.1}")],
         ["mine.yaml:5", "no dropout to set"], "nn.Dropout"),
        ([_of("{freeze: 'none.*'}")], ["mine.yaml:5", "no parameter is called"], "2.bias"),
        ([_of("{lora: {rank: 2, layers: 'none'}}")], ["mine.yaml:5", "no linear layer"], "0, 2"),
        ([QUADRATIC, LOSS, _of("{prune: 0.5}")], ["mine.yaml:5", "no weights to prune"], None),
        ([QUADRATIC, LOSS, _of("{quantize: 8}")], ["mine.yaml:5", "no module nn.Linear"], None),
        ([("validation_error", "validation_error_w8")],
         ["mine.yaml:8", "digits-mlp has no metric 'error_w8'"], "'validation_error'"),
        ([("validation_error", "validation_error_w4"),
          ("technique: none", "technique: {quantize: {bits: 8, when: after}}")],
         ["mine.yaml:8", "with technique quantize", "'error_w4'"], "'validation_error_w8'"),
        ([("validation_error", "validation_error_w8"), _of("{quantize: {bits: 8, when: after}}")],
         ["mine.yaml:8", "digits-mlp has no metric 'error_w8'"], "'validation_error'"),
    ],
)  # fmt: skip
def test_techniques(
    command: Command,
    files: Path,
    changes: list[tuple[str, str]],
    parts: list[str],
    hint: str | None,
) -> None:
    text = FILE
    for old, new in changes:
        text = text.replace(old, new)
    clear(sweep(command, files, text, "--dry-run"), *parts, hint=hint)
    clear(sweep(command, files, text), *parts, hint=hint)
    assert not (files / "results").exists()


@pytest.mark.parametrize(
    ("changes", "parts", "hint"),
    [
        ([("trials: 1", "trials: 1\nprecision: tf32")],
         ["mine.yaml:7", "tf32 is of Nvidia's GPUs", "cpu"], "float32"),
        ([("technique: none", "technique: none\n  precision: [float32, float16]")],
         ["mine.yaml:6", "cannot multiply matrices of float16 on this cpu"], "bfloat16"),
        ([*TRANSFORMER, _of("{attention: cudnn}")],
         ["mine.yaml:9", "kernel cudnn cannot be used on cpu"], "math works everywhere"),
    ],
)  # fmt: skip
def test_what_the_device_lacks(
    command: Command,
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: list[tuple[str, str]],
    parts: list[str],
    hint: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_multiplies", lambda *_: False)
    text = FILE
    for old, new in changes:
        text = text.replace(old, new)
    clear(sweep(command, files, text, "--dry-run"), *parts, hint=hint)
    clear(sweep(command, files, text), *parts, hint=hint)
    assert not (files / "results").exists()
    assert load(files / "mine.yaml").plans()  # on another device it can be trained


@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR", None])
def test_where_the_device_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str | None
) -> None:
    """A Ray that runs already may have other machines."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_ray, "_TEMPORARY", str(tmp_path / "default"))
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
    known = {name: find(name).expected_device() for name in ("none", "auto", "10.0.0.1:6379")}
    assert known == {"none": "cpu", "auto": "cpu", "10.0.0.1:6379": None}
    file = Path(get_ray_address_file(None))  # Ray's own rule
    file = file if variable else tmp_path / "default" / file.relative_to("/tmp")
    assert file.is_relative_to(tmp_path)
    file.parent.mkdir(parents=True)
    file.touch()
    assert find("auto").expected_device() is None


def test_smoothing_of_several_labels(command: Command, files: Path) -> None:
    text = FILE.replace("digits-mlp", "multilabel-mlp").replace(*CROSS_ENTROPY)
    text = text.replace(*_of("{label_smoothing: 0.1}"))
    clear(sweep(command, files, text), "mine.yaml:5", "one class an example", hint="leave it out")
    assert not (files / "results").exists()


def test_a_batch_size_of_whole_ghost_batches(command: Command, files: Path) -> None:
    text = FILE.replace("digits-mlp", "models.py:Normed").replace("size: 64", "size: [32, 48]")
    answer = sweep(command, files, text.replace("trials: 1", "trials: 1\nghost_batch: 16"))
    assert answer.status == 0, answer.err
