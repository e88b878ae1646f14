"""digits-softmax as a plain program: the same model, the same batches by the same seeds."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.nn import functional as F

import batchscale
import workloads
from experiments.seeds import derive, seed_torch
from experiments.training.batch_order import BatchOrder
from experiments.training.evaluation_grid import evaluation_steps


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, kind in (("batch_size", int), ("lr", float), ("max_steps", int), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    workload = workloads.load("digits-softmax")
    splits: Any = workload.data()
    x, y = splits["train"]
    seed_torch(derive(given.seed, "init"), torch.device("cpu"))
    model = workload.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
    order = BatchOrder(given.seed, len(x), given.batch_size)
    evaluations = {*evaluation_steps(1.05, given.max_steps)}
    for step in range(1, given.max_steps + 1):
        (batch,) = order.batches(step - 1, 1)
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in evaluations:
            with torch.no_grad():
                wrong = model(splits["validation"][0]).argmax(1) != splits["validation"][1]
            stop = batchscale.report(step=step, loss=loss, validation_error=wrong.double().mean())
            if stop:
                return


if __name__ == "__main__":
    main()
