"""Exit status 3: finished, some trials failed; what ends a sweep before (4 and 130 in
``test_operator``)."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import batchscale as bs
from batchscale import api
from experiments.execution.signals import Stop
from experiments.scheduling.messages import ignore
from tests.batchscale.conftest import Command
from tests.user_models import LINEAR

FRAGILE = f"""\
{LINEAR.replace("torch.nn.Linear", "Unlucky")}

class Unlucky(torch.nn.Linear):
    step = 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            self.step += 1
            if self.step > 30 and self.weight[0, 1] > 0.1:
                raise ValueError("an unlucky weight")
        return super().forward(x)
"""
EXPERIMENT = """\
workload: fragile.py:Mine
grid: {batch_size: [16, 32], optimizer: sgd}
search: {learning_rate: {log: [0.1, 1]}}
trials: 8
budget: 40 steps
stop_at_target: false
engine: module
"""


@pytest.mark.slow
def test_some_failed_trials_are_status_3(command: Command, here: Path) -> None:
    (here / "fragile.py").write_text(FRAGILE)
    (here / "fragile.yaml").write_text(EXPERIMENT)
    answer = command("sweep", "fragile.yaml", "--address", "none")
    assert answer.status == 3
    assert "trials failed; the same command tries them once more" in answer.err
    assert "failed: ValueError: an unlucky weight" in answer.err
    trials = bs.open("results/runs").trials
    failed = trials[trials["stop_reason"] == "error"]
    assert 0 < len(failed) < len(trials)
    assert set(failed["status"]) == {"INCOMPLETE"}
    assert failed["error"].str.contains("an unlucky weight").all()
    again = command("trial", "--from", failed["trial"].iloc[0], "--results", "results/runs")
    assert again.status == 1
    assert "ValueError: an unlucky weight" in again.err


def test_reading_the_experiment_takes_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which imports torch and the workload's file."""
    now = [100.0]
    left: list[float | None] = []

    def read(*_: object) -> SimpleNamespace:
        now[0] += 5
        return SimpleNamespace(notes=(), name="digits")

    def train(*_: object, seconds: float | None, **__: object) -> None:
        left.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr("batchscale.sweeps.load", read)
    monkeypatch.setattr("experiments.execution.sweep.sweep", train)
    for seconds in (12.0, 3.0, None):
        with pytest.raises(KeyboardInterrupt):
            api.sweep("digits", seconds=seconds, observer=ignore)
    assert left == [7.0, 0.0, None]


def test_a_hangup_ends_a_sweep_unless_it_is_ignored() -> None:
    for before, expected in ((signal.SIG_DFL, "signal"), (signal.SIG_IGN, None)):
        ours = signal.signal(signal.SIGHUP, before)
        try:
            with Stop() as stop:
                signal.raise_signal(signal.SIGHUP)
                assert stop.reason == expected
            assert signal.getsignal(signal.SIGHUP) == before
        finally:
            signal.signal(signal.SIGHUP, ours)
