"""The sampled noisy quadratic model agrees with its exact expectation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.problems import tensors
from tests.validation.test_nqm import stepped
from validation import nqm
from workloads import WorkloadError, load
from workloads.quadratic import spectrum


def run(fields: dict, steps: list[int], *, batch_size: int, seed: int = 0, **sgd) -> list[float]:
    """The measured loss of a real training loop at each of ``steps``."""
    workload = load("quadratic", fields)
    torch.manual_seed(seed)
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    generator = torch.Generator().manual_seed(seed + 1)
    blank = tuple(t.expand(batch_size, -1) for t in tensors(workload.data()["validation"]))
    measured = []
    for step in range(1, max(steps) + 1):
        batch = workload.transform(workload.augment(blank, generator), training=True)
        optimizer.zero_grad()
        workload.loss(workload.forward(model, batch), batch).mean().backward()
        optimizer.step()
        if step in steps:
            with torch.no_grad():
                output = workload.forward(model, blank)
                loss = workload.metrics(output, blank)["loss"]
                assert isinstance(loss, torch.Tensor)
                measured.append(float(loss.mean()))
    return measured


@pytest.mark.parametrize(
    ("batch_size", "learning_rate", "momentum", "preconditioner"),
    [(256, 0.5, 0.0, 0.0), (1024, 0.1, 0.9, 0.0), (512, 0.05, 0.5, 0.25)],
)
def test_the_mean_loss_is_the_exact_expectation(
    batch_size, learning_rate, momentum, preconditioner
) -> None:
    """512 replicas scatter by about 1 %, where the first coordinates rule."""
    steps = [1, 5, 25, 100, 300]
    found = run(
        {"replicas": 512, "preconditioner": preconditioner},
        steps,
        batch_size=batch_size,
        lr=learning_rate,
        momentum=momentum,
    )
    exact = stepped(
        "heavy_ball",
        batch_size,
        np.array([learning_rate]),
        np.array([momentum]),
        steps[-1],
        preconditioner=preconditioner,
    )
    assert found == pytest.approx(exact[steps, 0].tolist(), rel=0.05)


def test_the_spectrum_is_that_of_the_exact_model() -> None:
    for mine, exact in zip(spectrum(), nqm.spectrum(), strict=True):
        assert mine.tolist() == exact.tolist()


def test_the_noise_floor_is_the_exact_one() -> None:
    """Started at the optimum, nothing but noise makes the loss: small batches, a large rate."""
    workload = load("quadratic", {"replicas": 256})
    model = workload.model()
    with torch.no_grad():
        model.get_parameter("phi").zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator, losses = torch.Generator().manual_seed(0), []
    blank = (torch.zeros(64, 1, dtype=torch.uint8),)
    for step in range(400):
        batch = workload.augment(blank, generator)
        optimizer.zero_grad()
        workload.loss(workload.forward(model, batch), batch).mean().backward()
        optimizer.step()
        if step >= 100:
            theta, h, _ = workload.forward(model, blank)
            fast = (0.5 * h * theta * theta)[h > 0.1].detach()
            losses.append(float(fast.sum()) / 256)
    h, _ = nqm.spectrum()
    square = nqm.heavy_ball(0.5 * h, 0.0).stationary.ww * 0.5**2 * h / 64
    assert sum(losses) / len(losses) == pytest.approx(0.5 * (h * square)[h > 0.1].sum(), rel=0.05)


@pytest.mark.slow
def test_a_gradients_noise_has_covariance_c_over_b() -> None:
    workload = load("quadratic", {"replicas": 1})
    model, generator = workload.model(), torch.Generator().manual_seed(0)
    h, phi = model.get_buffer("eigenvalues"), model.get_parameter("phi")
    draws = []
    for _ in range(4_000):
        batch = workload.augment((torch.zeros(32, 1),), generator)
        loss = workload.loss(workload.forward(model, batch), batch).mean()
        (gradient,) = torch.autograd.grad(loss, phi)
        draws.append(gradient - h * phi.detach())
    noise = torch.stack(draws)
    scaled = noise / (h / 32).sqrt()
    covariance = scaled.T @ scaled / len(scaled)
    assert float(scaled.mean(0).abs().max()) < 5 / len(draws) ** 0.5
    torch.testing.assert_close(covariance, torch.eye(len(h)), rtol=0, atol=0.15)


def test_without_noise_every_example_has_the_same_loss() -> None:
    workload = load("quadratic")
    blank = tensors(workload.data()["validation"])
    model = workload.model()
    output = workload.forward(model, blank)
    assert workload.loss(output, blank).shape == (1,)
    assert len(workload.data()["train"][0]) == 2**20
    with pytest.raises(WorkloadError, match="'replicas' of workload quadratic cannot be 0"):
        load("quadratic", {"replicas": 0})
