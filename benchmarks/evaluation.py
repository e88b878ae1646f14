"""The trainer's seconds of evaluation: where it evaluates, and where another process does.

Packs are trained both ways in turn within one run. A process that evaluates needs a core of its
own: on a machine where all are busy it takes from the trainer what it saves.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import torch

from benchmarks.engines import study, trial
from experiments.plan import Outcome, Pack, Study
from experiments.training.evaluation.process import EvaluationProcess
from experiments.training.pack_training import Training

PAIRS = 3
MODELS = 16
CASES = (("digits-mlp", 64, 200), ("digits-mlp", 512, 100))
"""Workload, batch size, steps."""


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Seconds of a pack in its trainer."""

    train: float
    evaluation: float

    @property
    def share(self) -> float:
        return self.evaluation / (self.train + self.evaluation)


def seconds(of: Study) -> Seconds:
    """Train a pack to its budget."""
    trials = tuple(trial(i) for i in range(MODELS))
    training = Training(Pack(id="pack", study=of, trials=trials, engine="auto"))
    events = [event for each in training.run() for event in each]
    end = [event for event in events if isinstance(event, Outcome)][-1]
    return Seconds(train=end.train_seconds, evaluation=end.evaluation_seconds)


def row(workload: str, batch_size: int, budget_steps: int) -> dict[str, object]:
    """The shares of evaluation in the trainer's seconds, and the seconds of both ways."""
    here = study(workload, batch_size, MODELS)
    here = replace(here, budget_steps=budget_steps, keep=None, stop_at_target=False)
    elsewhere = replace(here, layout=replace(here.layout, evaluate_on="worker"))
    seconds(replace(elsewhere, budget_steps=5))  # the process has started and has the data
    pairs = [(seconds(here), seconds(elsewhere)) for _ in range(PAIRS)]
    shares = [statistics.median(each.share for each in way) for way in zip(*pairs, strict=True)]
    ratios = [(b.train + b.evaluation) / (a.train + a.evaluation) for a, b in pairs]
    return {
        "what": f"{workload}, batch {batch_size}, {budget_steps} steps, a pack of {MODELS}: "
        "evaluations' share of the trainer's seconds",
        "measured": f"{shares[0]:.0%} trainer, {shares[1]:.0%} worker; all seconds "
        f"{statistics.median(ratios):.2f}× [{min(ratios):.2f}, {max(ratios):.2f}]",
        "wanted": "less, < 1×",
    }


def rows() -> list[dict[str, object]]:
    """One row a case, for the table in docs/."""
    torch.set_num_threads(1)
    table = []
    for case in CASES:
        table.append(row(*case))
        print(table[-1], flush=True)
    while EvaluationProcess._idle:
        EvaluationProcess._idle.pop().end()
    return table
