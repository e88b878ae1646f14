"""Precisions and kernels that a device lacks: one line and a hint, before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ray._common.utils import get_ray_address_file

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
TRANSFORMER = [
    ("digits-mlp", "lm-transformer"),
    ("batch_size: 64", "batch_size: 4\n  text: stdlib\n  context: 8\n  layers: 1\n  width: 8"),
    ("validation_error < 0.01", "validation_cross_entropy < 0.01"),
]


@pytest.mark.parametrize(
    ("changes", "parts", "hint"),
    [
        ([("trials: 1", "trials: 1\nprecision: tf32")],
         ["mine.yaml:7", "tf32 is of Nvidia's GPUs", "cpu"], "float32"),
        ([("technique: none", "technique: none\n  precision: [float32, float16]")],
         ["mine.yaml:6", "cannot multiply matrices of float16 on this cpu"], "bfloat16"),
        ([*TRANSFORMER, ("technique: none", "technique: [none, {attention: cudnn}]")],
         ["mine.yaml:9", "kernel cudnn cannot be used on cpu"], "math works everywhere"),
    ],
)  # fmt: skip
def test_what_the_device_lacks(
    command: Command,
    here: Path,
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
    clear(sweep(command, here, text, "--dry-run"), *parts, hint=hint)
    clear(sweep(command, here, text), *parts, hint=hint)
    assert not (here / "results").exists()
    assert load(here / "mine.yaml").studies()  # on another device it can be trained


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
