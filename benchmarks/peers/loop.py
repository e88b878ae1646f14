"""A bare PyTorch loop, one trial after another, in a process a core."""

from concurrent.futures import ProcessPoolExecutor

import torch
from torch.nn.functional import cross_entropy

from benchmarks.peers import problem


def train(trial: problem.Trial) -> tuple[int, int | None]:
    """The steps that it ran, and those to the target."""
    torch.set_num_threads(1)
    x, y, test_x, test_y = problem.data()
    net = problem.model(trial)
    optimizer = torch.optim.SGD(net.parameters(), lr=trial.learning_rate, momentum=trial.momentum)
    grid = problem.evaluated(trial.budget)
    for step, rows in enumerate(problem.batches(trial, len(x)), start=1):
        optimizer.zero_grad()
        loss = cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step in grid:
            if not loss.isfinite():
                return step, None
            with torch.no_grad():
                errors = (net(test_x).argmax(1) != test_y).sum().item()
            if errors / len(test_y) < problem.TARGET:
                return step, step
        if step == trial.budget:
            return step, None
    raise AssertionError("batches end never")


def main() -> None:
    trials = [trial for study in problem.studies().values() for trial in study]
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(train, trials))
    sizes = [trial.batch_size for trial in trials]
    hits = [hit for _, hit in results]
    problem.report(sum(ran for ran, _ in results), problem.by_size(zip(sizes, hits, strict=True)))


if __name__ == "__main__":
    main()
