"""Published curves, put where their authors say that the regimes lie."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.test_definitions import THEIRS
from validation import goldens
from validation.goldens import Golden, scatter

BOUNDED = {"regimes lm1b-lstm, nesterov"}
"""What cannot be said: from batch size 16 to 64 its steps fall by 2.6, not by 4."""


@pytest.fixture(scope="module")
def found() -> dict[str, Golden]:
    return {one.key: one for one in goldens.goldens()}


@pytest.mark.slow
def test_the_same_numbers_are_held_against_as_elsewhere(found: dict[str, Golden]) -> None:
    for size, value in THEIRS.items():
        assert found[f"zhang {size.lower()}"].theirs == f"{value:,.2f}"


def test_what_agrees_and_what_does_not(found: dict[str, Golden]) -> None:
    assert len(found) > 25
    assert [key for key, one in found.items() if one.agrees is not None and not one.agrees] == []
    assert {key for key, one in found.items() if one.agrees is None} == BOUNDED
    assert "4 times the batch size takes 2.6 times fewer" in str(found[min(BOUNDED)].why)


def test_every_statement_has_its_place_and_rule(found: dict[str, Golden]) -> None:
    for one in found.values():
        assert one.place
        assert one.rule
        assert one.ours
        if "Shallue et al. 2019," in one.place:  # of the text, which is remembered
            assert one.place.endswith("(r)")


def test_the_section_has_a_row_for_each(found: dict[str, Golden]) -> None:
    text = goldens.section()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == len(found) + 2
    said = f"{len(found) - len(BOUNDED)} of {len(found)} agree; {len(BOUNDED)} cannot be said"
    assert said in " ".join(text.split())
    assert max(map(len, text.split("\n\n")[0].splitlines())) <= 100


def test_scatter_about_the_knee_of_bend_one() -> None:
    sizes = np.tile(2.0 ** np.arange(12), 200)
    steps = 100 * (1 + 40 / sizes)
    assert scatter(sizes, steps) == pytest.approx(0, abs=1e-6)
    noisy = steps * np.exp(np.random.default_rng(1).normal(0, 0.1, len(sizes)))
    assert scatter(sizes, noisy) == pytest.approx(0.1, rel=0.05)


def test_run_noise_of_known_runs() -> None:
    rng = np.random.default_rng(4)
    parts = [scale * (1 + 0.1 * rng.normal(size=400)) for scale in (1.0, 10.0, 100.0)]
    found = goldens.noise_of(parts)
    assert found.low < 10 < found.high
    assert found.high - found.low < 1.5
    assert found.least <= found.value <= found.most
    assert (found.sizes, found.runs) == (3, 1200)
    same = goldens.noise_of([np.full(5, 3.0), np.full(4, 2.0)])
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_the_outlier_is_no_run() -> None:
    assert goldens.noise("gpt3").most < 10
