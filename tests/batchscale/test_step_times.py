"""``plan --measure``: step times of what the curves trained, measured here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import batchscale as bs
from experiments.training.auto_layout import step_times
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear

WHERE = "experiment = 'digits' AND optimizer = 'sgd' AND batch_size IN (16, 64, 256, 1024)"
SIZES = [16, 64, 256, 1024]
MEASURE = ["plan", "own", "--where", WHERE, "--measure", "--device", "cpu"]
EACH, FIXED = 1e-4, 1e-3


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Step times that are known, and the batch size from which memory runs out."""
    limit = {"fits": 10**9}

    def seconds(engine: Any, least: float) -> float:
        del least
        size = engine.context.study.batch_size
        if size > limit["fits"]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return FIXED + EACH * float(size)

    monkeypatch.setattr(step_times, "seconds_of_step", seconds)
    return limit


def test_digits_are_measured(command: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_SECONDS", 0.01)
    said = command(*MEASURE, "--save-times", "made/times.csv", "--json")
    rows = pd.read_csv(here / "made" / "times.csv")
    assert list(rows.columns) == ["devices", "batch_size", "seconds"]
    assert sorted(rows["batch_size"]) == sorted(SIZES * step_times.REPEATS)
    assert (rows["seconds"] > 0).all()
    assert set(rows["devices"]) == {1}
    table = said.err.splitlines()[-len(SIZES) - 2 :]
    assert table[0].split("   ")[0] == "devices"
    assert [line.split()[1] for line in table[2:]] == [str(size) for size in SIZES]
    (plan,) = json.loads(said.out)["plans"]
    (choice,) = plan["choices"]
    assert choice["devices"] == 1
    assert choice["seconds"]["high"] > 0
    again = command("plan", "own", "--where", WHERE, "--devices", "1", "--json",
                    "--step-time", "made/times.csv")  # fmt: skip
    assert json.loads(again.out)["plans"] == [plan]


@pytest.mark.usefixtures("known")
def test_the_plan_of_known_step_times(command: Command) -> None:
    def choices(answer: Any) -> list[Any]:
        return [
            (c["devices"], c["batch_size"], pytest.approx(c["step_seconds"]),
             *(pytest.approx(c["seconds"][end]) for end in ("low", "value", "high")))
            for plan in answer["plans"] for c in plan["choices"]
        ]  # fmt: skip

    model: dict[str, Any] = {"seconds_per_example": EACH, "seconds_per_step": FIXED}
    measured = json.loads(command(*MEASURE, "--json").out)
    assert choices(measured) == choices(bs.plan("own", where=WHERE, devices=[1], **model))
    # More devices are of a model alone, whose compute is fitted.
    more = ["--gradient-bytes", "4e6", "--bandwidth", "1e9", "--devices", "1..16"]
    extrapolated = json.loads(command(*MEASURE, *more, "--json").out)
    expected = bs.plan("own", where=WHERE, devices=[1, 2, 4, 8, 16], gradient_bytes=4e6,
                       bandwidth=1e9, **model)  # fmt: skip
    assert choices(extrapolated) == choices(expected)
    assert "fitted_step_time" in extrapolated["plans"][0]["note_codes"]


@pytest.mark.usefixtures("known")
def test_curves_have_their_own_step_times() -> None:
    where = WHERE.replace("= 'sgd'", "IN ('sgd', 'adam')").replace("64, ", "")
    rows = bs.step_times("own", where=where, device="cpu")
    assert list(rows.columns) == ["curve", "devices", "batch_size", "seconds"]
    assert rows.groupby("curve").size().to_dict() == dict.fromkeys(
        ("sgd", "adam"), (len(SIZES) - 1) * step_times.REPEATS
    )


def test_what_does_not_fit_is_left_out_and_said(command: Command, known: dict[str, int]) -> None:
    known["fits"] = 100
    said = command(*MEASURE)
    assert said.err.splitlines()[-2:] == [
        "sgd, batch size 256 on 1 device does not fit into the memory: left out",
        "sgd, batch size 1,024 on 1 device does not fit into the memory: left out",
    ]
    assert 16 <= int(said.out.splitlines()[3].split()[1]) <= 64
    known["fits"] = 1
    clear(command(*MEASURE), "no batch size fits into the memory")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["published", "--where", "workload = 'resnet'", "--measure"],
            "was not trained by batchscale",
        ),
        (["mine.csv", "--measure"], "was not trained by batchscale"),
        (["own", "--measure", "--step-time", "times.csv"], "--step-time excludes --measure"),
        (["own", "--measure", "--seconds-per-step", "1"], "--seconds-per-step excludes --measure"),
        (["own", "--ranks", "2"], "--ranks needs --measure"),
        (["own", "--trust"], "--trust needs --measure"),
        (["own", "--measure", "--save-times", "mine.csv/times.csv"], "cannot write mine.csv"),
        (["own", "--where", WHERE, "--measure", "--ranks", "few"], "--ranks few are no numbers"),
        (
            ["own", "--where", WHERE, "--measure", "--device", "cpu", "--ranks", "100000"],
            "--ranks 100000: this machine has",
        ),
    ],
)
def test_what_cannot_be_measured_is_said(
    command: Command, here: Path, arguments: list[str], message: str
) -> None:
    rows = [f"{2**power},{100 + 4000 / 2**power}" for power in range(3, 9)]
    (here / "mine.csv").write_text("\n".join(["batch_size,steps", *rows]))
    clear(command("plan", *arguments), message)


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
def test_two_ranks_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_SECONDS", 0.01)
    rows = bs.step_times("own", where=WHERE, device="cpu", ranks=[1, 2])
    assert rows.groupby(["devices", "batch_size"]).size().to_dict() == {
        (n, size): step_times.REPEATS for n in (1, 2) for size in SIZES
    }
    assert (rows["seconds"] > 0).all()
