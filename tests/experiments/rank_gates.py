"""Gates of layouts: what ranks in processes of their own train, against a plain run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.engines import make_engine
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Layout, Study, Trial
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.problems import restore, saved


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A study in a layout, trained for so many steps."""

    study: Study
    trials: tuple[Trial, ...]
    steps: int


def alone(of: Study) -> Study:
    """``of`` in one process, whose batches are whole."""
    return replace(of, layout=Layout())


def trained(
    of: Study, trials: Sequence[Trial], steps: int, ranks: Ranks = SOLO, state: bytes | None = None
) -> dict[str, Any]:
    """Weights, gradients and state after ``steps`` more steps."""
    engine = make_engine("module", StudyContext.load(of, ranks=ranks), list(trials))
    if state is not None:
        restore(engine, state)
    engine.advance(steps)
    return {
        "weights": [engine.weights(row) for row in range(len(trials))],
        "gradients": [
            {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}
            for run in getattr(engine, "runs", ())
        ],
        "state": saved(engine),
    }


def _of_gate(ranks: Ranks, gate: Gate, state: bytes | None) -> dict[str, Any]:
    return trained(gate.study, gate.trials, gate.steps, ranks, state)


def on_gates(
    size: int, gates: Sequence[Gate], folder: Path, states: Mapping[int, bytes] | None = None
) -> list[list[dict[str, Any]]]:
    """What ``trained`` gives for each gate on each of ``size`` ranks.

    Args:
        states: from which gates of these numbers go on.
    """
    jobs = [(gate, (states or {}).get(i)) for i, gate in enumerate(gates)]
    by_rank = on_ranks(size, _of_gate, jobs, folder)
    return [list(results) for results in zip(*by_rank, strict=True)]
