"""Knees of several techniques and optimizers, whose ratios are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis import Curve, Point
from analysis.figure_data import FigureData
from analysis.fit.knee import log_steps, theta

SIZES = tuple(2**i for i in range(12))
Algorithm = tuple[str, Mapping[str, Any]]


def technique_curve(
    algorithm: Algorithm,
    *,
    critical: float = 60.0,
    seed: int = 0,
    noise: float = 0.05,
    **group: Any,
) -> Curve:
    """A knee of 1,000 steps at the plateau with 5 % of noise."""
    optimizer, technique = algorithm
    errors = np.random.default_rng(seed).normal(0, noise, len(SIZES))
    steps = np.exp(log_steps(np.log(SIZES), theta(1000.0, critical)) + errors)
    text = json.dumps({"precision": "float32", **technique}, sort_keys=True)
    pairs = zip(SIZES, steps, strict=True)
    return Curve(
        group={
            "workload": "w", "optimizer": optimizer, "schedule": "constant", "technique": text,
            **group,
        },
        label=" ".join([optimizer, *technique]),
        target=None,
        points=tuple(
            Point(batch_size=size, steps=each, trials=1, middles=(each,))
            for size, each in pairs
        ),
        trials=1,
    )  # fmt: skip


def many(count: int) -> FigureData:
    """A plain curve, and ``count`` others of critical batch sizes from 60 to 480."""
    curves = [technique_curve(("sgd", {}), seed=1)]
    for i in range(count):
        critical = 60.0 * 2 ** (3 * i / max(count - 1, 1))
        name = f"technique_{i}"
        curves.append(technique_curve(("sgd", {name: 0.5}), critical=critical, seed=i + 2))
    return FigureData.of(curves)
