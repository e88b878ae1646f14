"""Data parallelism by DistributedDataParallel: the gradient is that of the plain run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.plan import WorkloadRef
from tests.experiments import random_workloads
from tests.experiments.layout_workloads import FILE
from tests.experiments.rank_gates import Gate, check_against_plain, check_checkpoints, in_layout
from tests.problems import study, trials

RATE: dict[str, Any] = {"learning_rate": 0.001}
"""At which rounding errors do not grow; at 0.04 AdamW makes them tenfold every ten steps."""


@pytest.fixture
def user(tmp_path: Path):
    (tmp_path / "own.py").write_text(random_workloads.FILE)
    (tmp_path / "deep.py").write_text(FILE)

    def ref(name: str) -> WorkloadRef:
        return WorkloadRef(spec=name, base=str(tmp_path))

    return ref


def gates(user, workers: int, steps: int) -> list[Gate]:
    common = {"precision": "float64", "batch_size": 24, "optimizer": "adamw"}
    deep = study(workload=user("deep.py:Deep"), technique={"ghost_batch": 4}, **common)
    made = []
    for pieces in (1, 2, 8):
        # So many micro-batches on each rank; of 8, some are of a single ghost batch.
        micro = None if pieces == 1 else max(4, 24 // workers // pieces // 4 * 4)
        of = in_layout(deep, workers, micro_batch=micro)
        made.append(Gate(study=of, trials=trials(of, 1, **RATE), steps=steps))
    partly = in_layout(study(workload=user("deep.py:Partly"), **common), workers, micro_batch=2)
    made.append(Gate(study=partly, trials=trials(partly, 2, **RATE), steps=steps))
    clipped = study(workload=user("own.py:Dropped"), technique={"clip": 0.05, "ema": 0.5}, **common)
    clipped = in_layout(clipped, workers)
    made.append(Gate(study=clipped, trials=trials(clipped, 2, **RATE), steps=steps))
    # Fewer examples than ranks, so that a rank has none of a batch.
    single = in_layout(replace(partly, batch_size=1), workers)
    made.append(Gate(study=single, trials=trials(single, 1, **RATE), steps=steps))
    plain = study(workload=user("own.py:Dropped"), batch_size=24, optimizer="sgd")
    of = in_layout(plain, workers, micro_batch=3)
    return [*made, Gate(study=of, trials=trials(of, 1), steps=20, tolerance=1e-6)]


@pytest.mark.slow
def test_two_data_ranks_give_the_plain_run(user, tmp_path: Path) -> None:
    check_against_plain(2, gates(user, 2, 12), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_data_ranks_give_the_plain_run_after_200_steps(user, tmp_path: Path, workers: int) -> None:
    check_against_plain(workers, gates(user, workers, 200), tmp_path)


@pytest.mark.slow
def test_checkpoints_of_data_ranks_and_of_a_single_process_agree(user, tmp_path: Path) -> None:
    check_checkpoints(2, gates(user, 2, 5)[:4], tmp_path)
