"""Power laws across curves: exponents that are known, Zhang et al.'s own, and wrong questions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis import Curve, Regimes, laws, regimes
from analysis.fit.laws import line
from results.errors import ResultsError
from results.targets.target import Target
from tests.analysis.test_definitions import C4, STEPS, THEIRS

Plain = Callable[..., Curve]
SIZES = [2.0**i for i in range(18)]
WIDTHS = (16, 64, 256, 1024)


def curves_of(
    plain: Plain, widths: tuple[int, ...] = WIDTHS, power: float = 0.5, **group: object
) -> list[Curve]:
    """Curves whose critical batch size is 20 · width^power, with 3 % of noise."""
    rng = np.random.default_rng(3)
    made = []
    for width in widths:
        critical = 20 * abs(width) ** power
        steps = 500 * (1 + critical / np.array(SIZES)) * np.exp(rng.normal(0, 0.03, len(SIZES)))
        given = {"optimizer": "sgd", **group, "width": width}
        made.append(plain(SIZES, steps, group=given, label=f"{given['optimizer']} {width}"))
    return made


def located(curves: list[Curve]) -> list[Regimes | None]:
    return [regimes(curve) for curve in curves]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "scatter", "least", "most"),
    [(3, 0.0, 0.95, 1.0), (4, 0.2, 0.83, 0.95), (6, 0.0, 0.9, 0.99), (6, 0.3, 0.86, 0.94)],
)
def test_the_interval_of_an_exponent_covers(count, scatter, least, most) -> None:
    """Points of unequal, known errors about a line, with scatter of their own or without it:
    where there is none the interval is too wide, the more so the fewer curves there are."""
    rng = np.random.default_rng(11)
    x, errors = np.log(4.0 ** np.arange(count)), np.linspace(0.03, 0.12, count)
    held, intercepts = 0, 0
    for _ in range(600):
        off = rng.normal(0, errors) + rng.normal(0, scatter, count)
        found = line(x, 2.0 + 0.47 * x + off, errors)
        held += abs(found.slope - 0.47) <= found.slope_by
        intercepts += abs(found.intercept - 2.0) <= found.intercept_by
    assert least <= held / 600 <= most
    assert least <= intercepts / 600 <= most


@pytest.mark.slow
@pytest.mark.parametrize("equal", [True, False], ids=["equal ranges", "unequal ranges"])
def test_from_noisy_curves_to_a_known_exponent(plain_curve: Plain, equal: bool) -> None:
    """25 laws of five curves each, from their points: B_crit = 40 · size^0.47. Critical batch sizes
    of the tested range would depend on the range; asymptotes of the knees do not."""
    rng = np.random.default_rng(5)
    held, slopes = [], []
    for _ in range(25):
        made = []
        for i in range(5):
            critical = 40 * (4.0**i) ** 0.47
            last = 17 if equal else 14 + i
            sizes = np.array([2.0**j for j in range(last)])
            steps = 500 * (1 + critical / sizes) * np.exp(rng.normal(0, 0.05, last))
            made.append(plain_curve(sizes, steps, group={"width": 4**i}, label=str(i)))
        ((law, _),) = laws(made, located(made), "width")
        assert law.exponent.value is not None
        held.append(law.exponent.holds(0.47))
        slopes.append(law.exponent.value)
    assert np.mean(slopes) == pytest.approx(0.47, abs=0.02)
    assert np.mean(held) >= 0.87


def test_a_law_is_of_asymptotes_with_the_widths_of_the_tested_range(plain_curve: Plain) -> None:
    """Exact knees of which each ends another number of doublings beyond its corner."""
    made = []
    for i, last in enumerate((15, 14, 16)):
        sizes = np.array([2.0**j for j in range(last)])
        steps = 500 * (1 + 40 * 2.0**i / sizes)
        made.append(plain_curve(sizes, steps, group={"width": 4**i}, label=str(i)))
    fits = located(made)
    ((law, _),) = laws(made, fits, "width")
    assert law.exponent.value == pytest.approx(0.5, abs=1e-3)
    assert law.coefficient.value == pytest.approx(40, rel=1e-3)
    first = fits[0]
    assert first is not None
    # Over the tested range it is E(1) / S(16384).
    assert first.critical_batch_size.value == pytest.approx(41 / (1 + 40 / 16384), rel=1e-3)
    ((law, _),) = laws(made, fits, "width", quantity="min_steps")
    assert law.coefficient.value == pytest.approx(500, rel=1e-3)
    assert law.exponent.high - law.exponent.low > 0.01  # type: ignore[operator]


def test_errors_are_read_at_the_level_of_the_regimes(plain_curve: Plain) -> None:
    """Regimes at 50 % have narrower intervals, and their law is about the same."""
    made = curves_of(plain_curve)
    fits: list[list[Regimes | None]]
    fits = [located(made), [regimes(curve, level=0.5) for curve in made]]
    ((usual, _),), ((law, _),) = (laws(made, each, "width", level=0.8) for each in fits)
    width = law.exponent.high - law.exponent.low  # type: ignore[operator]
    assert width == pytest.approx(usual.exponent.high - usual.exponent.low, rel=0.25)  # type: ignore[operator]


def test_scatter_is_found_where_there_is_some() -> None:
    rng = np.random.default_rng(2)
    x, errors = np.linspace(0, 8, 400), np.full(400, 0.1)
    exact = line(x, 1 + 0.5 * x + rng.normal(0, 0.1, 400), errors)
    assert exact.scatter < 0.05
    wide = line(x, 1 + 0.5 * x + rng.normal(0, np.hypot(0.1, 0.3), 400), errors)
    assert wide.scatter == pytest.approx(0.3, rel=0.1)
    assert (wide.intercept, wide.slope) == pytest.approx((1.0, 0.5), abs=0.05)


def test_zhang_and_others_law(plain_curve: Plain) -> None:
    """93.2 · N^0.47 with N in millions, from their definition on their points."""
    curves = [
        plain_curve(C4, STEPS[name], group={"model": f"transformer_{name.lower()}"}, label=name)
        for name in THEIRS
    ]
    found = [regimes(curve, definition="zhang2024") for curve in curves]
    ((law, rows),) = laws(curves, found, "model")
    assert rows == (0, 1, 2)
    assert law.quantity == "critical_batch_size_zhang2024"
    assert law.sizes == (85e6, 151e6, 604e6)
    assert law.exponent.value == pytest.approx(0.47, abs=0.01)
    assert law.exponent.low < 0.47 < law.exponent.high  # type: ignore[operator]
    assert law.notes == (
        "if every curve lay on the law exactly, its exponent would be 0.47 [0.41, 0.54]: "
        "the curves do not contradict that",
    )
    millions = {f"transformer_{name.lower()}": float(name[:-1]) for name in THEIRS}
    ((law, _),) = laws(curves, found, "model", sizes=millions)
    assert law.coefficient.value == pytest.approx(93.2, rel=0.05)
    assert law.exponent.value == pytest.approx(0.47, abs=0.01)


@pytest.mark.slow
def test_a_law_of_each_algorithm(plain_curve: Plain) -> None:
    curves = [*curves_of(plain_curve), *curves_of(plain_curve, power=0.2, optimizer="adam")]
    (sgd, first), (adam, second) = laws(curves, located(curves), "fields.width")
    assert (first, second) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (sgd.group, adam.group) == ({"optimizer": "sgd"}, {"optimizer": "adam"})
    assert sgd.exponent.holds(0.5)
    assert adam.exponent.holds(0.2)
    assert sgd.exponent.high - sgd.exponent.low < 0.3  # type: ignore[operator]
    assert sgd.coefficient.holds(20)
    assert sgd.sentence.startswith("critical batch size of sgd = ")
    assert "· fields.width^0.5" in sgd.sentence
    assert sgd.to_dict()["exponent"]["value"] == sgd.exponent.value


def test_against_a_target_and_what_goes_along(plain_curve: Plain) -> None:
    curves = [
        plain_curve(
            SIZES,
            [500 * (1 + 40 / (error * size)) for size in SIZES],
            group={"model": str(error)},
            label=f"{error}",
            target=Target(metric="validation_error", value=error),
        )
        for error in (0.4, 0.2, 0.1)
    ]
    ((law, _),) = laws(curves, located(curves), "target")
    assert law.exponent.value == pytest.approx(-1, abs=0.01)
    assert law.notes[0] == "model change along with target"
    ((law, _),) = laws(curves, located(curves), "target", quantity="min_steps")
    assert law.exponent.value == pytest.approx(0, abs=0.01)


def test_bounded_curves_are_left_out_and_named(plain_curve: Plain) -> None:
    curves = curves_of(plain_curve, (16, 64, 256, 1024, 2**30))
    ((law, _),) = laws(curves, located(curves), "width")
    assert law.sizes == (16, 64, 256, 1024)
    assert any("sgd 1073741824" in note and "leaves out" in note for note in law.notes)


@pytest.mark.parametrize(
    ("against", "message", "hint"),
    [
        ("widht", "no column 'widht'", "did you mean width?"),
        ("depth_of_it", "no column 'depth_of_it'", "columns: optimizer, width, target"),
        ("optimizer", "optimizer of sgd 16 is 'sgd', not a size", "transformer_85m"),
        ("target", "target of sgd 16 is None", "a number"),
    ],
)
def test_wrong_columns(plain_curve: Plain, against: str, message: str, hint: str) -> None:
    curves = curves_of(plain_curve)
    with pytest.raises(ResultsError, match=message) as caught:
        laws(curves, [None] * 4, against)
    assert hint in str(caught.value.hint)


def test_too_few_sizes_and_other_wrong_arguments(plain_curve: Plain) -> None:
    curves = curves_of(plain_curve, (16, 64))
    with pytest.raises(ResultsError, match=r"needs 3 sizes .* and there are 2"):
        laws(curves, located(curves), "width")
    with pytest.raises(ResultsError, match="no quantity 'steps'"):
        laws(curves, [None, None], "width", quantity="steps")
    with pytest.raises(ResultsError, match="not a size") as caught:
        laws(curves, [None, None], "width", sizes={"16": 1.0})
    assert caught.value.hint == "sizes has 16"
    negative = curves_of(plain_curve, (16, -1))
    with pytest.raises(ResultsError, match="is -1, not a size"):
        laws(negative, [None, None], "width")
