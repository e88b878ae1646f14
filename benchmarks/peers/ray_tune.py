"""Ray Tune over all trials, one model each; ``reused``: in actors that are used again."""

import sys
import tempfile
from typing import Any

import ray
import torch
from ray import tune
from torch.nn.functional import cross_entropy

from benchmarks.peers import problem

TRIALS = [trial for study in problem.studies().values() for trial in study]


def train(config: dict[str, Any]) -> None:
    """Report the steps that a trial ran, and whether it reached the target."""
    torch.set_num_threads(1)
    trial = TRIALS[config["trial"]]
    x, y, test_x, test_y = problem.data()
    net = problem.model(trial)
    optimizer = torch.optim.SGD(net.parameters(), lr=trial.learning_rate, momentum=trial.momentum)
    evaluated = problem.evaluated(trial.budget)
    for step, rows in enumerate(problem.batches(trial, len(x)), start=1):
        optimizer.zero_grad()
        loss = cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step in evaluated:
            with torch.no_grad():
                errors = (net(test_x).argmax(1) != test_y).sum().item()
            hit = errors / len(test_y) < problem.TARGET
            if hit or step == trial.budget or not loss.isfinite():
                tune.report({"steps": step, "hit": hit})
                return


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={"trial": tune.grid_search(list(range(len(TRIALS))))},
            tune_config=tune.TuneConfig(reuse_actors="reused" in sys.argv),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        )
        grid = tuner.fit()
    results = [grid[place] for place in range(len(grid))]
    pairs = [(TRIALS[(each.config or {})["trial"]], each.metrics or {}) for each in results]
    hits = ((trial.batch_size, each["steps"] if each["hit"] else None) for trial, each in pairs)
    problem.report(sum(each["steps"] for _, each in pairs), problem.by_size(hits))


if __name__ == "__main__":
    main()
