"""``layout: auto``: what is tried, what is chosen, what is recorded; memory that runs out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import batchscale
from experiments.config.compile import from_keywords
from experiments.errors import ExperimentError
from experiments.parallel import renewal
from experiments.parallel.ranks import Ranks
from experiments.parallel.renewal import Meeting
from experiments.plan import Layout, Pack, Study, WorkloadRef
from experiments.training.auto_layout.candidates import candidates, halves, largest_share
from experiments.training.auto_layout.choice import OUT_OF_MEMORY, Attempt, best, describe
from experiments.training.auto_layout.probe import choose, local_choices
from experiments.training.pack_training import Training
from tests.experiments.rank_groups import on_ranks
from tests.problems import outcomes, study, trials
from workloads import LayoutPlan, SequencePlan

HUNGRY = """
import torch
from torch import nn
from tests.problems import Tiny
from workloads import LayoutPlan


class Hungry(Tiny):
    # Memory for so many examples, on the ranks of this number and above.
    holds: int = 8
    rank: int = 0

    def model(self): return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    def layout_plan(self): return LayoutPlan(columns={"0": 1}, rows=("2",))

    def forward(self, model, batch):
        import torch.distributed as dist
        here = dist.get_rank() if dist.is_initialized() else 0
        if model.training and here >= self.rank and len(batch[0]) > self.holds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model(batch[0])
"""
ALL = LayoutPlan(
    columns={"0": 1},
    rows=("1",),
    pipeline=("*",),
    sequence=SequencePlan(first="0", after="1", norms=(), length=8),
)


def of_user(folder: Path, **fields: Any) -> Study:
    (folder / "hungry.py").write_text(HUNGRY)
    ref = WorkloadRef(spec="hungry.py:Hungry", base=str(folder), fields=fields)
    of = study(workload=ref, batch_size=24, budget_steps=6, engine="module")
    return replace(of, layout=Layout(auto=True))


def pack(of: Study, count: int = 1) -> Pack:
    return Pack(id="pack", study=of, trials=trials(of, count))


# Candidates


def test_the_candidates_are_the_products_that_the_workload_allows() -> None:
    made = [dict(each.dimensions) for each in candidates(4, ALL, data_alone=False)]
    assert made == [
        {},
        {"data": 2, "shard": 2},
        {"data": 2, "shard": 2, "zero2": 1},
        {"data": 2, "pipeline": 2},
        {"data": 2, "tensor": 2},
        {"data": 2, "tensor": 2, "sequence": 1},
        {"shard": 4},
        {"shard": 4, "zero2": 1},
        {"shard": 2, "tensor": 2},
        {"shard": 2, "tensor": 2, "sequence": 1},
        {"shard": 2, "tensor": 2, "zero2": 1},
        {"pipeline": 4},
        {"tensor": 4},
        {"tensor": 4, "sequence": 1},
    ]
    assert all(each.workers == 4 for each in candidates(4, ALL, data_alone=False))


def test_what_cannot_be_cut_gets_data_and_shard() -> None:
    made = [dict(each.dimensions) for each in candidates(4, None, data_alone=False)]
    assert made == [
        {},
        {"data": 2, "shard": 2},
        {"data": 2, "shard": 2, "zero2": 1},
        {"shard": 4},
        {"shard": 4, "zero2": 1},
    ]
    assert candidates(4, ALL, data_alone=True) == [Layout(workers=4)]
    assert candidates(1, ALL, data_alone=False) == [Layout(workers=1)]


def test_micro_batches_are_halved_in_whole_ghost_batches() -> None:
    assert halves(24, 1) == [24, 12, 6, 3, 1]
    assert halves(24, 4) == [24, 12, 4]
    assert halves(4, 4) == [4]
    cut = Layout(workers=4, dimensions=(("data", 2), ("tensor", 2)))
    assert largest_share(25, Layout(workers=4), 1) == 7
    assert largest_share(24, cut, 4) == 12
    assert largest_share(4, Layout(workers=4), 4) == 4


def test_the_shortest_step_is_the_best() -> None:
    layout = Layout(workers=2, micro_batch=4)
    slow, quick = (Attempt(layout=layout, seconds=seconds) for seconds in (2.0, 0.001))
    failed = Attempt(layout=replace(layout, dimensions=(("shard", 2),)), failure=OUT_OF_MEMORY)
    assert best([slow, failed, quick, quick]) is quick
    assert best([failed]) is None
    columns = {"chosen": quick.columns(), "from": [a.columns() for a in (slow, failed, quick)]}
    assert describe(columns) == (
        "data 2 at micro-batch 4: 1 ms a step; data 2 at micro-batch 4: 2 s a step; "
        "shard 2 at micro-batch 4: out of memory"
    )


# Memory


@pytest.mark.slow
def test_a_micro_batch_that_does_not_fit_is_halved_and_recorded(tmp_path: Path) -> None:
    of = of_user(tmp_path, holds=8)
    choice = choose(pack(of))
    assert choice.layout == Layout(micro_batch=6)
    tried = [(each.layout.micro_batch, each.failure) for each in choice.attempts]
    assert tried == [(24, OUT_OF_MEMORY), (12, OUT_OF_MEMORY), (6, None)]
    assert choose(pack(of)) is choice  # what has been tried in this process is not tried again
    assert choose(pack(of, 2)) is not choice


def test_a_stated_micro_batch_is_the_most_that_is_tried(tmp_path: Path) -> None:
    of = of_user(tmp_path, holds=9)
    choice = choose(pack(replace(of, layout=Layout(auto=True, micro_batch=8))))
    assert [each.layout.micro_batch for each in choice.attempts] == [8]


@pytest.mark.slow
def test_what_fits_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="1 worker, not even a micro-batch of 1") as error:
        choose(pack(of_user(tmp_path, holds=0)))
    assert "more workers" in (error.value.hint or "")


def test_a_stack_is_tried_as_a_whole(tmp_path: Path) -> None:
    of = replace(of_user(tmp_path), engine="stacked", workload=WorkloadRef(spec="digits-softmax"))
    choice = choose(pack(of, 4))
    assert [each.layout for each in choice.attempts] == [Layout(micro_batch=24)]


def test_what_raises_in_every_layout_is_left_to_the_training(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        HUNGRY.replace("raise torch.OutOfMemoryError", "raise ZeroDivisionError")
    )
    ref = WorkloadRef(spec="broken.py:Hungry", base=str(tmp_path), fields={"holds": 8})
    of = replace(of_user(tmp_path), workload=ref, layout=Layout(auto=True))
    choice = choose(pack(of))
    assert choice.chosen.failure == "ZeroDivisionError: CUDA out of memory"


# Ranks


def _chosen(ranks: Ranks, of: Study) -> Any:
    renewal.attempt_seconds = 6.0
    choice = choose(pack(replace(of, layout=replace(of.layout, workers=ranks.size))), ranks=ranks)
    layout = choice.layout
    training = Training(pack(replace(of, layout=layout)), group=ranks)
    (outcome,) = outcomes([event for events in training.run() for event in events]).values()
    return choice.columns(), outcome.steps_run


def _meet(ranks: Ranks) -> Any:
    """One rank fails in the middle of a sum; the others, which wait for it, hear of it."""
    renewal.attempt_seconds = 6.0
    meeting = Meeting(ranks)
    made = [meeting.exchange(None)]
    failure = None
    try:
        if ranks.rank == 1:
            raise torch.OutOfMemoryError
        ranks.all_reduce_(torch.ones(2))
    except RuntimeError as error:
        failure = type(error).__name__
    made.append(meeting.exchange(failure))
    total = ranks.all_reduce_(torch.ones(2)).tolist()
    made.append(meeting.exchange(None))
    meeting.close()
    return made, total, ranks.all_reduce_(torch.ones(2)).tolist()


@pytest.mark.slow
def test_ranks_go_on_in_a_new_group_after_a_failure(tmp_path: Path) -> None:
    """On two ranks of which one has memory for fewer examples than the other."""
    of = of_user(tmp_path, holds=4, rank=1)
    (met, chosen) = zip(*on_ranks(2, _both, [(None,), (of,)], tmp_path), strict=True)
    for made, total, after in met:
        assert made[0] == made[2] == [None, None]
        assert made[1][1] == "OutOfMemoryError"
        assert made[1][0] is not None
        assert total == after == [2.0, 2.0]
    (columns, steps), again = chosen
    assert again == (columns, steps)
    assert steps == 6
    tried = [(a["layout"], a["micro_batch"], a.get("failure")) for a in columns["from"]]
    assert tried == [
        ({"data": 2}, 12, OUT_OF_MEMORY),
        ({"data": 2}, 6, OUT_OF_MEMORY),
        ({"data": 2}, 3, None),
        ({"shard": 2}, 12, OUT_OF_MEMORY),
        ({"shard": 2}, 6, OUT_OF_MEMORY),
        ({"shard": 2}, 3, None),
        ({"shard": 2, "zero2": 1}, 12, OUT_OF_MEMORY),
        ({"shard": 2, "zero2": 1}, 6, OUT_OF_MEMORY),
        ({"shard": 2, "zero2": 1}, 3, None),
        ({"tensor": 2}, 24, OUT_OF_MEMORY),
        ({"tensor": 2}, 12, OUT_OF_MEMORY),
        ({"tensor": 2}, 6, OUT_OF_MEMORY),
        ({"tensor": 2}, 3, None),
    ]
    timed = {json.dumps(a["layout"]): a["seconds"] for a in columns["from"] if "seconds" in a}
    assert timed[json.dumps(columns["chosen"]["layout"])] == min(timed.values())


def _both(ranks: Ranks, of: Study | None) -> Any:
    return _meet(ranks) if of is None else _chosen(ranks, of)


# Sweeps


def test_a_sweep_records_the_choice(tmp_path: Path) -> None:
    given: dict[str, Any] = {"workload": "digits-softmax", "optimizer": "sgd", "batch_size": 64}
    more: dict[str, Any] = {"trials": 1, "budget": "4 steps", "layout": "auto", "name": "auto"}
    run = batchscale.sweep(**given, **more, results=tmp_path, address="none")
    row = run.trials.iloc[0]
    choice = json.loads(row["layout_choice"])
    assert choice["chosen"]["layout"] == {"data": 1}
    assert row["micro_batch"] == choice["chosen"]["micro_batch"] == 64
    assert json.loads(row["layout"])["micro_batch"] == 64
    assert "auto" not in json.loads(row["layout"])


def test_an_experiment_leaves_its_layout_open() -> None:
    given: dict[str, Any] = {"workload": "digits-softmax", "optimizer": "sgd", "batch_size": 8}
    experiment = from_keywords(**given, layout="auto", workers=4)
    of = experiment.studies()[0]
    assert of.layout == Layout(auto=True, workers=4)
    assert of.id == from_keywords(**given).studies()[0].id
    assert "layout: auto" in experiment.to_yaml()


# A dry run


@pytest.mark.slow
def test_a_dry_run_shows_the_choice() -> None:
    from batchscale.cli.sweep import _layout_choices
    from batchscale.sweeps import plan

    of = {"workload": "digits-softmax", "grid": {"batch_size": [32, 64], "optimizer": "sgd"}}
    more = {"trials": 1, "budget": "4 steps", "layout": "auto", "name": "auto"}
    studies = plan({**of, **more})
    text = _layout_choices(studies)
    assert "sgd, batch size 32: data 1 at micro-batch 32: " in text
    assert "sgd, batch size 64: data 1 at micro-batch 64: " in text
    assert _layout_choices(studies.drop(columns="layout_choice")) == ""
    assert "too few cores" in _layout_choices(studies.assign(layout_choice=None))


@pytest.mark.slow
def test_a_dry_run_of_two_workers_starts_them(tmp_path: Path) -> None:
    layout = Layout(auto=True, workers=2)
    choices = local_choices([pack(replace(of_user(tmp_path, holds=6), layout=layout))], "cpu")
    assert choices is not None
    names = {tuple(each["layout"]) for each in choices[0]["from"]}
    assert names == {("data",), ("shard",), ("shard", "zero2"), ("tensor",)}
    none_fits = pack(replace(of_user(tmp_path, holds=0), layout=layout))
    with pytest.raises(ExperimentError, match="2 workers, not even a micro-batch of 1"):
        local_choices([none_fits], "cpu")


def test_a_machine_with_too_few_cores_measures_nothing(tmp_path: Path) -> None:
    of = replace(of_user(tmp_path), layout=Layout(auto=True, workers=10**6))
    assert local_choices([pack(of)], "cpu") is None
