"""The programs of `examples/` are swept, with the regimes of the same model as a class."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import batchscale as bs

EXAMPLES = Path(__file__).parents[3] / "examples" / "programs"


def _example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


GPT = _example("train_gpt")


class Softmax(bs.Classification):
    """The model of softmax.py, with its data."""

    target = "validation_error < 0.06"

    def data(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        pixels, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(pixels))
        x = torch.tensor(pixels[order] / 16, dtype=torch.float32)
        y = torch.tensor(labels[order])
        return {"train": (x[:1297], y[:1297]), "validation": (x[1297:], y[1297:])}

    def model(self) -> torch.nn.Module:
        model = torch.nn.Linear(64, 10)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        return model


class LanguageModel(bs.Workload):
    """What is measured is the loss."""

    def metrics(
        self, output: torch.Tensor, batch: tuple[torch.Tensor, ...]
    ) -> dict[str, torch.Tensor]:
        return {"cross_entropy": self.loss(output, batch)}


class Chain(LanguageModel):
    """The model of train_gpt.py, with its data."""

    target = "validation_cross_entropy < 2.1"

    def data(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        ids = torch.tensor([ord(character) - ord("a") for character in GPT["chain"]()])
        train, val = ids[:45_000].unfold(0, 17, 1), ids[45_000:].unfold(0, 17, 16)
        splits = {"train": train, "validation": val}
        return {name: (each[:, :-1], each[:, 1:]) for name, each in splits.items()}

    def model(self) -> torch.nn.Module:
        (given, _) = GPT["parser"].parse_known_args([])
        return cast(torch.nn.Module, GPT["GPT"](16, given))

    def loss(self, output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        each = cross_entropy(output.flatten(0, 1), batch[1].flatten(), reduction="none")
        return each.view(batch[1].shape).mean(1)


class Softmax10(Softmax):
    """The model of lightning_module.py, with its data."""

    def data(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        pixels, labels = load_digits(return_X_y=True)
        x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        train, held_out = order[:1297], order[1297:]
        return {"train": (x[train], y[train]), "validation": (x[held_out], y[held_out])}

    def model(self) -> torch.nn.Module:
        return torch.nn.Linear(64, 10)


class Logits(torch.nn.Module):
    """A model of transformers, of which the logits are the output."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.model(ids).logits)


class Counting(LanguageModel):
    """The model of trainer.py, with its data."""

    target = "validation_cross_entropy < 1.0"

    def data(self) -> dict[str, tuple[torch.Tensor]]:
        rows = _example("trainer")["counting"]
        splits = {"train": rows(0, 4096), "validation": rows(1, 256)}
        return {
            name: (torch.stack([row["input_ids"] for row in each]),)
            for name, each in splits.items()
        }

    def model(self) -> torch.nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2)
        return Logits(GPT2LMHeadModel(config))

    def loss(self, output: torch.Tensor, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        following = batch[0][:, 1:]
        each = cross_entropy(output[:, :-1].flatten(0, 1), following.flatten(), reduction="none")
        return each.view(following.shape).mean(1)


def regimes_of(file: str, folder: Path, sizes: list[int], trials: int) -> Any:
    """The regimes of an example, which passes the check of programs."""
    assert len((EXAMPLES / file).read_text().splitlines()) < 10
    assert all(finding.passed is not False for finding in bs.check(str(EXAMPLES / file)))
    overrides = [f"grid.batch_size={sizes}", f"trials={trials}"]
    same: dict[str, Any] = {"results": folder, "address": "none", "observer": lambda _: None}
    (row,) = bs.regimes(bs.sweep(EXAMPLES / file, overrides=overrides, **same))
    return row


def assert_within_intervals(row: Any, other: Any) -> None:
    """The intervals of all points and regimes overlap: neither can be told from the other."""
    of_points = [(one, beside) for one, beside in zip(row["points"], other["points"], strict=True)]
    names = ("perfect_scaling_until", "maximal_parallelism_from", "min_steps")
    for one, beside in (*of_points, *((row[name], other[name]) for name in names)):
        for lower, upper in ((one, beside), (beside, one)):
            assert (lower["low"] or 0.0) <= (upper["high"] or np.inf)


def regimes_of_class(workload: type[bs.Workload], folder: Path, **how: Any) -> Any:
    (row,) = bs.regimes(
        bs.sweep(workload=workload, results=folder, address="none", observer=lambda _: None, **how)
    )
    return row


EXAMPLES_AS_CLASSES: dict[str, tuple[type[bs.Workload], dict[str, Any]]] = {
    "softmax": (
        Softmax,
        {
            "optimizer": "sgd",
            "search": {"learning_rate": {"log": [0.01, 10]}},
            "batch_size": [4, 16, 64, 256],
            "budget": "3000 steps",
        },
    ),
    "train_gpt": (
        Chain,
        {
            "optimizer": "adamw",
            "search": {"learning_rate": {"log": [0.001, 0.1]}, "weight_decay": 0.0},
            "batch_size": [4, 16, 64],
            "budget": "500 steps",
        },
    ),
    "lightning_module": (
        Softmax10,
        {
            "optimizer": "sgd",
            "search": {"learning_rate": {"log": [0.03, 3]}},
            "batch_size": [8, 32, 128],
            "budget": "600 steps",
        },
    ),
    "trainer": (
        Counting,
        {
            "optimizer": "adamw",
            "schedule": "linear",
            "technique": {"clip": {"norm": 1.0}},
            "search": {
                "learning_rate": {"log": [0.001, 0.1]},
                "weight_decay": 0.0,
                "decay_steps": 300,
                "end_factor": 0.0,
            },
            "batch_size": [8, 16, 32],
            "budget": "300 steps",
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES_AS_CLASSES)
def test_a_program_has_the_regimes_of_its_model_as_a_class(name: str, tmp_path: Path) -> None:
    for library in {"trainer": ["transformers"], "lightning_module": ["lightning"]}.get(name, []):
        pytest.importorskip(library)
    workload, how = EXAMPLES_AS_CLASSES[name]
    of_program = regimes_of(f"{name}.yaml", tmp_path, how["batch_size"], 6)
    of_class = regimes_of_class(workload, tmp_path, trials=6, **how)
    assert_within_intervals(of_program, of_class)
