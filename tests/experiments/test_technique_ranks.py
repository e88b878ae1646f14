"""Techniques on two data ranks give the plain run: they act on the global batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.plan import Study, Trial, WorkloadRef
from tests.experiments.rank_gates import alone, in_layout
from tests.experiments.rank_groups import on_ranks
from tests.experiments.test_data_techniques import IMAGES
from tests.problems import engine, largest_difference, study, trials

TECHNIQUES: list[dict[str, Any]] = [
    {"mixup": 0.4},
    {"select": 0.3},
    {"sam": 0.05},
    {"sam": {"rho": 0.5, "adaptive": True}},
    {"dropout": 0.3},
    {"dropout": 0.3, "mixup": 0.4, "select": 0.5, "sam": 0.05},
    {"gradient_noise": 0.01, "lookahead": 3, "clip": 0.1},
    {"prune": {"sparsity": 0.8, "by": "gradient"}, "label_smoothing": 0.1},
]
ON_IMAGES: list[dict[str, Any]] = [
    {"augment": 0.25},
    {"cutmix": 1.0},
    {"rand_augment": 9},
    {"augment": 0.25, "mixup": 0.4, "select": 0.5},
]


def _trained(ranks: Any, of: Study, pack: tuple[Trial, ...], kind: str) -> dict[str, Any]:
    made = engine(kind, of, pack, group=ranks) if ranks else engine(kind, of, pack)
    made.advance(20)
    rows = range(len(pack))
    return {
        "weights": [made.weights(row) for row in rows],
        "measured": [made.measured(row) for row in rows],
        "metrics": made.evaluate("validation"),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_data_ranks_give_the_plain_run(tmp_path: Path) -> None:
    (tmp_path / "images.py").write_text(IMAGES)
    images = WorkloadRef(spec="images.py:Images", base=str(tmp_path))
    jobs: list[tuple[Study, tuple[Trial, ...], str]] = []
    for workload, of_workload in (("digits-mlp", TECHNIQUES), (images, ON_IMAGES)):
        for technique in of_workload:
            # An odd batch, and one in micro-batches.
            for kind, batch_size, micro_batch in (("module", 25, None), ("stacked", 24, 5)):
                plain = study(
                    workload=workload, technique=technique, precision="float64",
                    optimizer="momentum", batch_size=batch_size,
                )  # fmt: skip
                of = in_layout(plain, 2, micro_batch=micro_batch)
                jobs.append((of, trials(of, 2, learning_rate=0.02), kind))
    by_rank = on_ranks(2, _trained, jobs, tmp_path / "ranks")
    for (of, pack, kind), *results in zip(jobs, *by_rank, strict=True):
        plain_run = _trained(None, alone(of), pack, kind)
        for result in results:
            for row in range(2):
                for key in ("weights", "measured"):
                    assert largest_difference(result[key][row], plain_run[key][row]) <= 1e-9, of
                assert result["metrics"][row] == pytest.approx(plain_run["metrics"][row], rel=1e-9)
