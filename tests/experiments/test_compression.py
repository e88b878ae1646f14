"""Gradient compression: what each way does to a gradient, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import techniques
from experiments.config.compile import from_keywords
from experiments.engines import make_engine, stacking_refusal
from experiments.errors import ExperimentError
from experiments.execution import forecast
from experiments.parallel.ranks import SOLO, Ranks
from experiments.plan import Layout, Study, WorkloadRef
from experiments.techniques.compress import Compress
from experiments.training.study_context import StudyContext
from tests.experiments.rank_groups import on_ranks
from tests.problems import engine, restore, saved, study, trials

BATCH = 32
PLAIN: dict[str, Any] = {"learning_rate": 1.0, "weight_decay": 0.0}
"""At which a step of SGD is its gradient."""


def compressed(how: Any, **changes: Any) -> Study:
    common = {"workload": "digits-mlp", "precision": "float64", "batch_size": BATCH, "workers": 2}
    return study(**{**common, "technique": {"compress": how} if how else {}, **changes})


def trained(ranks: Ranks, of: Study, steps: int, state: bytes | None = None) -> dict[str, Any]:
    """Weights, last gradient and state after ``steps`` more steps."""
    one: Any = make_engine("module", StudyContext.load(of, ranks=ranks), trials(of, 1, **PLAIN))
    if state is not None:
        restore(one, state)
    one.advance(steps)
    gradients = {n: p.grad for n, p in one.runs[0].model.named_parameters()}
    return {"weights": one.weights(0), "gradients": gradients, "state": saved(one)}


def alone(of: Study) -> Study:
    return replace(of, layout=Layout())


def step_of_each_rank(of: Study) -> list[dict[str, torch.Tensor]]:
    """Each rank's share of the first gradient: a step of SGD at learning rate 1 on its examples."""
    whole = engine("module", alone(of), trials(of, 1, **PLAIN))
    run = whole.runs[0]  # type: ignore[attr-defined]
    batch = run.context.train.fetch_step(run.order, slice(0, BATCH), run.trial.seed, 0)
    shares = []
    for part in (slice(0, BATCH // 2), slice(BATCH // 2, BATCH)):
        run.model.zero_grad()
        loss = run.workload.loss(run.model(batch[0][part]), (None, batch[1][part]))
        (loss.sum() / BATCH).backward()
        shares.append({n: p.grad.clone() for n, p in run.model.named_parameters()})
    return shares


@pytest.mark.slow
def test_what_each_way_does_to_a_gradient(tmp_path: Path) -> None:
    exact, powersgd = compressed(None), compressed({"powersgd": 2})
    jobs = [(compressed(how), 1) for how in ("fp16", "bf16")]
    jobs += [(powersgd, 1), (exact, 3), (powersgd, 3)]
    results, others = on_ranks(2, trained, jobs, tmp_path)
    for result, other in zip(results, others, strict=True):
        for name, value in result["weights"].items():
            assert torch.equal(value, other["weights"][name])
    shares = step_of_each_rank(exact)

    for result, dtype in zip(results, (torch.float16, torch.bfloat16), strict=False):
        for name, step in result["gradients"].items():
            halves = [(share[name].to(dtype) / 2) for share in shares]
            expected = (halves[0] + halves[1]).double() * 2
            # The mean over the ranks is a number of this type, the nearest or its neighbour.
            mean = step / 2
            assert torch.allclose(mean.to(dtype).double(), mean, rtol=0, atol=1e-15)
            assert torch.allclose(step, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
            assert not torch.allclose(step, shares[0][name] + shares[1][name], rtol=0, atol=1e-12)
    start = trained(SOLO, alone(exact), 0)["weights"]
    for name, value in results[2]["weights"].items():  # its first steps are exact
        expected = shares[0][name] + shares[1][name]
        assert torch.allclose(start[name] - value, expected, rtol=0, atol=1e-12)
    # Steps 0 and 1 are exact; step 2 moves each matrix by one of rank 2, and vectors exactly.
    second = trained(SOLO, alone(exact), 2)["weights"]
    plain, weights = results[3]["weights"], results[4]["weights"]
    for name, before in second.items():
        step = before - weights[name]
        if step.dim() == 2:
            assert torch.linalg.matrix_rank(step, atol=1e-9) == 2
            assert not torch.allclose(weights[name], plain[name], rtol=0, atol=1e-9)
        else:
            assert torch.allclose(weights[name], plain[name], rtol=0, atol=1e-10)


@pytest.mark.slow
def test_error_feedback_goes_on_where_a_trial_was_interrupted(tmp_path: Path) -> None:
    of = compressed({"powersgd": 1})
    (first, whole), (other, _) = on_ranks(2, trained, [(of, 5), (of, 9)], tmp_path / "whole")
    assert first["state"] == other["state"]
    jobs = [(of, 4, first["state"])]
    ((resumed,), _) = on_ranks(2, trained, jobs, tmp_path / "again")
    for name, value in whole["weights"].items():
        assert torch.equal(resumed["weights"][name], value)


@pytest.mark.parametrize(
    ("how", "written"),
    [
        ("fp16", {"to": "fp16", "ranks": 2}),
        ("bf16", {"to": "bf16", "ranks": 2}),
        ({"powersgd": 4}, {"powersgd": 4, "ranks": 2}),
        ({"powersgd": 4, "exact_steps": 10}, {"powersgd": 4, "exact_steps": 10, "ranks": 2}),
    ],
)
def test_data_ranks_are_part_of_the_identity(how: Any, written: Any) -> None:
    def plan(workers: int) -> Any:
        given = {"technique": {"compress": how}} if workers else {}
        of: dict[str, Any] = {"workload": "digits-mlp", "optimizer": "sgd", "batch_size": 16}
        experiment = from_keywords(**of, workers=workers or 2, trials=2, name="test", **given)
        return experiment.studies()[0]

    assert plan(2).technique["compress"] == written
    assert len({plan(workers).id for workers in (0, 2, 3)}) == 3
    reread = techniques.load({"compress": written}, None).parts["compress"]
    assert reread.in_layout(Layout(workers=2)).written == written


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout(), "a single worker sends nothing"),
        (Layout(workers=2, dimensions=(("tensor", 2),)), "needs data parallelism alone"),
        (Layout(workers=2, name="own.py:Mine"), "needs data parallelism alone"),
        (Layout(workers=3), "is of 2 data ranks, and there are 3"),
    ],
)
def test_layouts_in_which_nothing_can_be_compressed(layout: Layout, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        Compress(to="fp16", ranks=2).in_layout(layout)


def test_a_single_process_refuses_it_and_a_forecast_leaves_it_out() -> None:
    of = compressed({"to": "fp16", "ranks": 2}, workload=WorkloadRef(spec="digits-softmax"))
    with pytest.raises(ExperimentError, match="cannot sum gradients as technique compress says"):
        engine("module", alone(of), trials(of, 1))
    assert "compress" not in forecast._alone(of).technique
    reason = stacking_refusal(StudyContext.load(of), trials(of, 1))
    assert reason == "technique compress: it changes what the ranks of one model send to each other"
