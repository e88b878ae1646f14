"""The whole measurement in 150 lines of plain PyTorch, to be read in one sitting.

A multilayer perceptron learns scikit-learn's digits with plain SGD. At every batch size the
learning rate is tuned afresh by a quasi-random search, each trial's steps to target are counted,
and a knee is fitted to those of each batch size's best trial. In about a minute,

    python docs/minimal.py

prints both. Data, seeds, search points, data order, evaluation grid and budget are those of
``batchscale sweep`` with ``workload: digits-mlp``, ``optimizer: sgd``, ``keep: off``,
``engine: module``: every trial has the same steps to target (tests/docs/test_minimal.py).

Left out: other workloads, optimizers and schedules; packs of trials, and stacking, which trains
many models at once; dominated stopping (``keep``), which cuts off trials that cannot be among the
best; Ray; restarts, and the results dataset; repeats, estimators other than the minimum, and the
check that the optimum is not on the edge of the search space; the regimes, which are slopes of a
convex curve with intervals, the noise of a point, by which points weigh, and a knee's slope of its
own at small batches.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.stats import qmc
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional as F

SEED = 0
EVALUATION_RATIO = 1.05


class Trial(NamedTuple):
    """One training run of the search: its target lies after ``last_miss``, at most at ``steps``."""

    learning_rate: float
    last_miss: int
    steps: float = math.inf  # inf: the target was not reached
    diverged: bool = False

    @property
    def middle(self) -> float:
        """Of the steps at which the target may have been reached."""
        return (self.last_miss + 1 + self.steps) / 2


def load_data() -> tuple[torch.Tensor, ...]:
    """Training images (1297, 64) and labels, validation images (500, 64) and labels."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(np.arange(len(labels)), test_size=500, stratify=labels, random_state=0)
    x, y = torch.from_numpy(images / 16).float(), torch.from_numpy(labels).long()
    return tuple(tensor[rows] for rows in split for tensor in (x, y))


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed: a hash of what it is for, so that no random stream depends on another."""
    return int.from_bytes(hashlib.blake2b(ascii([*parts]).encode(), digest_size=8).digest()) >> 1


def identify(description: Mapping[str, Any]) -> str:
    """A short hash of what makes a study (or a trial of it) different from every other."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def search(batch_size: int, low: float, high: float, count: int) -> Iterator[tuple[float, int]]:
    """Learning rates, log-uniform from a scrambled Sobol sequence, each with its trial's seed.

    Study and trial are described in full: their hashes are the platform's, and so are the seeds.
    """
    study = {
        "identity": 1,
        "workload": {"name": "digits-mlp", "fields": {"label_smoothing": 0}, "version": "1"},
        "optimizer": {"name": "sgd"},
        "schedule": "constant",
        "technique": {},
        "precision": "float32",
        "batch_size": batch_size,
        "evaluation": {"grid": "geometric", "ratio": EVALUATION_RATIO},
    }
    study_id = identify(study)
    generator = np.random.Generator(np.random.PCG64(derive_seed(SEED, study_id, "search")))
    sobol = qmc.Sobol(1, scramble=True, seed=generator)
    for u in sobol.random_base2(math.ceil(math.log2(count)))[:count, 0].tolist():
        # Nine figures: the last bits of exp and log differ between machines.
        learning_rate = float(f"{low * math.exp(u * math.log(high / low)):.8e}")
        metaparameters = {"learning_rate": min(max(learning_rate, low), high)}
        trial = identify({**study, "metaparameters": metaparameters, "seed_index": [SEED, 0]})
        yield metaparameters["learning_rate"], derive_seed(SEED, study_id, trial)


def evaluation_grid(budget: int) -> Iterator[int]:
    """The steps at which a trial is evaluated: each the last times 1.05, and the budget."""
    step = 1
    while step < budget:
        yield step
        step = max(step + 1, math.ceil(step * EVALUATION_RATIO))
    yield budget


def draw_batches(seed: int, examples: int, batch_size: int) -> Iterator[torch.Tensor]:
    """Shuffled epochs without replacement; the last short batch of each is dropped."""
    for epoch in itertools.count():
        shuffle = np.random.Generator(np.random.SFC64(derive_seed(seed, "order", epoch)))
        order = torch.from_numpy(shuffle.permutation(examples))
        if batch_size == examples:  # the full training set: its order means nothing
            order = torch.arange(examples)
        yield from order.split(batch_size)[: examples // batch_size]


def train(
    data: tuple[torch.Tensor, ...],
    batch_size: int,
    learning_rate: float,
    seed: int,
    budget: int,
    target: float,
) -> Trial:
    """Train until an evaluation finds a validation error strictly below ``target``."""
    x, y, validation_x, validation_y = data
    torch.manual_seed(derive_seed(seed, "init"))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    batches = draw_batches(seed, len(x), batch_size)
    last_miss, total_loss = 0, 0.0
    for step in evaluation_grid(budget):
        for batch in itertools.islice(batches, step - last_miss):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch], reduction="sum")
            (loss / batch_size).backward()
            optimizer.step()
            total_loss += loss.item()
        finite = all(bool(weights.isfinite().all()) for weights in model.parameters())
        if not (finite and math.isfinite(total_loss)):
            return Trial(learning_rate, last_miss, diverged=True)
        with torch.no_grad():
            errors = (model(validation_x).argmax(-1) != validation_y).sum().item()
        if errors / len(validation_y) < target:
            return Trial(learning_rate, last_miss, step)
        last_miss = step
    return Trial(learning_rate, last_miss)


def tune(
    data: tuple[torch.Tensor, ...],
    batch_size: int,
    *,
    trials: int = 16,
    epochs: int = 4,
    steps: int = 300,
    target: float = 0.04,
    space: tuple[float, float] = (1e-3, 10.0),
) -> list[Trial]:
    """All trials of one batch size, until ``trials`` have not diverged, of at most 4 times as many.

    The budget of each is ``epochs`` + ``steps``: small batches need epochs, large ones steps.
    """
    budget = epochs * (len(data[0]) // batch_size) + steps
    trained: list[Trial] = []
    for learning_rate, seed in search(batch_size, *space, count=4 * trials):
        trained.append(train(data, batch_size, learning_rate, seed, budget, target))
        if sum(not trial.diverged for trial in trained) == trials:
            break
    return trained


def best_trial(trials: list[Trial]) -> Trial:
    """The first one of the fewest steps to target."""
    return min(trials, key=lambda trial: trial.steps)


def knee(batch_sizes: np.ndarray, min_steps: float, critical: float, k: float) -> np.ndarray:
    """Log steps to target: S(B) = S_min (1 + (B_crit / B)^k)^(1 / k); k bends the knee."""
    ratio = np.log(critical) - np.log(batch_sizes)
    return np.log(min_steps) + np.logaddexp(0, k * ratio) / k


def fit_knee(batch_sizes: list[int], steps: list[float]) -> tuple[float, float, float]:
    """S_min (steps), B_crit (examples) and k by least squares in log steps, from several starts.

    Of three or four batch sizes k is 1, the curve of McCandlish et al. 2018 (arXiv:1812.06162).
    """
    sizes, log_steps = np.array(batch_sizes, dtype=float), np.log(steps)
    low = [-np.inf, np.log(sizes.min() / 1e6), np.log(0.4)]
    high = [np.inf, np.log(sizes.max() * 1e6), np.log(8.0)]
    free = 3 if len(sizes) >= 5 else 2

    def residuals(logs: np.ndarray) -> np.ndarray:
        return knee(sizes, *np.exp([*logs, 0.0][:3])) - log_steps

    starts = itertools.product([log_steps.min()], np.log(sizes), np.log([0.5, 1, 2, 5]))
    limits = (low[:free], high[:free])
    fits = [
        least_squares(residuals, start[:free], bounds=limits, method="dogbox", ftol=1e-12)
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.cost)
    min_steps, critical, k = np.exp([*best.x, 0.0][:3])
    return float(min_steps), float(critical), float(k)


def main() -> None:
    """Print the best trial of each batch size, and the knee."""
    torch.set_num_threads(1)  # as every worker of the platform: sums then round the same
    data = load_data()
    points: dict[int, float] = {}
    print("batch size   steps to target   examples   learning rate")
    for batch_size in (8, 16, 32, 64, 128, 256, 512, 1024, len(data[0])):
        best = best_trial(tune(data, batch_size))
        if best.steps == math.inf:
            print(f"{batch_size:10}   not within the budget")
            continue
        points[batch_size] = best.middle
        examples = batch_size * best.steps
        print(f"{batch_size:10} {best.steps:17} {examples:10} {best.learning_rate:15.3g}")
    min_steps, critical, k = fit_knee(list(points), list(points.values()))
    print(f"knee: S_min {min_steps:.1f} steps, B_crit {critical:.0f} examples, k {k:.2f}")


if __name__ == "__main__":
    main()
