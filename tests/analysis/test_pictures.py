"""The pictures that stand in a report until its script has run."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from PIL import Image

import results
from analysis.figure_data import FigureData, Query
from analysis.figures.drawing.optimizer_styles import STYLES
from analysis.report import pictures
from analysis.report.panels import View
from analysis.report.pictures import picture
from tests import reported


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    root = reported.write(tmp_path_factory.mktemp("pictures") / "runs", measured=False)
    made = FigureData(Query(sources=[results.open(root)]))
    pairs = list(zip(made.curves, made.regimes, strict=True))
    return View(target=pairs[0][0].target, pairs=pairs, recorded=True, names={})


def seen(address: str) -> Image.Image:
    start, _, data = address.partition(",")
    assert start == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA")


def has(image: Image.Image, colour: str) -> bool:
    """Some hundred pixels of that colour, or of one that no eye tells from it."""
    wanted = np.array([255 * part for part in to_rgb(colour)])
    pixels = np.asarray(image).reshape(-1, 4).astype(float)
    near = (np.abs(pixels[:, :3] - wanted).max(axis=1) < 12) & (pixels[:, 3] > 200)
    return bool(near.sum() > 100)


@pytest.mark.slow
def test_each_curve_has_the_style_of_its_number(view: View) -> None:
    colours = [style.colour for style in STYLES]
    image = seen(picture(view, [2, 1]))
    assert image.size[0] == 1400
    assert [i for i in range(4) if has(image, colours[i])] == [1, 2]
    # See-through: the page's own paper is behind it.
    pixel = image.getpixel((2, 2))
    assert isinstance(pixel, tuple)
    assert pixel[3] == 0


def test_only_the_first_curves_are_drawn(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_DRAWN", 1)
    alone = replace(view, pairs=view.pairs[:1])
    assert picture(view, [0, 1]) == picture(alone, [0])


@pytest.mark.slow
def test_the_users_settings_and_figures_are_left_alone(view: View) -> None:
    ours = picture(view, [0, 1])
    figure = plt.figure()
    with plt.style.context("dark_background"):
        before = dict(mpl.rcParams)
        assert picture(view, [0, 1]) == ours
        assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == [figure.number]
    plt.close(figure)
