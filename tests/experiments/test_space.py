"""Scales: bounds, inverse maps, and what each is uniform in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import schedules
from experiments.search.domains import domain_of
from experiments.search.space import Dimension

UNIT = st.floats(0, 1, exclude_max=True)
DIMENSIONS = st.one_of(
    st.tuples(st.just("linear"), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(
        lambda t: Dimension.parse("linear", [t[1], t[1] + t[2]])
    ),
    st.tuples(st.floats(-12, 5), st.floats(0.01, 8)).map(
        lambda t: Dimension.parse("log", [10 ** t[0], 10 ** (t[0] + t[1])])
    ),
    st.tuples(st.floats(-3, -0.05), st.floats(0.05, 3)).map(
        lambda t: Dimension.parse("reverse_log", [1 - 10 ** t[0], 1 - 10 ** (t[0] - t[1])])
    ),
    st.tuples(st.integers(-1000, 1000), st.integers(0, 1000)).map(
        lambda t: Dimension.parse("integer", [t[0], t[0] + t[1]])
    ),
)


@given(DIMENSIONS, UNIT)
def test_values_stay_within_their_bounds(dimension, u):
    low, high = dimension.bounds
    assert low <= dimension.value(u) <= high


@given(DIMENSIONS, st.lists(UNIT, min_size=2, max_size=2))
def test_values_rise_with_u(dimension, us):
    low, high = sorted(us)
    assert dimension.value(low) <= dimension.value(high)


@given(DIMENSIONS, UNIT)
def test_unit_is_the_inverse(dimension, u):
    value = dimension.value(u)
    if dimension.scale == "integer":
        low, high = dimension.bounds
        assert abs(dimension.unit(value) - u) <= 0.5 / (high - low + 1) + 1e-9
    else:
        # The value is rounded to nine figures: coarse where the range is narrow beside its size.
        assert dimension.value(min(max(dimension.unit(value), 0), 1)) == pytest.approx(
            value, rel=1e-7, abs=1e-9
        )


@pytest.mark.parametrize(
    ("scale", "bounds", "middle"),
    [
        ("linear", [0, 10], 5.0),
        ("log", [1e-4, 1e2], 0.1),
        ("reverse_log", [0.9, 0.999], 0.99),
        ("integer", [1, 9], 5),
        ("discrete", [0, 0.01, 0.1], 0.01),
    ],
)
def test_the_middle_of_each_scale(scale, bounds, middle):
    dimension = Dimension.parse(scale, bounds)
    assert dimension.value(0.5) == pytest.approx(middle)
    assert dimension.unit(dimension.value(0.5)) == pytest.approx(0.5)
    assert dimension.notation() == {scale: bounds}
    assert Dimension.parse(scale, dimension.notation()[scale]) == dimension


def test_the_ends_are_exact():
    dimension = Dimension.parse("log", [1e-4, 10])
    assert dimension.value(0) == 1e-4
    assert dimension.unit(1e-4) == 0
    assert dimension.unit(10) == 1
    assert dimension.unit(100) > 1  # outside, and told so
    assert dimension.value(math.nextafter(1, 0)) == 10


def test_values_have_nine_figures_so_that_machines_agree():
    for scale, bounds in (("log", [1e-4, 10]), ("linear", [0, 7]), ("reverse_log", [0.5, 0.999])):
        value = float(Dimension.parse(scale, bounds).value(0.123456789))
        digits = repr(1 - value if scale == "reverse_log" else value)
        assert float(f"{float(digits):.8e}") == pytest.approx(float(digits), rel=1e-12)
        assert len(repr(value)) <= 14


def test_integers_are_integers_and_all_are_drawn_alike():
    dimension = Dimension.parse("integer", [1.0, 4])
    drawn = [dimension.value(i / 100) for i in range(100)]
    assert all(type(value) is int for value in drawn)
    assert [drawn.count(value) for value in (1, 2, 3, 4)] == [25] * 4


def test_choices_keep_their_types():
    dimension = Dimension.parse("discrete", [0, 0.5, "cosine", True])
    drawn = [dimension.value(i / 4) for i in range(4)]
    assert [(type(v), v) for v in drawn] == [(int, 0), (float, 0.5), (str, "cosine"), (bool, True)]


@given(DIMENSIONS, st.sampled_from(["low", "high"]))
def test_an_extended_range_has_as_much_again_on_one_side(dimension, side):
    grown = dimension.extended(side)
    if grown is None:  # 1 - 10**-15 has no neighbour that is nearer to 1
        assert dimension.scale == "reverse_log"
        return
    assert grown.scale == dimension.scale
    moved, kept = (0, 1) if side == "low" else (1, 0)
    assert grown.bounds[kept] == dimension.bounds[kept]
    assert (grown.bounds[moved] < dimension.bounds[moved]) == (side == "low")
    assert grown.extent == pytest.approx(2 * dimension.extent, rel=1e-3)
    half = 0.5 if dimension.scale != "integer" else 0.5 + 0.5 / grown.extent * (2 * kept - 1)
    assert grown.unit(dimension.bounds[moved]) == pytest.approx(half, abs=1e-3)


@given(DIMENSIONS, st.sampled_from(["low", "high"]), UNIT)
def test_an_extended_range_holds_the_old_one_as_densely(dimension, side, u):
    """A share u of the unit interval is as long, in the scale, as it was times the growth."""
    grown = dimension.extended(side)
    if grown is None:
        return
    value = dimension.value(u)
    assert dimension.holds(value)
    assert grown.holds(value)
    back = grown.value(min(max(grown.unit(value), 0), 1))
    assert back == pytest.approx(value, rel=1e-6, abs=1e-7)
    origin = dimension.value(0)
    moved = (grown.unit(value) - grown.unit(origin)) * grown.extent
    here = (dimension.unit(value) - dimension.unit(origin)) * dimension.extent
    assert moved == pytest.approx(here, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "scale", "bounds", "side", "expected"),
    [
        ("learning_rate", "log", [1e-3, 1], "low", [1e-6, 1]),
        ("learning_rate", "log", [1e-4, 10], "high", [1e-4, 1e6]),
        ("learning_rate", "linear", [0.1, 1], "low", [0, 1]),
        ("learning_rate", "linear", [0, 1], "low", None),
        ("learning_rate", "log", [1e-150, 1e150], "high", None),
        ("momentum", "reverse_log", [0.9, 0.99], "high", [0.9, 0.999]),
        ("momentum", "reverse_log", [0.9, 0.99], "low", [0, 0.99]),
        ("momentum", "reverse_log", [0, 0.99], "low", None),
        ("momentum", "reverse_log", [0.5, 1 - 1e-15], "high", None),
        ("momentum", "linear", [0.5, 0.9], "high", [0.5, 0.9999995]),
        ("momentum", "linear", [0.5, 0.999], "high", None),
        ("beta2", "log", [0.9, 0.99], "high", [0.9, 0.9999999]),
        ("decay", "linear", [0.5, 1], "high", None),
        ("decay", "linear", [0.5, 1], "low", [0, 1]),
        ("decay_steps", "integer", [10, 100], "low", [1, 100]),
        ("warmup", "linear", [0, 0.2], "high", [0, 0.4]),
        ("warmup", "linear", [0, 0.6], "high", [0, 1]),
        ("label_smoothing", "linear", [0, 0.2], "low", None),
        ("width", "integer", [4, 8], "high", [4, 13]),
        ("width", "integer", [4, 8], "low", [1, 8]),
        ("width", "integer", [1, 8], "low", None),
        ("shift", "integer", [0, 8], "low", None),
        ("shift", "integer", [-4, 4], "low", [-13, 4]),
        ("rate", "linear", [0.1, 0.3], "low", [0, 0.3]),
        ("offset", "linear", [-0.1, 0.3], "low", [-0.5, 0.3]),
        ("kind", "discrete", [1, 2, 3], "high", None),
    ],
)
def test_ranges_end_where_their_domain_does(name, scale, bounds, side, expected):
    dimension = Dimension.parse(scale, bounds)
    domains = schedules.get("linear").domains
    domain = domain_of(name, dimension.bounds[0], domains, whole=scale == "integer")
    grown = dimension.extended(side, domain)
    if expected is None:
        assert grown is None
    else:
        assert grown is not None
        assert grown.bounds == pytest.approx(tuple(expected), rel=1e-9)
        assert float(grown.value(0)) in domain
        assert float(grown.value(math.nextafter(1, 0))) in domain


@pytest.mark.parametrize(
    ("scale", "bounds", "count", "expected"),
    [
        ("linear", [0, 1], 3, [0, 0.5, 1]),
        ("log", [1e-2, 1], 1, [0.1]),
        ("log", [1e-2, 1], 2, [1e-2, 1]),
        ("reverse_log", [0.9, 0.999], 3, [0.9, 0.99, 0.999]),
        ("integer", [1, 10], 4, [1, 4, 7, 10]),
        ("integer", [1, 3], 8, [1, 2, 3]),
        ("integer", [2, 2], 2, [2]),
        ("integer", [-3, 4], 3, [-3, 1, 4]),
        ("discrete", ["a", 2], 5, ["a", 2]),
    ],
)
def test_levels(scale, bounds, count, expected):
    found = Dimension.parse(scale, bounds).levels(count)
    assert found == (expected if scale == "discrete" else pytest.approx(expected))


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(2, 70))
def test_levels_of_whole_numbers_are_distinct(low, width, count):
    found = Dimension.parse("integer", [low, low + width]).levels(count)
    assert len(set(found)) == len(found) == min(count, width + 1)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (low, low + width)
