"""A sweep as one writes it in JAX, in torch: all trials of a batch size are one vmapped model."""

from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from benchmarks.peers import problem


def sweep(trials: list[problem.Trial]) -> tuple[int, list[int | None]]:
    """The steps that a study trained, and its steps to the target."""
    torch.set_num_threads(1)
    x, y, test_x, test_y = problem.data()
    net = problem.model(trials[0])
    weights, _ = stack_module_state([problem.model(trial) for trial in trials])
    weights = {name: each.detach() for name, each in weights.items()}
    moved = {name: torch.zeros_like(each) for name, each in weights.items()}
    rates = torch.tensor([trial.learning_rate for trial in trials])
    momenta = torch.tensor([trial.momentum for trial in trials])

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(net, weights, (x,)), y)

    def update(
        weights: dict[str, Tensor], moved: dict[str, Tensor], rate: Tensor, momentum: Tensor,
        x: Tensor, y: Tensor,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # fmt: skip
        gradient = grad(loss)(weights, x, y)
        moved = {name: momentum * moved[name] + gradient[name] for name in weights}
        return {name: weights[name] - rate * moved[name] for name in weights}, moved

    def wrong(weights: dict[str, Tensor]) -> Tensor:
        return (functional_call(net, weights, (test_x,)).argmax(1) != test_y).sum()

    grid = problem.evaluated(trials[0].budget)
    orders = [problem.batches(trial, len(x)) for trial in trials]
    reached: list[int | None] = [None] * len(trials)
    for step in range(1, trials[0].budget + 1):
        rows = torch.stack([next(order) for order in orders])
        weights, moved = vmap(update)(weights, moved, rates, momenta, x[rows], y[rows])
        if step in grid:
            for i, errors in enumerate(vmap(wrong)(weights).tolist()):
                if reached[i] is None and errors / len(test_y) < problem.TARGET:
                    reached[i] = step
            if None not in reached:
                break
    return step * len(trials), reached


def main() -> None:
    sizes = problem.studies()
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(sweep, sizes.values()))
    hits = [reached for _, reached in results]
    problem.report(sum(trained for trained, _ in results), dict(zip(sizes, hits, strict=True)))


if __name__ == "__main__":
    main()
