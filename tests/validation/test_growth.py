"""Exponents of critical batch sizes over targets and widths, of sweeps whose law is known."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.fit.interval import Interval
from validation.growth import PARAMETERS, Critical, along, by_size
from workloads.registry import get

TARGETS = 0.02 * 2.0 ** np.arange(5)
WIDTHS = (16, 32, 64, 128)


def sweeps(
    rng: np.random.Generator, exponent: float, *, scatter: float = 0.0, shared: float = 0.6
) -> list[Critical]:
    """Critical batch sizes 100 · target^exponent · width^0.2. Errors of 0.2 in the logarithm are
    correlated between neighbouring targets; ``scatter`` is that of the widths' exponents."""
    made = []
    for width in WIDTHS:
        own, error = exponent + rng.normal(0, scatter), rng.normal()
        for target in TARGETS:
            value = np.log(100) + own * np.log(target) + 0.2 * np.log(width) + 0.2 * error
            ends = Interval.of_logs(value, value - 0.2 * 1.645, value + 0.2 * 1.645)
            made.append(
                Critical(
                    workload="teacher", optimizer="sgd", width=width, parameters=width,
                    target=float(target), examples=1e4 / target,
                    critical={"form-free": ends, "tested range": Interval(), "knee": Interval()},
                )
            )  # fmt: skip
            error = shared * error + np.sqrt(1 - shared**2) * rng.normal()
    return made


@pytest.mark.parametrize(("scatter", "shared"), [(0.0, 0.6), (0.15, 0.6), (0.0, 0.0), (0.0, 0.95)])
def test_intervals_hold_the_exponent(scatter: float, shared: float) -> None:
    rng = np.random.default_rng(41)
    held = [0, 0, 0]
    for _ in range(400):
        given = sweeps(rng, -0.6, scatter=scatter, shared=shared)
        loss = along(given, lambda each: each.target, "form-free")
        data = along(given, lambda each: each.examples, "form-free")
        size, target = by_size(given, "form-free")
        assert target == TARGETS[0]
        for place, (made, truth) in enumerate(((loss, -0.6), (data, 0.6), (size, 0.2))):
            assert made.low is not None
            assert made.high is not None
            held[place] += made.low <= truth <= made.high
    assert min(held[:2]) / 400 >= 0.87
    if not scatter:  # widths that differ in their exponent lie off a line in size
        assert held[2] / 400 >= 0.87


def test_two_widths_or_two_targets_have_no_exponent() -> None:
    given = sweeps(np.random.default_rng(0), -0.6)
    few_widths = [each for each in given if each.width < 64]
    assert along(few_widths, lambda each: each.target, "form-free") == Interval()
    assert by_size(few_widths, "form-free") == (Interval(), None)
    few_targets = [each for each in given if each.target < 0.05]
    assert along(few_targets, lambda each: each.target, "form-free") == Interval()
    assert along(given, lambda each: each.target, "knee") == Interval()
    assert by_size(given, "knee") == (Interval(), None)


def test_the_size_is_asked_at_the_hardest_target_that_all_reach() -> None:
    given = sweeps(np.random.default_rng(0), -0.6)
    without = [each for each in given if (each.width, each.target) != (16, TARGETS[0])]
    assert by_size(without, "form-free")[1] == TARGETS[1]


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_parameters_are_those_of_the_models(name: str) -> None:
    text = {"text": "stdlib", "context": 32, "layers": 1, "heads": 2}
    for width, count in PARAMETERS[name].items():
        model = get(name)(width=width, **(text if name == "lm-transformer" else {})).model()
        assert sum(parameter.numel() for parameter in model.parameters()) == count
