"""Optuna with its median pruner: a study a batch size, in a process a core."""

from concurrent.futures import ProcessPoolExecutor

import optuna
import torch
from torch.nn.functional import cross_entropy

from benchmarks.peers import problem


def search(trials: list[problem.Trial]) -> tuple[int, list[int | None]]:
    """The steps that a study trained, and its steps to the target."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    x, y, test_x, test_y = problem.data()
    grid, budget = problem.evaluated(trials[0].budget), trials[0].budget
    trained, reached = 0, list[int | None]()

    def objective(suggested: optuna.Trial) -> float:
        nonlocal trained
        rate = suggested.suggest_float("learning_rate", 1e-6, 1e3, log=True)
        momentum = suggested.suggest_float("momentum", 0.0, 0.99999)
        trial = trials[suggested.number]
        net = problem.model(trial)
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)
        for step, rows in enumerate(problem.batches(trial, len(x)), start=1):
            trained += 1
            optimizer.zero_grad()
            loss = cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            if step in grid:
                if not loss.isfinite():
                    raise optuna.TrialPruned
                with torch.no_grad():
                    error = (net(test_x).argmax(1) != test_y).double().mean().item()
                if error < problem.TARGET:
                    reached.append(step)
                    return step
                suggested.report(error, step)
                if suggested.should_prune():
                    raise optuna.TrialPruned
            if step == budget:
                break
        return budget

    study = optuna.create_study(direction="minimize", pruner=optuna.pruners.MedianPruner())
    for trial in trials:  # the same points as the others train
        study.enqueue_trial({"learning_rate": trial.learning_rate, "momentum": trial.momentum})
    study.optimize(objective, n_trials=len(trials))
    return trained, reached


def main() -> None:
    sizes = problem.studies()
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(search, sizes.values()))
    hits = [reached for _, reached in results]
    problem.report(sum(trained for trained, _ in results), dict(zip(sizes, hits, strict=True)))


if __name__ == "__main__":
    main()
