"""Figures paint a regime where the table gives its ends, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text

import results
from analysis import Curve, Interval, Point, Regimes, figures, regimes
from analysis.curves.estimators import BEST_OF_10
from analysis.figure_data import FigureData, Query
from analysis.figures.drawing.optimizer_styles import OPTIMIZERS, style_numbers
from analysis.figures.drawing.style import curve_style
from analysis.fit.reference_lines import RegimeSpan, regime_spans
from analysis.formatting import interval
from batchscale.names import listed
from tests.analysis.legible import faults, figure_of

pytestmark = pytest.mark.usefixtures("closed_figures")
Plain = Callable[..., Curve]
SIZES = [2.0**i for i in range(11)]
UNTIL = {
    "reached": Interval(value=32, low=16, high=64),
    "at least": Interval(low=16),
    "at most": Interval(high=64),
    "open": Interval(),
}
FROM = {
    "reached": Interval(value=256, low=128, high=512),
    "at least": Interval(low=128),
    "at most": Interval(high=512),
    "open": Interval(),
}


@pytest.fixture(scope="module")
def located(plain_curve: Plain) -> tuple[Curve, Regimes]:
    curve = plain_curve(SIZES, [100 * (1 + 40 / size) for size in SIZES])
    return curve, regimes(curve)


def having(located: tuple[Curve, Regimes], until: str, start: str) -> Regimes:
    return replace(
        located[1], perfect_scaling_until=UNTIL[until], maximal_parallelism_from=FROM[start]
    )


@pytest.mark.parametrize(
    ("until", "start", "expected"),
    [
        ("reached", "reached", [(0, 1, 32, True), (1, 32, 256, True), (2, 256, 1024, True)]),
        ("open", "open", []),
        ("reached", "open", [(0, 1, 32, True)]),
        ("open", "reached", [(2, 256, 1024, True)]),
        ("at most", "open", [(0, 1, 64, False)]),
        ("open", "at least", [(2, 128, 1024, False)]),
        ("at most", "at least", [(0, 1, 64, False), (1, 64, 128, True), (2, 128, 1024, False)]),
        ("at least", "open", [(0, 1, 16, True), (0, 16, 1024, False)]),
        ("open", "at most", [(2, 1, 512, False), (2, 512, 1024, True)]),
        ("at least", "reached", [(0, 1, 16, True), (0, 16, 256, False), (2, 256, 1024, True)]),
    ],
)
def test_a_regime_is_painted_where_its_ends_are_given(
    located: tuple[Curve, Regimes],
    until: str,
    start: str,
    expected: list[tuple[int, float, float, bool]],
) -> None:
    spans = sorted(regime_spans(having(located, until, start)), key=lambda span: span.low)
    assert spans == [RegimeSpan(*each) for each in expected]


@pytest.mark.parametrize("swapped", [False, True])
def test_no_two_regimes_are_painted_on_each_other(
    located: tuple[Curve, Regimes], swapped: bool
) -> None:
    for until, start in product(UNTIL.values(), FROM.values()):
        ends = (start, until) if swapped else (until, start)
        fit = replace(located[1], perfect_scaling_until=ends[0], maximal_parallelism_from=ends[1])
        spans = sorted(regime_spans(fit), key=lambda span: span.low)
        for first, second in pairwise(spans):
            assert first.high <= second.low, (ends, spans)


def test_a_quantity_has_a_value_only_beside_both_of_its_ends() -> None:
    """The table says "≥ 48,516": the figure marked 71,680."""
    for workload in ("dlrm", "deepseekv3_671b"):
        data = FigureData(
            Query(sources=[results.open("published")], where=f"workload = '{workload}'")
        )
        for fit in filter(None, data.regimes):
            for quantity in (fit.perfect_scaling_until, fit.maximal_parallelism_from):
                assert (quantity.value is not None) == quantity.reached
                assert interval(*quantity.ends)[0] in "≥≤o0123456789"


def written(ax: Any) -> tuple[Figure, list[str]]:
    figure = figure_of(ax)
    figure.draw_without_rendering()
    return figure, [t.get_text() for t in figure.findobj(Text) if t.get_visible() and t.get_text()]


@pytest.mark.parametrize(
    ("until", "start", "said"),
    [
        ("open", "open", set()),
        ("reached", "at least", {"perfect scaling", "diminishing returns", "maximal, bounded"}),
        ("at most", "reached", {"perfect, bounded", "diminishing returns", "maximal parallelism"}),
    ],
)
def test_regimes_are_named_in_the_legend_and_nowhere_else(
    located: tuple[Curve, Regimes], until: str, start: str, said: set[str]
) -> None:
    """Names above narrow regimes stood on each other."""
    figure, texts = written(figures.draw("steps", [located[0]], [having(located, until, start)]))
    names = {"perfect scaling", "diminishing returns", "maximal parallelism"}
    names |= {"perfect, bounded", "maximal, bounded"}
    assert names & {*texts} == said
    assert all(texts.count(name) == 1 for name in said)
    assert faults(figure) == []


def test_no_error_bar_goes_below_one_step() -> None:
    point = Point(batch_size=64, steps=4, minimum=4, fourth=40, trials=16, hits=4)
    assert point.bar == (1, 40)
    relative = replace(point, steps=0.5, minimum=0.5, fourth=4.0)
    assert relative.bar == (0.5, 4)
    ten = replace(point, estimator=BEST_OF_10, steps=3.0, spread=(0.4, 22.0))
    assert ten.bar == (1, 22)


TECHNIQUES = (
    '{"precision":"float32"}',
    '{"clip":1.0,"precision":"float32"}',
    '{"gradient_noise":0.01,"precision":"float32"}',
    '{"label_smoothing":0.1,"precision":"float32"}',
    '{"precision":"float32","weight_decay":0.001}',
    '{"ema":0.99,"precision":"float32"}',
    '{"ema":0.9,"precision":"float32"}',
    '{"precision":"float32","sam":0.05}',
)


def test_many_curves_are_named_whole_in_the_legend(plain_curve: Plain) -> None:
    """Names beside the strips were broken at each comma, and stood on each other."""
    groups = [
        {"workload": "w", "optimizer": "sgd", "schedule": schedule, "technique": technique}
        for technique, schedule in (
            *((each, "constant") for each in TECHNIQUES),
            (TECHNIQUES[0], "wsd"),
        )
    ]
    rng = np.random.default_rng(0)
    curves = [
        plain_curve(SIZES, [100 * (1 + 40 / size) * rng.uniform(0.9, 1.1) for size in SIZES],
                    group=group, label=str(i))
        for i, group in enumerate(groups)
    ]  # fmt: skip
    figure, texts = written(figures.draw("steps", curves))
    names = {"constant, gradient noise 0.01", "constant, weight decay 0.001", "constant", "wsd"}
    assert names <= {*texts}
    assert not [text for text in texts if "float32" in text or "…" in text]
    assert not [legend for ax in figure.axes if (legend := ax.get_legend())]
    assert [fault for fault in faults(figure) if "on each other" in fault] == []


def test_an_optimizer_has_one_style_wherever_it_is_drawn() -> None:
    assert {*OPTIMIZERS} == {*listed("optimizers")}
    styles = {(curve_style(i).colour, curve_style(i).marker) for i in OPTIMIZERS.values()}
    assert len(styles) == len(OPTIMIZERS)
    assert style_numbers(["nesterov", "sgd", "momentum"]) == {
        name: OPTIMIZERS[name] for name in ("nesterov", "sgd", "momentum")
    }
    assert style_numbers(["adam", "momentum, < 0.04"])["momentum, < 0.04"] == OPTIMIZERS["momentum"]
    # Of several curves the plain one keeps it, and what is not in the table takes what is free.
    numbers = style_numbers(["sgd, clip 1.0", "sgd", "mine", "momentum"])
    assert numbers["sgd"] == OPTIMIZERS["sgd"]
    assert numbers["momentum"] == OPTIMIZERS["momentum"]
    assert len({*numbers.values()}) == 4


def test_critical_batch_sizes_of_several_curves_are_in_the_legend(plain_curve: Plain) -> None:
    """A number stood at the mark of another curve, whose own number had no place."""
    curves = [
        plain_curve(SIZES, [least * (1 + at / size) for size in SIZES],
                    group={"optimizer": name}, label=name)
        for name, least, at in (("sgd", 100, 40), ("momentum", 98, 44))
    ]  # fmt: skip
    fits = [regimes(curve) for curve in curves]
    figure, texts = written(figures.draw("tradeoff", curves, fits))
    for fit in fits:
        assert fit.critical_batch_size.value is not None
        assert f"{fit.label} ({fit.critical_batch_size.value:.0f})" in texts
        assert f"{fit.critical_batch_size.value:.0f}" not in texts
    assert any(
        "critical batch size (in brackets)" in [text.get_text() for text in legend.get_texts()]
        for legend in figure.findobj(Legend)
    )
    (critical,) = (fits[0].critical_batch_size.value,)
    _, alone = written(figures.draw("tradeoff", curves[:1], fits[:1]))
    assert any(text.endswith(f"({critical:.0f})") for text in alone)
    assert "critical batch size (in brackets)" in alone
