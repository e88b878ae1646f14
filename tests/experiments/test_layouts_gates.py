"""The trajectory depends on the global batch alone: layouts give what one worker gives.

float64 after 200 steps to 1e-9, float32 with SGD after 20 steps to 1e-6. (In float32 AdamW divides
rounding errors by their own size where a gradient is zero but for rounding.)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from experiments import optimizers
from experiments.engines.module import ModuleEngine
from experiments.parallel import DIMENSIONS
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Pack, Study, WorkloadRef
from experiments.training.pack_training import Training
from experiments.training.study_context import StudyContext
from tests.experiments import cut_workloads
from tests.experiments.rank_groups import on_ranks
from tests.problems import largest_difference, outcomes, study, trials

Dimensions = tuple[tuple[str, int], ...]
DATA: Dimensions = ()
SHARD: Dimensions = (("shard", 2),)
ZERO2: Dimensions = (("shard", 2), ("zero2", 1))
TENSOR: Dimensions = (("tensor", 2),)
SEQUENCE: Dimensions = (("tensor", 2), ("sequence", 1))
PIPELINE: Dimensions = (("pipeline", 2),)
TWO = {
    "data": DATA, "shard": SHARD, "zero2": ZERO2, "tensor": TENSOR, "sequence": SEQUENCE,
}  # fmt: skip
FOUR: dict[str, Dimensions] = {
    "data": DATA,
    "data × tensor": (("data", 2), ("tensor", 2)),
    "shard × tensor": (("shard", 2), ("tensor", 2)),
    "data × shard": (("data", 2), ("shard", 2)),
    "shard × sequence": (("shard", 2), ("tensor", 2), ("sequence", 1)),
}
TRANSFORMER = {
    "layers": 2, "width": 8, "heads": 2, "context": 4, "dropout": 0.1, "validation_tokens": 90,
}  # fmt: skip
OPTIMIZERS = ["adamw", "muon", "shampoo", "soap", "lamb", "lars", "schedule-free-adamw"]


@pytest.fixture
def user(tmp_path: Path) -> str:
    (tmp_path / "cut.py").write_text(cut_workloads.FILE)
    return str(tmp_path)


def of_user(user: str, name: str, **changes: Any) -> Study:
    """A study of a workload of ``cut_workloads``, in ghost batches of 4."""
    ref = WorkloadRef(spec=f"cut.py:{name}", base=user)
    technique = {"ghost_batch": 4, **changes.pop("technique", {})}
    given = {"precision": "float64", "batch_size": 24, "technique": technique, **changes}
    return study(workload=ref, **given)


def of_text(fields: dict[str, Any] | None = None, **changes: Any) -> Study:
    """A study of a small Transformer."""
    ref = WorkloadRef(spec="lm-transformer", fields={**TRANSFORMER, **(fields or {})})
    given = {"precision": "float64", "batch_size": 6, **changes}
    return study(workload=ref, target="validation_cross_entropy < 1", **given)


def result(ranks: Ranks, of: Study, dimensions: Dimensions, steps: int) -> Any:
    """Weights, metrics and finite flags after so many steps."""
    layout = replace(of.layout, workers=ranks.size, dimensions=dimensions)
    context = StudyContext.load(replace(of, layout=layout), ranks=ranks)
    fixed: dict[str, Any] = {"learning_rate": 0.1} if of.optimizer in ("sgd", "momentum") else {}
    engine = ModuleEngine(context, trials(of, 1, **fixed))
    engine.advance(steps)
    return engine.measured(0), engine.evaluate("validation"), engine.finite()


Gate = tuple[Study, Dimensions, int]


def check(size: int, gates: list[Gate], folder: Path) -> None:
    """All ranks of each gate give the weights and metrics of one worker."""
    together = on_ranks(size, result, gates, folder / str(size))
    plain: dict[str, Any] = {}
    for number, (of, dimensions, steps) in enumerate(gates):
        key = repr((replace(of, layout=replace(of.layout, micro_batch=None)), steps))
        if key not in plain:
            plain[key] = result(SOLO, replace(of, layout=of.layout), (), steps)
        weights, metrics, finite = plain[key]
        bound = 1e-9 if of.technique["precision"] == "float64" else 1e-6
        gate = (of.workload.spec, of.optimizer, dimensions, of.layout.micro_batch, steps)
        for rank in range(size):
            here, measured, flags = together[rank][number]
            assert largest_difference(here, weights) < bound, gate
            assert here.keys() == weights.keys()
            for name, value in metrics[0].items():
                assert measured[0][name] == pytest.approx(value, rel=1e-6 + bound), gate
            assert flags == finite == [True], gate
        for name, weight in together[0][number][0].items():  # one trajectory, not several
            assert all(torch.equal(weight, rank[number][0][name]) for rank in together), gate


@pytest.mark.slow
def test_layouts_give_what_a_single_worker_gives(user: str, tmp_path: Path) -> None:
    """A quick part of the gates below: each dimension, with dropout and ghost batch norm."""
    cut, image, text = of_user(user, "Cut"), of_user(user, "Image"), of_text()
    gates = [
        (cut, DATA, 10),
        (cut, SHARD, 10),
        (cut, ZERO2, 10),
        (cut, TENSOR, 10),
        (image, SHARD, 4),
        (image, TENSOR, 4),
        (text, SEQUENCE, 4),
        (replace(cut, optimizer="muon"), TENSOR, 4),
        (replace(cut, optimizer="muon"), SHARD, 4),
    ]
    assert {name for _, dimensions, _ in gates for name, _ in dimensions} >= {
        name for name in DIMENSIONS.packaged if name != "pipeline"
    }
    check(2, gates, tmp_path)


@pytest.mark.slow
def test_two_ranks_after_200_steps(user: str, tmp_path: Path) -> None:
    gates: list[Gate] = []
    for dimensions in (DATA, SHARD, ZERO2, TENSOR):
        for micro_batch in (None, 12, 4):  # of 24: passes accumulate 1, 2 or more times
            layout = replace(study().layout, micro_batch=micro_batch)
            gates.append((replace(of_user(user, "Cut"), layout=layout), dimensions, 200))
    gates += [(of_user(user, "Image"), dimensions, 200) for dimensions in (SHARD, TENSOR)]
    rotary = {"positions": "rotary", "tied": False, "layers": 1, "width": 12, "heads": 6}
    gates += [(of_text(), TWO[name], 200) for name in TWO if name != "data"]
    of = of_text(rotary, micro_batch=5)
    gates += [(of, dimensions, 60) for dimensions in (TENSOR, SEQUENCE)]
    check(2, gates, tmp_path)


@pytest.mark.slow
def test_two_ranks_in_single_precision(user: str, tmp_path: Path) -> None:
    cut, text = of_user(user, "Cut", precision="float32"), of_text(precision="float32")
    gates = [(cut, TWO[name], 20) for name in ("data", "shard", "zero2", "tensor")]
    check(2, gates + [(text, TWO[name], 20) for name in TWO], tmp_path)


@pytest.mark.slow
def test_four_ranks(user: str, tmp_path: Path) -> None:
    cut = of_user(user, "Cut", micro_batch=8)
    gates: list[Gate] = [
        (cut, dimensions, 200) for name, dimensions in FOUR.items() if "sequence" not in name
    ]
    gates += [(of_text(), dimensions, 40) for dimensions in FOUR.values()]
    gates += [(of_text(precision="float32"), FOUR["data × tensor"], 20)]
    check(4, gates, tmp_path)


def steps_to_target(ranks: Ranks, of: Study, dimensions: Dimensions) -> list[int | None]:
    """Of 20 seeds of one configuration."""
    layout = replace(of.layout, workers=ranks.size, dimensions=dimensions)
    pack = Pack(
        id="pack",
        study=replace(of, layout=layout),
        trials=trials(of, 20, learning_rate=0.5),
        engine="module",
    )
    events = [event for part in Training(pack, group=ranks).run() for event in part]
    return [outcome.steps_to_target for outcome in outcomes(events).values()]


@pytest.mark.slow
def test_steps_to_target_have_the_distribution_of_a_single_worker(tmp_path: Path) -> None:
    """In float32, over whole runs: rounding may move a crossing by an evaluation."""
    of = study(workload="digits-mlp", budget_steps=150, target="validation_error < 0.2", keep=None)
    plain = [step for step in steps_to_target(SOLO, of, ()) if step]
    assert len(plain) == 20
    assert len(set(plain)) > 5
    two = {name: TWO[name] for name in ("data", "shard", "tensor")} | {"pipeline": PIPELINE}
    for size, layouts in {2: two, 4: {"data × tensor": FOUR["data × tensor"]}}.items():
        jobs = [(of, dimensions) for dimensions in layouts.values()]
        (together, *_) = on_ranks(size, steps_to_target, jobs, tmp_path / str(size))
        for name, steps in zip(layouts, together, strict=True):
            hits = [step for step in steps if step]
            assert len(hits) == 20, name
            assert stats.ks_2samp(hits, plain).pvalue > 0.5, name


@pytest.mark.slow
def test_optimizers_of_parts_and_of_whole_parameters(user: str, tmp_path: Path) -> None:
    """Every packaged optimizer: those that move each entry by itself get parts of parameters."""
    assert set(OPTIMIZERS) <= set(optimizers.names())
    gates: list[Gate] = []
    for name in optimizers.names():
        workload = "Square" if name == "soap" else "Cut"
        of = of_user(user, workload, optimizer=name, technique={"clip": 0.5, "ema": 0.5})
        gates += [(of, SHARD, 12), (of, TENSOR, 12)]
    gates += [
        (of_text(optimizer=name), dimensions, 6)
        for name in ("muon", "lamb", "schedule-free-sgd")
        for dimensions in (SHARD, SEQUENCE)
    ]
    check(2, gates, tmp_path)
