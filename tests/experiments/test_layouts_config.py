"""``layout: {data: 2, tensor: 2}`` in experiment files: what is recorded, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn
from torch.nn import functional as F

from batchscale.names import listed
from experiments import parallel
from experiments.config.compile import from_keywords, load
from experiments.engines import make_engine, stackable
from experiments.errors import ExperimentError
from experiments.parallel.composed import MESH, Composed
from experiments.parallel.context import attention
from experiments.parallel.ranks import SingleRank
from experiments.plan import Layout, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.study_context import StudyContext
from tests.experiments import cut_workloads
from tests.problems import engine, largest_difference, study, trials
from workloads import LayoutPlan, SequencePlan, TokenShare

SMALL = {"layers": 1, "width": 8, "heads": 2, "context": 6, "validation_tokens": 90}


def plan(folder: Path, layout: str, workload: str = "digits-mlp", more: str = "") -> Study:
    (folder / "cut.py").write_text(cut_workloads.FILE)
    path = folder / "my.yaml"
    text = f"workload: {workload}\ngrid: {{batch_size: 8, optimizer: sgd{more}}}\nlayout: {layout}"
    path.write_text(text)
    return load(path).plans()[0].study


def test_a_product_of_dimensions_is_recorded_and_not_in_the_identity(tmp_path: Path) -> None:
    plain = plan(tmp_path, "data")
    of = plan(tmp_path, "{tensor: 2, data: 3, shard: 1}")
    assert of.layout == Layout(workers=6, dimensions=(("data", 3), ("tensor", 2)))
    assert of.id == plain.id
    assert layout_columns(of.layout)["dimensions"] == {"data": 3, "tensor": 2}
    assert "dimensions" not in layout_columns(plain.layout)
    assert plan(tmp_path, "{data: 4}").layout == Layout(workers=4)
    assert plan(tmp_path, "{data: 2, shard: 2}\nworkers: 4").layout.workers == 4


def test_the_resolved_file_gives_the_same_layout(tmp_path: Path) -> None:
    given: dict[str, Any] = {"workload": "digits-mlp", "optimizer": "sgd", "batch_size": 8}
    experiment = from_keywords(**given, layout={"shard": 2, "tensor": 2})
    path = tmp_path / "resolved.yaml"
    path.write_text(experiment.to_yaml())
    assert yaml.safe_load(path.read_text())["layout"] == {"shard": 2, "tensor": 2}
    loaded = load(path).plans()[0].study
    assert loaded.id == experiment.plans()[0].study.id
    assert loaded.layout == Layout(workers=4, dimensions=(("shard", 2), ("tensor", 2)))


@pytest.mark.parametrize(
    ("layout", "message", "hint"),
    [
        ("{tensr: 2}", "3: layout has no dimension 'tensr'", "tensor"),
        ("{tensor: 0}", "3: layout: tensor must be a number of ranks, not 0", "tensor: 2"),
        ("{data: true}", "3: layout: data must be a number of ranks, not True", "data: 2"),
        ("{tensor: 2, sequence: 2}", "3: layout: sequence must be true or false, not 2", ""),
        ("{shard: 2, sequence: true}", "sequence uses the ranks of tensor", "tensor: 2"),
        ("{tensor: 2, sequence: true}", "names no part whose activations", "leave sequence out"),
        ("{data: 2, zero2: true}", "zero2 is about the parameters that shard", "shard: 2, zero2"),
        ("{zero1: true}", "ranks of data, and there is no data", "{data: 2, zero1: true}"),
        ("{tensor: 2, zero1: true}", "ranks of data, and there is no data", "zero1: true"),
        ("{data: 2, shard: 2, zero1: true}", "shard and zero2 divide", "leave zero1 out"),
        ("{shard: 2, zero2: true, zero1: true}", "shard and zero2 divide", "leave zero1 out"),
        ("{context: 2}", "names no attention over tokens that ranks may share", "fit any model"),
        ("{tensor: 3}", "3 tensor ranks do not divide hidden features, 64", "another tensor"),
        ("{data: 2, tensor: 2}\nworkers: 3", "2 × 2 = 4 ranks, and workers is 3", "the product"),
        ("{data: 2}\nworkers: 3", "layout has 2 ranks, and workers is 3", "the product"),
        ("[data, 2]", "3: layout cannot be ", "a name, auto, or dimensions"),
        ("7", "3: layout cannot be 7", "a name, auto, or dimensions"),
        ("shard", "3: unknown layout 'shard'", "layout: {shard: 2}"),
    ],
)
def test_what_is_no_layout_is_an_error(
    tmp_path: Path, layout: str, message: str, hint: str
) -> None:
    with pytest.raises(ExperimentError) as error:
        plan(tmp_path, layout)
    assert message in str(error.value)
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("workload", "more", "message"),
    [
        ("cut.py:Silent", "", "layout: tensor cannot cut the model of Silent: its layout_plan"),
        ("cifar10-resnet8", "", "its layout_plan names no layers to cut"),
        ("lm-transformer", ", heads: [1]", "2 tensor ranks do not divide heads, 1"),
    ],
)
def test_a_workload_that_cannot_be_cut_is_refused(
    tmp_path: Path, workload: str, more: str, message: str
) -> None:
    with pytest.raises(ExperimentError, match=message):
        plan(tmp_path, "{tensor: 2}", workload, more)
    if workload == "cut.py:Silent":
        assert plan(tmp_path, "{shard: 2, data: 2}", workload).layout.workers == 4


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{context: 3}", "3 context ranks do not divide sequences of 4 tokens"),
        ("{tensor: 2, context: 2}", "context cannot be combined with tensor"),
        ("{context: 2, pipeline: 2}", "(context|a pipeline) cannot be combined with"),
    ],
)
def test_tokens_that_cannot_be_shared(tmp_path: Path, layout: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        plan(tmp_path, layout, "lm-transformer", ", context: [4]")
    fits = plan(tmp_path, "{shard: 2, context: 2}", "lm-transformer", ", context: [4]").layout
    assert fits.dimensions == (("shard", 2), ("context", 2))


@pytest.mark.parametrize(
    ("dimension", "name", "others"),
    [("context", "context", {}), ("sequence", "tensor", {"sequence": 1})],
)
def test_tokens_are_checked_alike_whoever_shares_them(
    dimension: str, name: str, others: dict[str, int]
) -> None:
    shared = SequencePlan(first="0", after="2", norms=(), length=4)
    of = LayoutPlan(sequence=shared, attention=("1",))
    refusal = parallel.DIMENSIONS.packaged[dimension].refusal
    assert refusal({name: 2, **others}, of) is None
    assert refusal({name: 3, **others}, of) == (
        f"3 {name} ranks do not divide sequences of 4 tokens",
        f"choose another {name}, or sequences of another length",
    )


def test_attention_that_takes_no_tokens_is_refused() -> None:
    class Attention(nn.Module):
        tokens: TokenShare | None = None

    model = nn.Sequential(nn.Linear(2, 2), Attention())
    assert attention(model, LayoutPlan(attention=("1",))) == [model[1]]
    for name, message in {"0": "0 has no attribute tokens", "2": "no module '2'"}.items():
        with pytest.raises(ExperimentError, match=message):
            attention(model, LayoutPlan(attention=("1", name)))


def test_attention_of_shares_is_that_of_all_tokens() -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 5, dtype=torch.float64, generator=torch.manual_seed(0))
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    wholes = {id(each): each for each in (k, v)}
    shares = [
        TokenShare(start=start, gather=lambda x: wholes[id(x)]).causal_attention(
            q[..., start : start + 2, :], k, v
        )
        for start in (0, 2, 4)
    ]
    torch.testing.assert_close(torch.cat(shares, -2), whole)


def test_a_layout_of_several_dimensions_is_not_stacked() -> None:
    of = replace(study(), layout=Layout(workers=2, dimensions=(("shard", 2),)))
    context = StudyContext.load(of)
    assert stackable(context, trials(of, 4)) == "layout shard 2 trains one model at a time"
    assert make_engine("auto", context, trials(of, 4)).kind == "module"


@pytest.mark.parametrize("name", parallel.DIMENSIONS.packaged)
def test_a_dimension_on_a_single_rank_changes_nothing(name: str) -> None:
    """As a forecast or ``trial --from`` has it, which train alone."""
    ref = WorkloadRef(spec="lm-transformer", fields=SMALL)
    of = study(workload=ref, target="validation_cross_entropy < 1", batch_size=4)
    cut = replace(of, layout=Layout(dimensions=((name, 2), ("data", 2))))
    plain, alone = (engine("module", each, trials(of, 1)) for each in (of, cut))
    for each in (plain, alone):
        each.advance(2)
    assert largest_difference(plain.weights(0), alone.weights(0)) == 0
    assert listed("layouts")[name] == parallel.DIMENSIONS.packaged[name].summary


def test_another_number_of_ranks_than_the_product_is_refused() -> None:
    class Rank(SingleRank):
        size = 3

    with pytest.raises(ExperimentError, match="layout tensor 2 is for 2 ranks, and there are 3"):
        Composed({"tensor": 2}, []).join(Rank())


def test_dimensions_have_an_order_and_a_place_in_the_mesh() -> None:
    kinds = parallel.DIMENSIONS.packaged
    orders = [kind.order for kind in kinds.values()]
    assert len(set(orders)) == len(orders)
    assert {name for name, kind in kinds.items() if not kind.switch} <= set(MESH)
