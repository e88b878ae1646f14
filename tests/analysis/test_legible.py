"""The checker of figures finds what cannot be read, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.analysis.legible import faults, figure_of

pytestmark = pytest.mark.usefixtures("closed_figures")


def figure(change: Callable[[Axes], object] = lambda _: None) -> Figure:
    made = Figure(figsize=(4, 3), layout="constrained")
    ax = made.add_subplot(xlabel="batch size", ylabel="steps", title="a title")
    ax.plot([1, 2, 3], [1, 4, 2], "o", label="sgd")
    ax.legend(loc="upper right")
    change(ax)
    return made


def far(ax: Axes) -> None:
    ax.set_title("a title that is far too long for a figure of four inches " * 2)


def ticks(ax: Axes) -> None:
    ax.set_xticks([2, 2.02], ["sixteen", "seventeen"])


def over(ax: Axes) -> None:
    ax.legend(loc="center", bbox_to_anchor=(0.5, 0.98))


def beside(ax: Axes) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.3))
    ax.set_in_layout(False)


def annotated(ax: Axes) -> None:
    ax.text(2, 4, "best", ha="center", va="center")


def turned(ax: Axes) -> None:
    ax.set_xticks([2, 2.02], ["sixteen", "seventeen"], rotation=60)


def through(ax: Axes) -> None:
    ax.plot([1, 3], [3.86, 3.86], color="#112233")


def bars(ax: Axes) -> None:
    ax.errorbar([2.95], [2], yerr=np.array([[1], [1.9]]), linestyle="none", ecolor="#112233")


def near(ax: Axes) -> None:
    ax.plot([2.6], [3.8], "o", markersize=24, label="large")


def colours(ax: Axes) -> None:
    figure = figure_of(ax)
    mesh = ax.pcolormesh([[0, 1], [1, 2]], zorder=-1)
    figure.colorbar(mesh, ax=ax)
    figure.draw_without_rendering()
    ax.set_title("a title that is not long for the page", loc="left", y=0.9)
    figure.set_layout_engine("none")
    figure.axes[1].set_position((0.5, 0.2, 0.1, 0.7))


def edge(ax: Axes) -> None:
    ax.plot([1.6], [1.02], "^", color="#112233", transform=ax.transAxes, clip_on=False)


def behind(ax: Axes, **ground: object) -> None:
    ax.plot([1, 3], [3.86, 3.86], color="#112233", zorder=1)
    ax.legend(loc="upper right", **ground)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (far, "is cut by the page"),
        (ticks, "'sixteen' and 'seventeen' are on each other"),
        (turned, "'sixteen' and 'seventeen' are on each other"),
        (over, "marks of 'sgd' are under the legend of 'sgd'"),
        (beside, "the legend of 'sgd' is cut by the page"),
        (annotated, "'best' is over a mark"),
        (through, "a line of #112233 is under the legend of 'sgd'"),
        (bars, "a line of #112233 is under the legend of 'sgd'"),
        (near, "marks of 'large' are under the legend of 'sgd'"),
        (colours, "'a title that is not long for the page' is on another panel"),
        (edge, "a mark of #112233 is cut by the page"),
        (partial(behind, frameon=False), "a line of #112233 is under the legend of 'sgd'"),
    ],
)
def test_faults_are_reported(change: Callable[[Axes], object], said: str) -> None:
    assert any(said in each for each in faults(figure(change)))


def test_what_is_in_order_has_none() -> None:
    assert faults(figure()) == []
    apart = figure(lambda ax: ax.set_xticks([1.5, 1.7, 1.9], ["sixteen"] * 3, rotation=60))
    assert faults(apart) == []  # their upright boxes meet, the words do not
    assert faults(figure(partial(behind, frameon=True))) == []
    beyond = figure(lambda ax: ax.set_xticks([2, 50], ["two", "fifty"]) or ax.set_xlim(1, 3))
    assert faults(beyond) == []
