"""Gates of layouts: what ranks in processes of their own train, against a plain run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.encoding import decode, encode
from experiments.engines import make_engine
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Layout, Study, Trial
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.problems import largest_difference


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A study in a layout, trained for so many steps."""

    study: Study
    trials: tuple[Trial, ...]
    steps: int
    tolerance: float = 1e-9


def in_layout(of: Study, workers: int, **dimensions: Any) -> Study:
    """``of`` on so many workers; ``pipeline`` may hold the options of a pipeline."""
    options = dimensions.pop("options", {})
    sizes = tuple((name, size) for name, size in dimensions.items() if name != "micro_batch")
    layout = Layout(
        workers=workers,
        dimensions=sizes,
        pipeline=tuple(options.items()),
        micro_batch=dimensions.get("micro_batch", of.layout.micro_batch),
    )
    return replace(of, layout=layout)


def alone(of: Study) -> Study:
    """``of`` in one process, whose batches are whole."""
    return replace(of, layout=Layout())


def trained(
    of: Study, trials: Sequence[Trial], steps: int, ranks: Ranks = SOLO, state: bytes | None = None
) -> dict[str, Any]:
    """Metrics, weights and state after ``steps`` more steps."""
    engine = make_engine("module", StudyContext.load(of, ranks=ranks), list(trials))
    if state is not None:
        engine.load(decode(state))
    engine.advance(steps)
    return {
        "metrics": engine.evaluate("validation"),
        "weights": [engine.weights(row) for row in range(len(trials))],
        "finite": engine.finite(),
        "gradients": [
            {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}
            for run in getattr(engine, "runs", ())
        ],
        "state": encode(engine.state()),
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


def check(gate: Gate, by_rank: Sequence[Mapping[str, Any]], plain: Mapping[str, Any]) -> None:
    """All ranks have the plain run's weights, metrics and state."""
    for result in by_rank:
        assert result["finite"] == plain["finite"]
        assert all(result["finite"])
        for a, b in zip(result["weights"], plain["weights"], strict=True):
            assert largest_difference(a, b) <= gate.tolerance
        for a, b in zip(result["metrics"], plain["metrics"], strict=True):
            assert a == pytest.approx(b, rel=1e-6, abs=1e-9)
    of_optimizer = [decode(r["state"])["runs"][0]["optimizer"] for r in (*by_rank, plain)]
    for each in of_optimizer:
        assert each["param_groups"] == of_optimizer[-1]["param_groups"]
        assert each["state"].keys() == of_optimizer[-1]["state"].keys()


def check_against_plain(size: int, gates: Sequence[Gate], folder: Path) -> None:
    """Each gate on ``size`` ranks gives what a plain run gives."""
    results = on_gates(size, gates, folder)
    for gate, by_rank in zip(gates, results, strict=True):
        check(gate, by_rank, trained(alone(gate.study), gate.trials, gate.steps))


def check_checkpoints(size: int, gates: Sequence[Gate], folder: Path) -> None:
    """A plain run's state goes on on ranks, and their state goes on in a plain run."""
    half = [trained(alone(g.study), g.trials, g.steps) for g in gates]
    states = {i: each["state"] for i, each in enumerate(half)}
    results = on_gates(size, gates, folder, states)
    for gate, by_rank, first in zip(gates, results, half, strict=True):
        plain = trained(alone(gate.study), gate.trials, gate.steps, state=first["state"])
        check(gate, by_rank, plain)
        after = [
            trained(alone(gate.study), gate.trials, gate.steps, state=each["state"])
            for each in (by_rank[-1], plain)
        ]
        for a, b in zip(after[0]["weights"], after[1]["weights"], strict=True):
            assert largest_difference(a, b) <= gate.tolerance
