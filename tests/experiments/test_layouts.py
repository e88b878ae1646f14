"""The trajectory depends on the global batch alone: micro-batches and workers change only bits."""

from __future__ import annotations

import itertools
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st

from experiments.plan import Pack, WorkloadRef
from experiments.training.loop import Training
from experiments.training.ranks import TorchRanks, share
from results.targets.target import Target
from tests.forked import METHOD
from tests.problems import engine, largest_difference, outcomes, study, train, trials

WALKED = "validation_error < 0.07"
AUGMENTED = """
import torch
from torch import nn
from torch.utils.data import Dataset
from tests.problems import TinyData
from workloads import Classification


class Noisy(Classification):
    target = "validation_error < 0.2"

    def data(self): return TinyData.splits()
    def model(self): return TinyData.model()

    def augment(self, batch, generator):
        x, y = batch
        return x + 0.1 * torch.randn(x.shape, generator=generator), y


class RandomSet(Dataset):
    x, y = TinyData.splits()["train"]

    def __len__(self): return 96
    def __getitem__(self, i): return self.x[i] + 0.1 * torch.randn(6), self.y[i]


class Streamed(Classification):
    target = "validation_error < 0.2"

    def data(self): return {"train": RandomSet(), "validation": TinyData.splits()["validation"]}
    def model(self): return TinyData.model()


class Dropped(Classification):
    target = "validation_error < 0.2"

    def data(self): return TinyData.splits()

    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))


class Normed(Classification):
    target = "validation_error < 0.2"

    def data(self): return TinyData.splits()

    def model(self):
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def own(tmp_path: Path):
    (tmp_path / "own.py").write_text(AUGMENTED)

    def ref(name: str) -> WorkloadRef:
        return WorkloadRef(spec=f"own.py:{name}", base=str(tmp_path))

    return ref


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("pieces", [2, 8, 5])
def test_micro_batches_give_the_whole_batch(kind: str, pieces: int) -> None:
    whole = study(precision="float64", optimizer="adam")
    pieced = study(precision="float64", optimizer="adam", micro_batch=-(-64 // pieces))
    some = trials(whole, 3)
    a, b = engine(kind, whole, some), engine(kind, pieced, some)
    a.advance(60)
    b.advance(60)
    for row in range(3):
        assert largest_difference(a.weights(row), b.weights(row)) < 1e-9


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("name", ["Noisy", "Streamed"])
def test_random_examples_do_not_depend_on_micro_batches(own, kind: str, name: str) -> None:
    common = {"workload": own(name), "precision": "float64", "batch_size": 24}
    some = trials(study(**common), 2)
    a = engine(kind, study(**common), some)
    b = engine(kind, study(**common, micro_batch=5), some)
    a.advance(30)
    b.advance(30)
    for row in range(2):
        assert largest_difference(a.weights(row), b.weights(row)) < 1e-9


def test_ghost_batches_do_not_depend_on_micro_batches(own) -> None:
    common = {
        "workload": own("Normed"),
        "precision": "float64",
        "batch_size": 24,
        "technique": {"ghost_batch": 8},
    }
    some = trials(study(**common), 2)
    a = engine("module", study(**common), some)
    b = engine("module", study(**common, micro_batch=8), some)
    a.advance(30)
    b.advance(30)
    for row in range(2):
        assert largest_difference(a.weights(row), b.weights(row)) < 1e-8


@given(batch=st.integers(1, 5000), size=st.integers(1, 9), unit=st.sampled_from([1, 2, 8, 32]))
def test_shares_are_a_partition_in_whole_units(batch: int, size: int, unit: int) -> None:
    batch *= unit
    parts = [share(batch, rank, size, unit) for rank in range(size)]
    assert parts[0].start == 0
    assert parts[-1].stop == batch
    for before, after in itertools.pairwise(parts):
        assert before.stop == after.start
    lengths = [p.stop - p.start for p in parts]
    assert all(n % unit == 0 for n in lengths)
    assert max(lengths) - min(lengths) <= unit


def _worker(rank: int, size: int, port: int, jobs, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size
    )
    group = TorchRanks()
    for number, (of, some, kind) in enumerate(jobs):
        training = Training(Pack(id="p", study=of, trials=some, engine=kind), group=group)
        events = [event for look in training.run() for event in look]
        if rank == 0:
            torch.save(events, f"{folder}/{number}.pt")
    dist.destroy_process_group()


def test_two_workers_give_what_one_gives(own, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    jobs = []
    for kind in ("module", "stacked"):
        for batch_size in (1, 63):
            of = study(
                precision="float64", optimizer="momentum", batch_size=batch_size, budget_steps=15
            )
            jobs.append((of, trials(of, 3), kind))
        for name in ("Noisy", "Streamed", "Dropped"):
            of = study(workload=own(name), precision="float64", batch_size=23, budget_steps=15)
            jobs.append((of, trials(of, 2), kind))
        clipped = study(precision="float64", technique={"clip": 0.05, "ema": 0.5}, budget_steps=15)
        jobs.append((clipped, trials(clipped, 2), kind))
        walks = study(precision="float64", optimizer="adam", budget_steps=60, refine=1.001)
        walks = replace(walks, evaluation_ratio=1.6, targets=(Target.parse(WALKED),))
        jobs.append((walks, trials(walks, 3, learning_rate=0.1), kind))
    normed = study(
        workload=own("Normed"),
        precision="float64",
        batch_size=24,
        technique={"ghost_batch": 8},
        budget_steps=15,
    )
    jobs.append((normed, trials(normed, 2), "module"))
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    workers = mp.start_processes(
        _worker, (2, port, jobs, str(tmp_path)), nprocs=2, join=False, start_method=METHOD
    )
    deadline = time.monotonic() + 300
    try:
        while not workers.join(timeout=1):
            assert time.monotonic() < deadline, "the two workers hang"
    finally:
        for process in workers.processes:
            if process.is_alive():
                process.kill()
    for number, (of, some, kind) in enumerate(jobs):
        alone = train(of, some, kind)
        together = torch.load(tmp_path / f"{number}.pt", weights_only=False)
        ends = [
            {t: (o.status, o.steps_to_target, o.refined_steps) for t, o in outcomes(e).items()}
            for e in (alone, together)
        ]
        assert ends[0] == ends[1]
        if of.refine is not None:
            assert any(refined is not None for *_, refined in ends[0].values())
        for a, b in zip(alone, together, strict=True):
            if hasattr(a, "metrics"):
                assert a.metrics["validation_cross_entropy"] == pytest.approx(
                    b.metrics["validation_cross_entropy"], rel=1e-6
                )
