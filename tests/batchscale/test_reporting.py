"""``batchscale.report`` of a program, inside of a sweep and outside."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import batchscale as bs
from batchscale import reporting
from experiments.programs import process


def test_outside_of_a_sweep_it_does_nothing() -> None:
    assert bs.report(step=1, val_loss=3.0) is False


def test_it_appends_a_line_and_answers_whether_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, stop = tmp_path / "reports", tmp_path / "stop"
    monkeypatch.setenv(reporting.REPORTS, str(file))
    monkeypatch.setenv(reporting.STOP, str(stop))
    assert bs.report(step=1, val_loss=torch.tensor(2.0), lr=np.float32(0.5)) is False
    stop.touch()
    assert bs.report(step=int(np.int64(2)), val_loss=float("nan")) is True
    first, second = file.read_text().splitlines()
    assert json.loads(first) == {"step": 1, "val_loss": 2.0, "lr": 0.5}
    assert second == '{"step": 2, "val_loss": NaN}'


def test_the_names_of_the_variables_are_those_that_programs_get() -> None:
    assert process.REPORTS_VARIABLE == reporting.REPORTS
    assert process.STOP_VARIABLE == reporting.STOP


@pytest.mark.parametrize(
    ("arguments", "values", "message"),
    [
        ((), {"val_loss": "low"}, "val_loss is 'low', and not a number"),
        ((), {"val_loss": [1, 2]}, "val_loss is [1, 2], and not a number"),
        (("results",), {"val_loss": 1.0}, "takes measurements by name"),
    ],
)
def test_what_it_does_not_take(
    arguments: tuple[str, ...], values: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError) as error:
        bs.report(*arguments, step=1, **values)
    assert message in str(error.value)


def test_a_lightning_module_may_log_its_own_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    from batchscale.integrations.lightning import ReportCallback

    logged = {"step": torch.tensor(3.0), "val/loss": torch.tensor(0.5)}
    trainer: Any = SimpleNamespace(
        sanity_checking=False,
        is_global_zero=True,
        global_step=40,
        world_size=1,
        callback_metrics=logged,
    )
    monkeypatch.setenv(reporting.REPORTS, str(tmp_path / "reports"))
    ReportCallback().on_validation_end(trainer, trainer)
    assert json.loads((tmp_path / "reports").read_text()) == {"step": 40, "val/loss": 0.5}
