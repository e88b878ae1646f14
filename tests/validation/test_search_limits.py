"""What the limit of a search gives back of the critical batch size: docs/truth.md."""

from __future__ import annotations

import numpy as np
import pytest

from validation import search_limits as limits
from validation.page import PAGE, kept, sections
from validation.surface import CRITICAL, SIZES, Surface, best_steps, excess


def cell(
    dimensions: int, *, power: float = 2.0, narrowing: float = limits.NARROWING
) -> limits.Cell:
    return limits.Cell(
        surface=Surface(dimensions=dimensions, noise=0.2, narrowing=narrowing, power=power)
    )


def test_the_page_has_the_table_of_the_kept_counts() -> None:
    text = sections(PAGE.read_text(encoding="utf-8"))["limits"]
    assert text.strip() == limits.render(kept("limits")).strip()


def test_the_bowl_narrows_and_has_its_power() -> None:
    far, near = np.log(1e9), np.log(1e-9)
    for power in (1.0, 2.0, 4.0):
        ratios = []
        for x, centre in ((near, [0.3, 0.45]), (far, [0.6, 0.55])):
            u = np.array(centre) + np.array([[0.0, 0.1], [0.0, 0.2]])
            once, twice = excess(u, np.array(x), narrowing=1.0, power=power)[0]
            assert twice / once == pytest.approx(2**power, rel=1e-5)
            ratios.append(once)
        assert ratios[1] / ratios[0] == pytest.approx(2, rel=1e-5)
        edge = np.array([0.3, 0.45 + 0.25])
        assert excess(edge, np.array(near), power=power)[0] == pytest.approx(0.75, rel=1e-5)


def test_the_loss_is_that_of_the_best_points_critical_batch_size() -> None:
    at = np.log([CRITICAL])
    assert best_steps(at)[0] == pytest.approx(np.log(2) + best_steps(np.log([1e12]))[0])
    losses = [limits.loss(cell(d), 64) for d in (1, 4)]
    assert 1 < losses[0] < 1.3 < 1.6 < losses[1] < 3
    assert limits.loss(cell(3, narrowing=0.0), 64) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_sweeps_by_the_path_of_a_results_dataset() -> None:
    """Three dimensions: of a third that is lost, most comes back."""
    one = cell(3)
    (curve, *_) = limits.search(one, 0, 2)
    assert curve.batch_sizes == [*SIZES]
    assert curve.scaled_dimensions == 3
    row = limits.count(limits.Block(cell=one, number=0, true=limits.loss(one, 64), sweeps=24))
    assert row["curves"] == 24
    before, after = float(str(row["before"])), float(str(row["after"]))
    assert before < 0.85
    assert abs(np.log(after)) < 0.6 * abs(np.log(before))


def test_what_is_lost_comes_back_and_nothing_else_does() -> None:
    seen = 0
    for (kind, noise, tuned), group in kept("limits").groupby(limits.BY):
        mean = {name: float(group[name].mean()) for name in ("before", "after", "factor")}
        curves, covered, notes = (int(group[n].sum()) for n in ("curves", "covered", "notes"))
        if kind == "distance²":
            seen += 1
            before, after = (abs(np.log(mean[name])) for name in ("before", "after"))
            assert after < max(before, 0.03), (noise, tuned)
            assert tuned in (1, 2) or covered >= 0.6 * curves
        elif kind == "distance², not narrowing":
            seen += 1
            assert abs(np.log(mean["factor"])) < 0.08
            assert notes <= 0.1 * curves
    assert seen == 3 * len(limits.DIMENSIONS)
