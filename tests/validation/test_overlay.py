"""Published and own curves in one picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image

from analysis import Curve, regimes
from results.targets.target import Target
from validation import overlay
from validation.overlay import BOTH, OWN, Knee

Plain = Callable[..., Curve]
SIZES = [2.0**i for i in range(12)]
MNIST = {"workload": "mnist-simple-cnn", "dataset": "mnist"}
GOAL = Target(metric="validation_error", value=0.01)


def one(plain: Plain, source: str = OWN, *, knee: float = 40, **fields: Any) -> Knee:
    steps = [100 * (1 + knee / size) for size in SIZES]
    given = {"group": {**MNIST, "optimizer": "sgd"}, "target": GOAL, **fields}
    curve = plain(SIZES, steps, **given)
    return Knee(source=source, curve=curve, regimes=regimes(curve))


@pytest.fixture(scope="module")
def every(plain_curve: Plain) -> list[Knee]:
    other: dict[str, Any] = {"group": {"workload": BOTH[1], "optimizer": "sgd"}}
    flat = plain_curve(SIZES, [1000 / size for size in SIZES])
    return [
        one(plain_curve, "shallue_2019_digitized", knee=70),
        one(plain_curve, "shallue_2019_digitized", **other),
        Knee(source="mlperf_rcp", curve=flat, regimes=regimes(flat)),
        one(plain_curve),
    ]


def test_exact_knees_lie_on_the_line(every: list[Knee]) -> None:
    for knee in (every[0], every[3]):
        size, steps = knee.scaled()
        assert steps == pytest.approx(1 + 1 / size, rel=1e-4)
    assert every[0].scaled()[0][0] == pytest.approx(1 / 70, rel=1e-4)


def test_only_curves_with_a_critical_batch_size_are_in_the_picture(every: list[Knee]) -> None:
    assert [knee.why_not for knee in every] == [None, None, "not level: large", None]
    figure = overlay.knees(every)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:2] == ["Shallue et al. 2019, 2 curves", "own, 1 curve"]
    drawn = sum(
        np.size(line.get_xdata()) for line in figure.axes[0].lines if line.get_linestyle() == "None"
    )
    assert drawn == 3 * len(SIZES)


def test_a_panel_says_where_no_own_points_are(every: list[Knee]) -> None:
    with_own, without = overlay.workloads(every).axes
    assert "no own points yet" not in [text.get_text() for text in with_own.texts]
    assert "no own points yet" in [text.get_text() for text in without.texts]
    text = overlay.render(every)
    assert f"- {BOTH[0]}, sgd: own points at 1, 2, 4," in text
    assert f"- {BOTH[1]}: published points alone" in text


def test_own_points_at_another_target_are_not_beside(plain_curve: Plain) -> None:
    other = Target(metric="validation_error", value=0.02)
    every = [
        one(plain_curve, "shallue_2019_digitized"),
        one(plain_curve, "shallue_2019_digitized", group={"workload": BOTH[1]}),
        one(plain_curve, target=other),
    ]
    assert "own points at" not in overlay.render(every)


@pytest.mark.slow
def test_both_pictures_are_drawn(every: list[Knee], tmp_path: Path) -> None:
    for path in overlay.pictures(tmp_path, every):
        pixels = image.imread(path)
        assert pixels.shape[0] > 500
        assert np.ptp(pixels) > 0.9


def test_the_panels_are_workloads_that_both_have() -> None:
    from validation.packaged import trials
    from workloads import names

    assert set(BOTH) <= set(names())
    assert set(BOTH) <= set(trials("published")["workload"])
