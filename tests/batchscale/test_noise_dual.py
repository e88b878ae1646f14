"""The noise scale in dual norms, against gradients whose answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

import batchscale
from batchscale.noise.dual import DIRECTIONS
from batchscale.noise.scale import NoiseScale

TRUTH = 16
"""N² / ‖G‖*² of the problems below, in examples."""
FIXED = torch.Generator().manual_seed(0)
EVEN = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
NORMAL = math.sqrt(2) * torch.erfinv(2 * EVEN - 1)
MIXED = NORMAL[torch.randperm(4000, generator=FIXED)]
MATRIX = torch.randn(40, 60, generator=FIXED, dtype=torch.float64)
ONE, PLACES = torch.ones((), dtype=torch.float64), torch.arange(40)
Draw = Callable[[int], Tensor]


def measured(
    norm: str, draw: Draw, sizes: Sequence[int], steps: int, power: float = 0
) -> NoiseScale:
    """Of the loss <w, x>, whose gradient is x: ``draw`` has the mean of so many. A micro-batch's is
    multiplied by its size to this power."""
    model = nn.Linear(1, 1, bias=False)
    model.weight = nn.Parameter(torch.zeros_like(draw(1)))
    noise = batchscale.NoiseScale(model, norm=norm)
    for _ in range(steps):
        for examples in sizes:
            with noise.micro_batch(examples, scale=examples**power):
                (examples**power * (model.weight * draw(examples)).sum()).backward()
        noise.step()
        model.zero_grad()
    return noise


def dual(norm: str, x: Tensor) -> Tensor:
    return x.abs().sum(-1) if norm == "sign" else torch.linalg.svdvals(x).sum(-1)


def problem(norm: str, gradient: Tensor, deviation: Tensor = ONE) -> Draw:
    """Gaussian noise, whose N² is TRUTH times the gradient's ‖G‖*²."""
    torch.manual_seed(0)
    noise = deviation * torch.randn(400, *gradient.shape, dtype=torch.float64)
    times = (TRUTH * dual(norm, gradient) ** 2 / dual(norm, noise).square().mean()).sqrt()
    return lambda n: gradient + times * deviation * torch.randn_like(gradient) / n**0.5


def turned(values: Tensor) -> Tensor:
    """A matrix with these singular values."""
    u, _, v = torch.linalg.svd(MATRIX, full_matrices=False)
    return (u * values) @ v


PROBLEMS = {
    "sign, normal": (NORMAL, ONE, (1.0, 1.0, 1.0)),
    "sign, equal": (torch.ones_like(NORMAL), ONE, (1.53, 1.43, 1.21)),
    "sign, log-normal": (NORMAL.exp(), MIXED.exp(), (0.55, 0.72, 0.87)),
    "sign, 1 in 100": ((EVEN < 0.01).double(), ONE, (0.26, 0.42, 0.59)),
    "spectral, normal": (MATRIX, ONE, (1.0, 1.0, 1.0)),
    "spectral, equal": (turned(torch.ones(40)), ONE, (1.18, 1.11, 1.02)),
    "spectral, 1 / k": (turned(1 / (1 + PLACES)), ONE, (0.58, 0.77, 0.93)),
    "spectral, rank 1": (turned(PLACES == 0), ONE, (0.27, 0.42, 0.59)),
}
"""G, deviations of its elements, and estimate over truth as docs/noise.md has it, for steps of 1/4,
1 and 4 times the truth."""


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_is_off_by_what_the_page_says_and_its_bounds_hold(name: str) -> None:
    gradient, deviation, ratios = PROBLEMS[name]
    norm, _ = name.split(", ")
    draw, noise = problem(norm, gradient, deviation), TRUTH * float(dual(norm, gradient)) ** 2
    for ratio, half in zip(ratios, (2, 8, 32), strict=True):
        given = measured(norm, draw, (half, half), steps=20).estimate()
        assert given.noise_scale == pytest.approx(ratio * TRUTH, rel=0.1)
        assert given.covariance_trace == pytest.approx(noise, rel=0.06)
        low, high = given.bounds or (math.nan, None)
        assert low < TRUTH < 1.1 * (high or math.nan)  # that of rank 1 is at its bound
        assert f"norm {norm}: from" in str(given)


def test_a_common_factor_changes_the_terms_and_not_their_ratio() -> None:
    given = []
    for factor in (1, 64):
        draw = problem("spectral", factor * MATRIX)
        given.append(measured("spectral", draw, (4, 4), 3).estimate())
    assert given[1].noise_scale == pytest.approx(given[0].noise_scale)
    assert given[1].bounds == pytest.approx(given[0].bounds)
    assert given[1].covariance_trace == pytest.approx(64**2 * given[0].covariance_trace)


@pytest.mark.parametrize("power", [0, 1, -0.5])
def test_micro_batches_have_their_sizes_and_weights(power: float) -> None:
    draw = problem("sign", NORMAL)
    given = measured("sign", draw, (10, 20, 50), 20, power=power).estimate()
    assert given.noise_scale == pytest.approx(TRUTH, rel=0.04)
    assert given.gradient_norm_squared == pytest.approx(float(NORMAL.abs().sum() ** 2), rel=0.04)


def test_in_the_euclidean_norm_it_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIRECTIONS, "sign", lambda x: x / torch.linalg.vector_norm(x))
    given = [measured(n, problem("sign", NORMAL), (4, 4), 3)._rows for n in ("sign", "euclidean")]
    for rows in zip(*given, strict=True):
        assert rows[0][0] == pytest.approx(rows[1][0])


@pytest.mark.parametrize(("examples", "off", "share"), [(2, 1.8, 0.04), (64, 1.26, 0.75)])
def test_noise_that_is_not_gaussian(examples: int, off: float, share: float) -> None:
    """Of noise in 1 of 50 elements of an example N² grows with the batch, up to that of Gaussian
    noise with its variance; and the difference of halves has up to twice that of their batch."""

    def draw(examples: int, batches: int = 1) -> Tensor:
        noise = 50**0.5 * torch.randn(batches, examples, 500, dtype=torch.float64)
        return (noise * (torch.rand(noise.shape) < 0.02)).mean(1).squeeze(0)

    torch.manual_seed(0)
    truth = float(dual("sign", draw(examples, 200)).square().mean()) * examples
    given = measured("sign", draw, (examples, examples), 60).estimate().covariance_trace
    assert given == pytest.approx(off * truth, rel=0.1)
    assert truth == pytest.approx(share * 2 / math.pi * 500**2, rel=0.1)


def test_what_is_no_matrix_and_what_is_rounding() -> None:
    polar = DIRECTIONS["spectral"]
    kernel = polar(torch.randn(4, 2, 3, 3, generator=FIXED)).flatten(1)
    assert torch.allclose(kernel @ kernel.T, torch.eye(4), atol=1e-5)
    assert polar(torch.tensor([2.0, 0.0, -3.0])).tolist() == [1, 0, -1]
    assert not polar(torch.zeros(2, 3)).any()
    assert measured("sign", lambda _: torch.zeros(3), (4, 4), 1).estimate().bounds == (0, None)
    outer = torch.randn(300, 1, generator=FIXED) @ torch.randn(1, 200, generator=FIXED)
    assert torch.allclose(polar(1e-3 * outer), outer / outer.norm(), atol=1e-5)


@pytest.mark.parametrize("sparse", [True, False])
def test_sparse_and_narrow_gradients_and_an_unused_parameter(sparse: bool) -> None:
    kind = torch.float32 if sparse else torch.bfloat16
    table = nn.Embedding(3, 2, sparse=sparse, dtype=kind)
    noise = batchscale.NoiseScale(nn.ModuleList([table, nn.Linear(2, 2)]), norm="sign")
    for row in (0, 1, 0):
        with noise.micro_batch(2):
            table(torch.tensor([row, row])).sum().backward()
    noise.step()  # the first half is 2 in both elements of row 0, the second in those of row 1
    given = noise.estimate()
    assert (given.gradient_norm_squared, given.covariance_trace) == (0, pytest.approx(64 / 0.75))


def test_a_step_that_is_left_out_or_refused_leaves_nothing() -> None:
    model = nn.Linear(3, 1)
    noise = batchscale.NoiseScale(model, norm="sign")
    for parts in ((1, 2, math.inf), (9,), (1, 3)):
        for part in parts:
            with noise.micro_batch(1):
                (part * (model.weight.sum() + model.bias.sum())).backward()
        if len(parts) > 1:
            noise.step()
        else:
            with pytest.raises(ValueError, match="a single small batch"):
                noise.step()
        model.zero_grad()
    given = noise.estimate()  # ‖a‖* is 4, ‖c‖* 12
    assert (given.gradient_norm_squared, given.covariance_trace) == (48, 32)
    assert "left out, since a gradient was not finite: 1" in given.notes


def test_what_has_no_dual_norm_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="norm: euclidean, sign or spectral, not muon"):
        batchscale.NoiseScale(model, norm="muon")
    for more in ({"per_example": True}, {"optimizer": torch.optim.Adam(model.parameters())}):
        with pytest.raises(ValueError, match="norm=sign: without per_example, optimizer and"):
            batchscale.NoiseScale(model, norm="sign", **more)
