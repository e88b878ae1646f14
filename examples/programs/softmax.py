"""Softmax regression on digits in numpy: a program without torch, which prints a JSON line each
time it evaluates. `batchscale sweep softmax.yaml` sweeps it."""

import argparse
import json

import numpy as np
from sklearn.datasets import load_digits

TRAIN = 1297


def main() -> None:
    """Train it as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--max-steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = np.random.default_rng(given.seed)

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    x, y = np.c_[pixels / 16, np.ones(len(pixels))][order], labels[order]
    weights = np.zeros((65, 10))
    rows = np.empty(0, int)
    evaluate_at = 1
    for step in range(1, given.max_steps + 1):
        while len(rows) < given.batch_size:  # the next epochs, each in an order of its own
            rows = np.append(rows, draw.permutation(TRAIN))
        batch, rows = rows[: given.batch_size], rows[given.batch_size :]
        logits = x[batch] @ weights
        share = np.exp(logits - logits.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        share[np.arange(len(batch)), y[batch]] -= 1
        weights -= given.learning_rate * x[batch].T @ share / len(batch)
        if step == evaluate_at:  # 5 % apart, so that steps to target are exact up to that
            evaluate_at += max(1, step // 20)
            error = float(((x[TRAIN:] @ weights).argmax(1) != y[TRAIN:]).mean())
            examples = step * given.batch_size
            print(json.dumps({"step": step, "examples": examples, "val_error": error}), flush=True)


if __name__ == "__main__":
    main()
