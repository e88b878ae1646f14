"""Many curves are fitted, and compared, in one call: to the last bit as one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analysis import Curve, TooFewBatchSizesError, regimes
from analysis.fit.knee import log_steps, theta
from analysis.fit.regimes import Regimes, regimes_of

Plain = Callable[..., Curve]
SIZES = [2**i for i in range(1, 13)]
RUNS = (-0.01, 0.0, 0.01)
"""Log steps of the runs of a batch size, about their mean."""


def noisy(plain: Plain, name: str, sizes: Sequence[int], *knee: float, noise: float = 0.1) -> Curve:
    rng = np.random.default_rng(sum(map(ord, name)))
    steps = log_steps(np.log(sizes), theta(*knee)) + rng.normal(0, noise, len(sizes))
    return plain(list(sizes), np.exp(steps), label=name, group={"optimizer": name})


@pytest.fixture
def many(plain_curve: Plain) -> list[Curve]:
    """Of every kind: bends free and fixed, slopes, a rise off the plateau, a small-batch penalty,
    repeated runs, thinned grids, too few batch sizes."""
    made = [
        noisy(plain_curve, "knee", SIZES, 60, 100),
        noisy(plain_curve, "sharp", SIZES, 60, 100, 6.0),
        noisy(plain_curve, "short", SIZES[2:9], 60, 50),
        noisy(plain_curve, "shallow", SIZES, 60, 200, 1.0, 0.7, noise=0.02),
        noisy(plain_curve, "steep", SIZES, 60, 300, 1.0, 1.6, noise=0.01),
        noisy(plain_curve, "few", SIZES[::3], 60, 60),
        noisy(plain_curve, "fewer", SIZES[:2], 60, 60),
        noisy(plain_curve, "other", SIZES, 40, 400, 0.7),
    ]
    risen = np.exp(log_steps(np.log(SIZES), theta(60, 30)))
    risen[-4:] *= [1.3, 1.7, 2.5, 3.5]
    made.append(plain_curve(SIZES, risen, label="risen", group={"optimizer": "risen"}))
    three = [np.exp(np.log(point.steps or 1.0) + off) for point in made[0].points for off in RUNS]
    repeated = {"label": "repeated", "group": {"optimizer": "repeated"}}
    made.append(plain_curve(sorted([*SIZES] * len(RUNS)), three, **repeated))
    thin = noisy(plain_curve, "thin", SIZES[:9], 60, 20)
    wide = noisy(plain_curve, "wide", [2**i for i in range(16)], 60, 150, noise=0.02)
    made.append(replace(wide, coarse=thin))
    return [made[0], replace(made[1], coarse=made[6]), *made[2:]]


def plain_values(found: Sequence[Regimes | TooFewBatchSizesError]) -> list[Any]:
    return [repr(each.to_dict()) if isinstance(each, Regimes) else str(each) for each in found]


def test_curves_fitted_together_are_those_fitted_alone(many: list[Curve]) -> None:
    alone: list[Regimes | TooFewBatchSizesError] = []
    for curve in many:
        try:
            alone.append(regimes(curve))
        except TooFewBatchSizesError as error:
            alone.append(error)
    found = regimes_of(many)
    assert plain_values(found) == plain_values(alone)
    kinds = [each for each in found if isinstance(each, Regimes)]
    assert len(kinds) == len(many) - 1
    assert {each.best["form"] for each in kinds} >= {"bent knee", "knee of fixed bend"}
    assert any(each.rise for each in kinds)
    assert any(each.small_batch_penalty for each in kinds)
    assert any("second evaluation" in note for each in kinds for note in each.notes)
