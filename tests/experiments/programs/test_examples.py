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
GPT = runpy.run_path(str(EXAMPLES / "train_gpt.py"))


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


class Chain(bs.Workload):
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

    def metrics(
        self, output: torch.Tensor, batch: tuple[torch.Tensor, ...]
    ) -> dict[str, torch.Tensor]:
        return {"cross_entropy": self.loss(output, batch)}


def regimes_of(file: str, folder: Path, sizes: list[int], trials: int) -> Any:
    """The regimes of an example, which passes the check of programs."""
    assert len((EXAMPLES / file).read_text().splitlines()) < 10
    assert all(finding.passed is not False for finding in bs.check(str(EXAMPLES / file)))
    overrides = [f"grid.batch_size={sizes}", f"trials={trials}"]
    same: dict[str, Any] = {"results": folder, "address": "none", "observer": lambda _: None}
    (row,) = bs.regimes(bs.sweep(EXAMPLES / file, overrides=overrides, **same))
    return row


def assert_within_intervals(row: Any, other: Any) -> None:
    """Each has the other's points and regimes within its intervals."""
    for one, beside in ((row, other), (other, row)):
        for point, same in zip(one["points"], beside["points"], strict=True):
            if same["high"] is not None:  # else too few trials have reached it
                assert same["low"] <= point["steps"] <= same["high"]
        for name in ("perfect_scaling_until", "maximal_parallelism_from", "min_steps"):
            low, high = one[name]["low"] or 0.0, one[name]["high"] or np.inf
            assert low <= (beside[name]["high"] or np.inf)
            assert high >= (beside[name]["low"] or 0.0)


@pytest.mark.slow
def test_a_program_has_the_regimes_of_its_model_as_a_class(tmp_path: Path) -> None:
    sizes = [4, 16, 64, 256]
    of_program = regimes_of("softmax.yaml", tmp_path, sizes, 6)
    of_class = bs.regimes(
        bs.sweep(
            workload=Softmax,
            optimizer=["sgd"],
            search={"learning_rate": {"log": [0.01, 10]}},
            batch_size=sizes,
            trials=6,
            budget="3000 steps",
            results=tmp_path,
            address="none",
            observer=lambda _: None,
        )
    )[0]
    assert_within_intervals(of_program, of_class)


@pytest.mark.slow
def test_a_program_of_printed_lines_has_the_regimes_of_its_model_as_a_class(tmp_path: Path) -> None:
    sizes, trials = [4, 16, 64], 6
    of_program = regimes_of("train_gpt.yaml", tmp_path, sizes, trials)
    (of_class,) = bs.regimes(
        bs.sweep(
            workload=Chain,
            optimizer=["adamw"],
            search={"learning_rate": {"log": [0.001, 0.1]}},
            batch_size=sizes,
            trials=trials,
            budget="500 steps",
            results=tmp_path,
            address="none",
            observer=lambda _: None,
        )
    )
    assert_within_intervals(of_program, of_class)
