"""The trajectory depends on the global batch alone: micro-batches and workers change only bits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments import parallel
from experiments.config.compile import load
from experiments.engines import make_engine, stackable
from experiments.execution.staging import staged
from experiments.parallel.data import DataParallel
from experiments.parallel.ranks import SingleRank
from experiments.plan import Layout, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.study_context import StudyContext
from tests.experiments.user_layouts import LAYOUTS
from tests.problems import engine, largest_difference, restore, saved, study, trials
from tests.thread_ranks import ranks, together


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


def test_a_layout_that_splits_models_is_not_stacked(layout) -> None:
    of = layout("Split")
    context = StudyContext.load(of)
    assert stackable(context, trials(of, 2)) == "layout layouts.py:Split trains one model at a time"
    assert make_engine("auto", context, trials(of, 2)).kind == "module"


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


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_an_infinite_loss_on_any_rank_is_in_what_the_first_one_saves(kind: str) -> None:
    """A snapshot and a paused trial are rank 0's, and all ranks go on from them."""
    of = study(workers=2)
    some, group = trials(of, 3), ranks(2)
    trained, resumed = ([engine(kind, of, some, group=rank) for rank in group] for _ in range(2))
    last: Any = trained[1]
    losses = last.stack.losses[1] if kind == "stacked" else last.runs[1].loss_sum
    losses.fill_(math.inf)
    assert together([one.finite for one in trained]) == [[True, False, True]] * 2
    states = together([partial(saved, one) for one in trained])
    for one in resumed:
        restore(one, states[0])
    assert together([one.finite for one in resumed]) == [[True, False, True]] * 2
