"""The simulation of ``batchscale techniques``: its truths, its counts, and a quick run of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.techniques.table import table
from validation import techniques
from validation.page import kept
from validation.scenarios import BY_NAME
from validation.techniques import TechniqueTables, p_values_of, true_ratios

EQUAL, DOUBLE = (TechniqueTables(kind=kind, noise=0.03) for kind in techniques.KINDS)


def test_the_true_ratios() -> None:
    assert true_ratios(EQUAL) == dict.fromkeys(true_ratios(EQUAL), 0.0)
    double = true_ratios(DOUBLE)
    # Over the tested range, 1 to 1,024: S = 1000 (1 + B_crit/B), B_crit 40 and 80.
    steps, examples = (1 + 80 / 1024) / (1 + 40 / 1024), (1 + 80) / (1 + 40)
    assert double["min_steps"] == pytest.approx(np.log(steps))
    assert double["min_examples"] == pytest.approx(np.log(examples))
    assert double["critical_batch_size"] == pytest.approx(np.log(examples / steps))
    assert 0.5 < double["perfect_scaling_until"] <= np.log(2)


def test_what_was_counted_is_within_what_is_claimed() -> None:
    """False claims at most 10 %, intervals that cover, and power for a ratio of 2."""
    counts = kept("techniques")
    tables = counts["tables"].sum()
    # One-sided, at three deviations of a share of 10 %.
    assert counts["false"].sum() / tables < 0.1 + 3 * np.sqrt(0.09 / tables)
    for name in true_ratios(EQUAL):
        covered = counts[f"{name}_covered"].sum() / (techniques.TECHNIQUES * tables)
        assert covered > 0.85, name
    double = counts[(counts["kind"] == "double") & (counts["noise"] == counts["noise"].min())]
    assert (double["critical_batch_size_clear"] > 0.8 * double["tables"]).all()


@pytest.mark.slow
def test_a_quick_run() -> None:
    counts: dict[str, Any] = BY_NAME["techniques"].row(DOUBLE, replicates=2)
    assert counts == BY_NAME["techniques"].row(DOUBLE, replicates=2)
    assert counts["critical_batch_size_clear"] == counts["min_examples_clear"] == 2
    assert counts["min_steps_covered"] > 5
    assert counts["false"] <= 1


@pytest.mark.slow
def test_it_analyses_as_the_command_does(plain_curve) -> None:
    ((y, _),) = techniques.simulate(DOUBLE, {}, np.random.default_rng(1), 1)
    curves: list[Curve] = [
        plain_curve(
            np.array(techniques.SIZES), np.exp(steps), label=f"t{i}",
            group={"optimizer": "sgd", "technique": f'{{"t{i}": 1}}' if i else None},
        )
        for i, steps in enumerate(y)
    ]  # fmt: skip
    ratios, p_values = p_values_of(y)
    for row, ratio, p in zip(
        table(FigureData.of(curves), correction="none").rows, ratios, p_values, strict=True
    ):
        for name, measured in row.ratios.items():
            low, high = (np.exp(each[0]) for each in ratio[name][1:])
            ends = [np.nan if end is None else end for end in measured.interval.ends[1:]]
            assert [low, high] == pytest.approx(ends, rel=1e-3, nan_ok=True)
            if measured.p is not None and measured.p < 0.1:
                assert p[name] == pytest.approx(measured.p, rel=0.05)
