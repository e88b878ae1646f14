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

from experiments import parallel
from experiments.batch_sizes import BatchSizes
from experiments.config.compile import load
from experiments.engines import make_engine, stackable
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.parallel.data import DataParallel
from experiments.parallel.ranks import SingleRank, TorchRanks
from experiments.plan import Layout, Pack, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from results.targets.target import Target
from tests.experiments import random_workloads
from tests.experiments.user_layouts import LAYOUTS
from tests.forked import METHOD
from tests.problems import engine, largest_difference, outcomes, study, trials

TINY_TRANSFORMER = {
    "layers": 1, "width": 8, "heads": 2, "context": 5, "dropout": 0.1, "validation_tokens": 200,
}  # fmt: skip


@pytest.fixture
def own(tmp_path: Path):
    (tmp_path / "own.py").write_text(random_workloads.FILE)

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
    a.advance(20)
    b.advance(20)
    for row in range(3):
        assert largest_difference(a.weights(row), b.weights(row)) < 1e-9


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("name", ["Noisy", "Streamed"])
def test_random_examples_do_not_depend_on_micro_batches(own, kind: str, name: str) -> None:
    common = {"workload": own(name), "precision": "float64", "batch_size": 24}
    some = trials(study(**common), 2)
    a = engine(kind, study(**common), some)
    b = engine(kind, study(**common, micro_batch=5), some)
    a.advance(10)
    b.advance(10)
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


class Rank(SingleRank):
    """A rank of a group that never communicates."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@given(batch=st.integers(1, 5000), size=st.integers(1, 9), unit=st.sampled_from([1, 2, 8, 32]))
def test_shares_are_a_partition_in_whole_units(batch: int, size: int, unit: int) -> None:
    batch *= unit
    parts = [DataParallel().join(Rank(rank, size)).share(batch, unit) for rank in range(size)]
    assert parts[0].start == 0
    assert parts[-1].stop == batch
    for before, after in itertools.pairwise(parts):
        assert before.stop == after.start
    lengths = [p.stop - p.start for p in parts]
    assert all(n % unit == 0 for n in lengths)
    assert max(lengths) - min(lengths) <= unit


@pytest.fixture
def layout(tmp_path: Path):
    (tmp_path / "layouts.py").write_text(LAYOUTS)

    def of(spec: str, **changes) -> Study:
        base = study(workload=WorkloadRef(spec="digits-mlp", base=str(tmp_path)), **changes)
        return replace(base, layout=Layout(name=f"layouts.py:{spec}"))

    return of


def _worker(rank: int, size: int, port: int, jobs, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size
    )
    group = TorchRanks()
    for number, (of, some, kind) in enumerate(jobs):
        pack = Pack(id="p", study=of, trials=some, engine=kind)
        training = Training(pack, group=group, keep_weights=True)
        events = [event for part in training.run() for event in part]
        if rank == 0:
            torch.save((events, training.final), f"{folder}/{number}.pt")
    dist.destroy_process_group()


def check_against_one_worker(jobs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers give the outcomes, the losses and the weights of one, which has no layout."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    workers = mp.start_processes(
        _worker, (2, port, jobs, str(folder)), nprocs=2, join=False, start_method=METHOD
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
        plain = replace(of, layout=replace(of.layout, name=None))
        pack = Pack(id="pack", study=plain, trials=some, engine=kind)
        training = Training(pack, keep_weights=True)
        alone = [event for part in training.run() for event in part]
        together, weights = torch.load(folder / f"{number}.pt", weights_only=False)
        ends = [
            {t: (o.status, o.steps_to_target) for t, o in outcomes(e).items()}
            for e in (alone, together)
        ]
        assert ends[0] == ends[1]
        for a, b in zip(alone, together, strict=True):
            if hasattr(a, "metrics"):
                assert a.metrics["validation_cross_entropy"] == pytest.approx(
                    b.metrics["validation_cross_entropy"], rel=1e-6
                )
        for trial in ends[0]:
            assert largest_difference(weights[trial], training.final[trial]) < 1e-6


@pytest.mark.slow
def test_two_workers_give_what_one_gives(own, tmp_path: Path, monkeypatch) -> None:
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
        text = study(
            workload=WorkloadRef(spec="lm-transformer", fields=TINY_TRANSFORMER),
            target="validation_cross_entropy < 1",
            precision="float64",
            batch_size=7,
            budget_steps=6,
        )
        jobs.append((text, trials(text, 2), kind))
        clipped = study(precision="float64", technique={"clip": 0.05, "ema": 0.5}, budget_steps=15)
        jobs.append((clipped, trials(clipped, 2), kind))
    normed = study(
        workload=own("Normed"),
        precision="float64",
        batch_size=24,
        technique={"ghost_batch": 8},
        budget_steps=15,
    )
    jobs.append((normed, trials(normed, 2), "module"))
    sizes = BatchSizes.growing(24, 16, [(5, 48), (11, 96)])
    growing = replace(normed, ramp=sizes, budget_steps=sizes.budget_steps or 1, schedule="linear")
    jobs.append((growing, trials(growing, 2), "module"))
    for kind in ("module", "stacked"):
        sizes = BatchSizes.growing(21, 16, [(5, 49), (11, 70)])
        of = study(precision="float64", batch_size=21, ramp=sizes, budget_steps=sizes.budget_steps)
        jobs.append((of, trials(of, 3), kind))
    check_against_one_worker(jobs, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_layout_of_a_users_file_gives_what_one_worker_gives(
    layout, tmp_path: Path, monkeypatch
) -> None:
    """Data ranks that add gradients in another way, and model ranks that share a layer."""
    jobs = []
    for spec, kind in (("Gathered", "module"), ("Gathered", "stacked"), ("Split", "module")):
        of = layout(spec, precision="float64", batch_size=63, budget_steps=60)
        of = replace(of, evaluation_ratio=1.6, targets=(Target.parse("validation_error < 0.2"),))
        jobs.append((of, trials(of, 3, learning_rate=0.5), kind))
    check_against_one_worker(jobs, tmp_path, monkeypatch)


def test_a_layout_that_splits_models_is_not_stacked(layout) -> None:
    of = layout("Split")
    context = StudyContext.load(of)
    assert stackable(context, trials(of, 2)) == "layout layouts.py:Split trains one model at a time"
    assert make_engine("auto", context, trials(of, 2)).kind == "module"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dat", "unknown layout 'dat'"),
        ("layouts.py:Columns", "is not a class of batchscale.ParallelLayout"),
        ("layouts.py:Halves", "does not define all_reduce"),
    ],
)
def test_what_is_no_layout_is_refused(layout, tmp_path: Path, spec: str, message: str) -> None:
    of = layout("Split")
    with (tmp_path / "layouts.py").open("a") as file:
        file.write("\n\nclass Halves(ParallelLayout):\n    def reduce_gradients(self, g): pass\n")
    with pytest.raises(ExperimentError, match=message):
        StudyContext.load(replace(of, layout=Layout(name=spec)))


def test_an_experiment_names_its_layout(layout, tmp_path: Path) -> None:
    layout("Gathered")
    path = tmp_path / "my.yaml"
    text = "workload: digits-softmax\ngrid: {{batch_size: 8, optimizer: sgd}}\n{}"
    path.write_text(text.format(""))
    (plain,) = load(path).plans()
    path.write_text(text.format("layout: layouts.py:Gathered\nworkers: 2"))
    (plan,) = load(path).plans()
    assert plan.study.layout == Layout(name="layouts.py:Gathered", workers=2)
    assert replace(plan.study, layout=Layout()) == plain.study  # its identity among the rest
    assert "name" not in layout_columns(plain.study.layout)
    assert layout_columns(plan.study.layout)["name"] == "layouts.py:Gathered"
    with staged(str(tmp_path), ["layouts.py:Gathered"], []) as files:
        local = files.localize(plan.study)
        assert isinstance(StudyContext.load(local).layout, parallel.ParallelLayout)
        assert (Path(files.folder) / "layouts.py").exists()
    path.write_text(text.format("layout: layouts.py:Gatherd"))
    with pytest.raises(ExperimentError, match=r"my.yaml:3: layouts.py has no class 'Gatherd'"):
        load(path).plans()


@pytest.mark.parametrize("name", parallel.names())
def test_every_packaged_layout_on_one_rank_is_the_plain_thing(name: str) -> None:
    layout = parallel.get(name)
    assert layout.summary
    assert layout.data_ranks == layout.model_ranks == 1
    assert layout.share(10) == slice(0, 10)
    values = [torch.arange(3.0), torch.ones(2)]
    layout.reduce_gradients(values)
    assert layout.all_reduce(torch.ones(1)) == 1
    assert torch.equal(values[0], torch.arange(3.0))
    of = study()
    plain, named = (
        engine("module", replace(of, layout=Layout(name=n)), trials(of, 1)) for n in (None, name)
    )
    for each in (plain, named):
        each.advance(3)
    assert largest_difference(plain.weights(0), named.weights(0)) == 0
