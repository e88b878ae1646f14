"""Layouts: how a batch is shared, what an experiment says of it, and what a single rank does.

That ranks train as one process is tested by ``tests/conformance``.
"""

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

from batchscale.names import listed
from experiments import parallel
from experiments.config.compile import load
from experiments.engines import make_engine, stacking_refusal
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.parallel.composed import MESH, Composed
from experiments.parallel.data import DataParallel
from experiments.parallel.ranks import SingleRank
from experiments.plan import Layout, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.study_context import StudyContext
from tests.experiments.user_layouts import LAYOUTS
from tests.problems import engine, largest_difference, restore, saved, study, trials
from tests.thread_ranks import ranks, together
from workloads import LayoutPlan, SequencePlan


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


def plan(folder: Path, layout: str) -> Study:
    """The study of a file, beside the layouts of a user's."""
    (folder / "layouts.py").write_text(LAYOUTS)
    text = f"workload: digits-mlp\ngrid: {{batch_size: 8, optimizer: sgd}}\nlayout: {layout}\n"
    (folder / "my.yaml").write_text(text)
    return load(folder / "my.yaml").studies()[0]


def test_a_layout_that_splits_models_is_not_stacked(tmp_path: Path) -> None:
    of = replace(plan(tmp_path, "layouts.py:Split"), batch_size=64)
    context = StudyContext.load(of)
    assert (
        stacking_refusal(context, trials(of, 2))
        == "layout layouts.py:Split trains one model at a time"
    )
    assert make_engine("auto", context, trials(of, 2)).kind == "module"


def test_an_experiment_names_its_layout(tmp_path: Path) -> None:
    plain, of = plan(tmp_path, "data"), plan(tmp_path, "layouts.py:Gathered\nworkers: 2")
    assert of.layout == Layout(name="layouts.py:Gathered", workers=2)
    assert replace(of, layout=plain.layout) == plain  # its identity among the rest
    assert "name" not in layout_columns(Layout())
    assert layout_columns(of.layout)["name"] == "layouts.py:Gathered"
    with staged(str(tmp_path), ["layouts.py:Gathered"], []) as files:
        local = files.localize(of)
        assert isinstance(StudyContext.load(local).layout, parallel.ParallelLayout)
        assert (Path(files.folder) / "layouts.py").exists()


def test_a_product_of_dimensions_is_recorded_and_not_in_the_identity(tmp_path: Path) -> None:
    plain = plan(tmp_path, "data")
    of = plan(tmp_path, "{tensor: 2, data: 3, shard: 1}")
    assert of.layout == Layout(workers=6, dimensions=(("data", 3), ("tensor", 2)))
    assert of.id == plain.id
    assert layout_columns(of.layout)["dimensions"] == {"data": 3, "tensor": 2}
    assert "dimensions" not in layout_columns(plain.layout)
    assert plan(tmp_path, "{data: 4}").layout == Layout(workers=4)
    assert plan(tmp_path, "{data: 2, shard: 2}\nworkers: 4").layout.workers == 4


ON_ONE_RANK = {
    **{name: Layout(name=name) for name in parallel.names()},
    **{name: Layout(dimensions=((name, 2), ("data", 2))) for name in parallel.DIMENSIONS.packaged},
}


@pytest.mark.parametrize("name", ON_ONE_RANK)
def test_a_layout_on_a_single_rank_changes_nothing(name: str) -> None:
    """As a forecast or ``trial --from`` has it, which train alone."""
    fields = {"layers": 1, "width": 8, "heads": 2, "context": 6, "validation_tokens": 90}
    ref = WorkloadRef(spec="lm-transformer", fields=fields)
    of = study(workload=ref, target="validation_cross_entropy < 1", batch_size=4)
    cut = replace(of, layout=ON_ONE_RANK[name])
    plain, alone = (engine("module", each, trials(of, 1)) for each in (of, cut))
    for each in (plain, alone):
        each.advance(2)
    assert largest_difference(plain.weights(0), alone.weights(0)) == 0
    assert listed("layouts")[name]


@pytest.mark.parametrize("name", parallel.names())
def test_sums_over_a_single_rank_are_its_own(name: str) -> None:
    layout = parallel.get(name)
    assert layout.data_ranks == layout.model_ranks == 1
    assert layout.share(10) == slice(0, 10)
    values = [torch.arange(3.0), torch.ones(2)]
    layout.reduce_gradients(values)
    assert layout.all_reduce(torch.ones(1)) == 1
    assert torch.equal(values[0], torch.arange(3.0))


def test_tokens_that_cannot_be_shared() -> None:
    shared = SequencePlan(first="0", after="2", norms=(), length=4)
    refusal = parallel.DIMENSIONS.packaged["sequence"].refusal
    assert refusal({"tensor": 2, "sequence": 1}, LayoutPlan(sequence=shared)) is None
    assert refusal({"tensor": 3, "sequence": 1}, LayoutPlan(sequence=shared)) == (
        "3 tensor ranks do not divide sequences of 4 tokens",
        "choose another tensor, or sequences of another length",
    )


def test_another_number_of_ranks_than_the_product_is_refused() -> None:
    with pytest.raises(ExperimentError, match="layout tensor 2 is for 2 ranks, and there are 3"):
        Composed({"tensor": 2}, []).join(Rank(0, 3))


def test_dimensions_have_an_order_and_a_place_in_the_mesh() -> None:
    kinds = parallel.DIMENSIONS.packaged
    orders = [kind.order for kind in kinds.values()]
    assert len(set(orders)) == len(orders)
    assert {name for name, kind in kinds.items() if not kind.switch} <= set(MESH)


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
