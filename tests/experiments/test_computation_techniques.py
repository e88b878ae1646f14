"""sam, and techniques that change how a step is computed and not what; precisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments.engines import stacking_refusal
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.plan import Study, WorkloadRef
from experiments.precision import Precision
from experiments.training.study_context import StudyContext
from tests.experiments.test_data_techniques import IMAGES
from tests.problems import (
    engine,
    largest_difference,
    outcomes,
    restore,
    saved,
    study,
    train,
    trials,
)

MODELS = """
import torch
from torch import nn
from torch.nn import functional as F
import batchscale as bs
from tests.problems import Tiny


class Blocks(Tiny):
    rate: float = 0.0

    def model(self):
        block = lambda: nn.Sequential(
            nn.Linear(6, 32), nn.Tanh(), nn.Dropout(self.rate), nn.Linear(32, 6), nn.Tanh()
        )
        return nn.Sequential(block(), block(), block(), nn.Linear(6, 3))


class Attending(Blocks):
    def model(self):
        return Attention()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = nn.Linear(1, 24), nn.Linear(48, 3)

    def forward(self, x):
        q, k, v = self.inside(x[..., None]).chunk(3, -1)
        q, k, v = q[:, None], k[:, None], v[:, None]
        return self.out(F.scaled_dot_product_attention(q, k, v).flatten(1))
"""


@pytest.fixture
def models(tmp_path: Path) -> WorkloadRef:
    (tmp_path / "models.py").write_text(MODELS + IMAGES.partition("import batchscale as bs")[2])
    return WorkloadRef(spec="models.py:Blocks", base=str(tmp_path))


def weights(of: Study, kind: str = "module", steps: int = 6) -> dict[str, torch.Tensor]:
    run = engine(kind, of, trials(of, 2), steps=steps)
    run.evaluate("validation")
    return run.weights(1)


# sam


def test_sam_goes_up_by_its_distance() -> None:
    from experiments import techniques
    from experiments.techniques import Step

    draw = torch.Generator().manual_seed(0)
    values = [{n: torch.randn(4, 3, generator=draw) for n in "ab"} for _ in range(2)]
    weights_, gradients = values
    for adaptive in (False, True):
        part = techniques.load({"sam": {"rho": 0.3, "adaptive": adaptive}}, None).parts["sam"]
        up = part.perturbed(
            weights_, gradients, {}, Step(torch.tensor(0), torch.tensor(0.1), torch.tensor(0))
        )
        moved = {n: up[n] - weights_[n] for n in up}
        scale = {n: w.abs() + 0.01 if adaptive else torch.ones_like(w) for n, w in weights_.items()}
        relative = torch.cat([(moved[n] / scale[n]).flatten() for n in moved])
        assert float(relative.norm()) == pytest.approx(0.3)
        along = torch.cat([(scale[n] * gradients[n]).flatten() for n in moved])
        assert float(torch.cosine_similarity(relative, along, dim=0)) == pytest.approx(1)


# Equal to rounding


def saved_bytes(of: Study) -> int:
    """Bytes of activations that a forward pass keeps for its backward pass."""
    context = StudyContext.load(of)
    model, batch = context.model(trials(of, 1)[0]), context.small_batch()
    parameters, kept = {p.data_ptr() for p in model.parameters()}, {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in parameters:
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss = context.techniques.loss(context.workload, model, batch).sum()
    del loss
    return sum(tensor.nbytes for tensor in kept.values())


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("modules", ["auto", "[01]", "1"])
def test_checkpoint_has_equal_gradients_and_keeps_less(
    models: WorkloadRef, modules: str, rate: float
) -> None:
    common = {"workload": replace(models, fields={"rate": rate}), "precision": "float64"}
    plain = study(**common, batch_size=32)
    of = study(**common, batch_size=32, technique={"checkpoint": modules})
    assert largest_difference(weights(plain), weights(of)) < 1e-12
    assert saved_bytes(of) < (0.5 if modules == "auto" else 0.9) * saved_bytes(plain)
    assert "does not recompute" in str(stacking_refusal(StudyContext.load(of), trials(of, 4)))


def test_what_they_change_is_changed(models: WorkloadRef) -> None:
    of = study(workload=models, technique={"accumulate": 4}, batch_size=32)
    run = engine("module", of, trials(of, 1))
    assert isinstance(run, ModuleEngine)
    calls: list[int] = []
    run.runs[0].model.register_forward_pre_hook(lambda _, x: calls.append(len(x[0])))
    run.advance(2)
    assert calls == [8] * 8
    of = study(workload=models, technique={"fused": True}, optimizer="adam")
    run = engine("module", of, trials(of, 1))
    assert isinstance(run, ModuleEngine)
    assert all(group["fused"] for group in run.runs[0].optimizer.param_groups)
    of = study(workload=replace(models, spec="models.py:Images"), technique={"channels_last": True})
    model = StudyContext.load(of).model(trials(of, 1)[0])
    assert isinstance(model, nn.Sequential)
    assert isinstance(model[0], nn.Conv2d)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"technique": {"compile": "eager"}}, "cannot be used with dropout"),
        ({"precision": "float16", "technique": {"sam": 0.1}}, "sam needs the gradient before it"),
        ({"precision": "bfloat16_weights", "technique": {"checkpoint": "*"}}, "cannot be together"),
    ],
    ids=str,
)
def test_wrong_combinations_are_refused(
    models: WorkloadRef, changes: dict[str, Any], message: str
) -> None:
    of = study(workload=replace(models, fields={"rate": 0.2}), **changes)
    with pytest.raises(ExperimentError, match=message):
        engine("module", of, trials(of, 1)).advance(1)


# Precisions


def test_float16_skips_a_step_that_overflows_and_says_so(models: WorkloadRef) -> None:
    of = study(workload=models, precision="float16", budget_steps=8, stop_at_target=False)
    run = engine("module", of, trials(of, 2))
    assert isinstance(run, ModuleEngine)
    scaler = run.runs[0].scaler
    assert scaler is not None
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**40})
    before = run.weights(0)
    run.advance(3)
    assert run.skipped_steps(0) == 3
    assert run.skipped_steps(1) == 0
    assert largest_difference(before, run.weights(0)) == 0
    assert run.finite() == [True, True]
    resumed = engine("module", of, trials(of, 2))
    restore(resumed, saved(run))
    for each in (run, resumed):
        each.advance(30)
        assert (each.skipped_steps(0) or 0) > 3
        assert each.steps == [33, 33]
    assert largest_difference(resumed.weights(0), run.weights(0)) == 0
    assert largest_difference(before, run.weights(0)) > 1e-4
    ended = outcomes(train(of, trials(of, 2))).values()
    assert {outcome.skipped_steps for outcome in ended} == {0}
    assert "scaled by itself" in str(stacking_refusal(StudyContext.load(of), trials(of, 4)))


def test_a_step_that_overflows_is_no_step_of_a_technique() -> None:
    """What a technique does in its first step it does in the first that moves weights."""
    technique = {"prune": {"sparsity": 0.75, "by": "gradient"}, "ema": 0.9}
    of = study(workload="digits-mlp", precision="float16", technique=technique)
    run = engine("module", of, trials(of, 1))
    assert isinstance(run, ModuleEngine)
    scaler = run.runs[0].scaler
    assert scaler is not None
    scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**40})
    run.advance(2)
    resumed = engine("module", of, trials(of, 1))
    restore(resumed, saved(run))
    while resumed.skipped_steps(0) == resumed.steps[0]:
        resumed.advance(1)
    matrices = [w for w in resumed.weights(0).values() if w.dim() == 2]
    kept = sum(int((w != 0).sum()) for w in matrices)
    assert kept == round(0.25 * sum(w.numel() for w in matrices))
    assert largest_difference(resumed.weights(0), resumed.measured(0)) == 0


def test_tf32_is_of_the_products_within_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Nvidia's GPUs; the switches can be seen without one."""

    def switches() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    # Torch's default, which ranks that are threads of a test may leave otherwise.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    before = switches()
    for name in ("tf32", "float32", "bfloat16"):
        with Precision(name=name, device=torch.device("cuda")).products():
            assert set(switches()) == {name == "tf32"}
        assert switches() == before
    assert Precision(name="tf32", device=torch.device("cuda")).dtype == torch.float32


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "bfloat16_weights"])
def test_a_precision_is_near_float32(models: WorkloadRef, precision: str) -> None:
    of = study(workload=models, precision=precision, batch_size=32)
    exact = weights(replace(of, technique={"precision": "float32"}))
    assert 0 < largest_difference(exact, weights(of)) < 0.05


@pytest.mark.slow
def test_masters_are_exact(models: WorkloadRef) -> None:
    """An update that bfloat16 would round away is kept; gradients are those of rounded weights."""
    of = study(workload=models, precision="bfloat16_weights", batch_size=32)
    pack = trials(of, 1, learning_rate=1e-4, weight_decay=0.0)
    context = StudyContext.load(of)
    model = context.model(pack[0])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    x, y = context.train.fetch_step(context.order(pack[0]), slice(0, 32), pack[0].seed, 0)
    model.bfloat16()
    loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), y, reduction="none")
    loss.backward(torch.full((32,), 1 / 32))
    for kind in ("module", "stacked"):
        run = engine(kind, of, pack, steps=1)
        after = run.weights(0)
        for name, p in model.named_parameters():
            assert p.grad is not None
            torch.testing.assert_close(
                (start[name] - after[name]) / 1e-4, p.grad.float(), rtol=0.05, atol=2e-3
            )
            assert (after[name].bfloat16() == start[name].bfloat16()).float().mean() > 0.9
            assert after[name].dtype == torch.float32
