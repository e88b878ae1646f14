"""``layout: {data: 2, tensor: 2}`` in experiment files: what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchscale.names import listed
from experiments import parallel
from experiments.config.compile import from_keywords, load
from experiments.engines import make_engine, stackable
from experiments.errors import ExperimentError
from experiments.parallel.composed import MESH, Composed
from experiments.parallel.ranks import SingleRank
from experiments.plan import Layout, Study, WorkloadRef
from experiments.records.rows import layout_columns
from experiments.training.study_context import StudyContext
from tests.experiments import cut_workloads
from tests.problems import engine, largest_difference, study, trials
from workloads import LayoutPlan, SequencePlan

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


def test_tokens_that_cannot_be_shared() -> None:
    shared = SequencePlan(first="0", after="2", norms=(), length=4)
    refusal = parallel.DIMENSIONS.packaged["sequence"].refusal
    assert refusal({"tensor": 2, "sequence": 1}, LayoutPlan(sequence=shared)) is None
    assert refusal({"tensor": 3, "sequence": 1}, LayoutPlan(sequence=shared)) == (
        "3 tensor ranks do not divide sequences of 4 tokens",
        "choose another tensor, or sequences of another length",
    )


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
