"""Techniques against plain curves: which is whose baseline, p-values, corrections, sentences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis import Curve
from analysis.figure_data import FigureData, Query
from analysis.fit.comparisons import Pair, log_ratio
from analysis.fit.regimes import regimes, too_few
from analysis.notes import Note, codes
from analysis.techniques.baselines import difference, plain, plain_name
from analysis.techniques.corrections import CORRECTIONS, Controls, corrected, dunnett, holm, named
from analysis.techniques.p_values import LEVELS, P_VALUES, p_value
from analysis.techniques.table import table
from results.errors import ResultsError
from tests.analysis.techniques_compared import technique_curve

PLAIN = technique_curve(("sgd", {}))
CLIP = technique_curve(("sgd", {"clip": 1.0}), seed=1)
FURTHER = technique_curve(("sgd", {"clip": 1.0}), critical=240.0, seed=2)


def baselines(curves: list[Curve]) -> list[str | None]:
    return [plain_name(curves[each[0]], curves) if each else None for each in plain(curves)]


def test_which_curve_is_whose_baseline() -> None:
    curves = [
        technique_curve(algorithm, **group)
        for algorithm, group in (
            (("momentum", {}), {}),
            (("sgd", {}), {}),
            (("sgd", {"clip": 1.0, "ema": 0.9}), {}),
            (("momentum", {"precision": "bfloat16"}), {}),
            (("momentum", {}), {"schedule": "cosine"}),
            (("momentum", {"ema": 0.9}), {"schedule": "cosine"}),
            (("sgd", {}), {"width": 64}),
            (("adam", {"ema": 0.9}), {"width": 64}),
        )
    ]
    own = [baselines(curves[:6]), baselines(curves[6:])]
    assert own == [
        ["sgd, constant", None, "sgd, constant", "momentum, constant", "momentum, constant",
         "momentum, cosine"],
        [None, "sgd"],
    ]  # fmt: skip
    # Another width is another family: nothing of it is compared with the others.
    assert plain(curves)[6:] == [[], [6]]
    assert difference(curves[2], curves[1]) == "clip 1, ema 0.9"
    assert difference(curves[3], curves[0]) == "precision bfloat16"
    assert difference(curves[0], curves[1]) == "momentum"


@pytest.mark.slow
def test_p_is_the_level_at_which_the_interval_reaches_1() -> None:
    """At 1 - p the ends of the interval touch 1."""
    for critical in (66.0, 80.0, 90.0):
        curve = technique_curve(("sgd", {"clip": 1.0}), critical=critical, seed=2)
        pair = Pair.of(regimes(curve), regimes(PLAIN))
        p = p_value(*pair.ends("critical_batch_size", LEVELS))
        assert p is not None
        assert P_VALUES[-1] < p < 1
        _, low, high = log_ratio(*pair.ends("critical_batch_size", [1 - p]))
        assert min(abs(low[0]), abs(high[0])) < 0.03 * (high[0] - low[0])


@pytest.mark.slow
def test_p_is_below_a_tenth_where_the_interval_leaves_out_1() -> None:
    rows = table(
        FigureData.of([PLAIN, *(technique_curve(("sgd", {f"t{i}": 1}), critical=60 + 4.0 * i,
                                                seed=i + 3) for i in range(8))]),
        correction="none",
    ).rows  # fmt: skip
    for row in rows:
        for ratio in row.ratios.values():
            if ratio.p is not None:
                assert (ratio.p < 0.1) == (not ratio.interval.holds(1.0))
                assert ratio.differs(0.9) == (ratio.p < 0.1)


def test_p_of_open_intervals() -> None:
    count = len(LEVELS)
    known = np.zeros(count), np.full(count, -0.1), np.full(count, 0.1)
    unknown = (np.full(count, np.nan),) * 3
    assert p_value(unknown, known) is None
    bound = np.full(count, np.nan), np.full(count, 0.3), np.full(count, np.nan)
    assert p_value(bound, known) == P_VALUES[-1]
    assert p_value(known, bound) == P_VALUES[-1]
    low = np.where(np.array(LEVELS) <= 0.95, 0.3, np.nan)  # open from 0.98 on
    assert p_value((np.full(count, 0.4), low, bound[2]), known) == pytest.approx(0.05)
    assert p_value((np.full(count, np.nan), np.full(count, -1.0), bound[2]), known) == 1.0


def test_holm_by_its_definition() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values = rng.uniform(0, 0.2, 7)
        adjusted = holm(p_values)
        for alpha in (0.01, 0.05, 0.1):
            rejected = set()
            for step, i in enumerate(np.argsort(p_values)):
                if p_values[i] > alpha / (7 - step):
                    break
                rejected.add(int(i))
            assert rejected == {*np.flatnonzero(adjusted <= alpha)}


def dunnett_draws(arms: int, tables: int, baseline: float, seed: int) -> tuple[np.ndarray, float]:
    """Two-sided p-values of arms that equal their baseline, (tables, arms), and the baseline's
    share of the variance, its noise being ``baseline`` times an arm's."""
    rng = np.random.default_rng(seed)
    errors = rng.normal(size=(tables, arms)) - baseline * rng.normal(size=(tables, 1))
    share = baseline**2 / (1 + baseline**2)
    return 2 * stats.norm.sf(np.abs(errors) / np.sqrt(1 + baseline**2)), share


def over_baseline(arms: int, share: float) -> Controls:
    return Controls(group=np.zeros(arms, dtype=int), shared=np.full(arms, share))


@pytest.mark.parametrize("baseline", [0.6, 1.0, 3.0])
def test_the_error_of_a_table_over_a_noisy_baseline(baseline: float) -> None:
    """Tables without any difference: a false positive in at most one of ten by Dunnett's method,
    in fewer by Holm's, and in far more without a correction."""
    arms, tables = 12, 600
    p_values, share = dunnett_draws(arms, tables, baseline, seed=3)
    controls = over_baseline(arms, share)
    errors = {
        name: float(np.mean([each.of(p, controls).min() <= 0.1 for p in p_values]))
        for name, each in CORRECTIONS.items()
    }
    deviation = np.sqrt(0.1 * 0.9 / tables)
    assert abs(errors["dunnett"] - 0.1) < 3 * deviation
    assert errors["holm"] < errors["dunnett"] - (0 if baseline < 1 else deviation)
    assert errors["none"] > 0.2


def test_dunnetts_p_values_are_scipys() -> None:
    """In their first step, of many observations each: the least of a table."""
    rng = np.random.default_rng(0)
    *arms, control = rng.normal(size=(7, 400)) + np.linspace(0, 0.15, 7)[::-1, None]
    by_scipy = stats.dunnett(*arms, control=control, rng=np.random.default_rng(1)).pvalue
    scale = np.sqrt(2 / 400 * np.mean([each.var(ddof=1) for each in (*arms, control)]))
    t = [(each.mean() - control.mean()) / scale for each in arms]
    p_values = 2 * stats.t.sf(np.abs(t), 7 * 399)
    adjusted = dunnett(p_values, over_baseline(6, 0.5))
    least = int(np.argmin(p_values))
    assert adjusted[least] == pytest.approx(by_scipy[least], abs=2e-4)
    assert (adjusted <= by_scipy + 2e-4).all()  # it steps down


def test_dunnetts_lies_between_holms_and_none() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        p_values = rng.uniform(0, 0.2, 8)
        controls = Controls(group=rng.integers(0, 3, 8), shared=rng.uniform(0, 1, 8))
        adjusted = dunnett(p_values, controls)
        assert (adjusted <= holm(p_values) + 1e-9).all()
        assert (adjusted >= p_values).all()
        assert (np.diff(adjusted[np.argsort(p_values)]) >= 0).all()
    # Without a common control it is as strict as if all were independent; alone it is none.
    apart = dunnett(p_values, Controls.none(8))
    assert apart == pytest.approx(holm(p_values))
    independent = dunnett(np.array([0.02, 0.5]), over_baseline(2, 0.0))
    assert independent[0] == pytest.approx(1 - 0.98**2, abs=1e-9)
    # All the error is the baseline's: there is one hypothesis.
    assert dunnett(np.array([0.02, 0.02]), over_baseline(2, 1.0))[0] == pytest.approx(0.02, rel=0.2)


@pytest.mark.slow
def test_the_share_of_the_baseline_follows_from_both_intervals() -> None:
    """So that a table says what its baseline leaves to its arms."""
    noisy = technique_curve(("sgd", {}), noise=0.1)
    curves = [noisy, CLIP, technique_curve(("sgd", {"ema": 0.9}), seed=5)]
    names = ["min_steps"]
    by = {
        name: table(FigureData.of(curves), correction=name, quantities=names)
        for name in ("dunnett", "holm", "none")
    }
    least = {
        name: min(r.ratios["min_steps"].corrected or 1 for r in t.rows) for name, t in by.items()
    }
    assert least["none"] < least["dunnett"] < least["holm"]
    assert by["dunnett"].sentence == "p-values are corrected for 2 ratios by Dunnett's method"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("experiment = 'digits'", "holm"),
        ("experiment = 'techniques-digits' AND optimizer IN ('sgd', 'adam') AND schedule = "
         "'constant' AND technique LIKE '{_precision_:_float32_}'", "dunnett"),
    ],
)  # fmt: skip
def test_a_design_with_one_baseline_is_corrected_as_such(where: str, name: str) -> None:
    assert table(FigureData(Query(sources=["own"], where=where))).correction.name == name


def test_corrections_and_unknown_p_values() -> None:
    p_values = [0.01, None, 0.04]
    assert corrected(p_values, named("holm")) == [0.03, None, 0.08]
    by_scipy = stats.false_discovery_control([0.01, 1.0, 0.04])
    assert corrected(p_values, named("fdr")) == [
        pytest.approx(by_scipy[0]), None, pytest.approx(by_scipy[2]),
    ]  # fmt: skip
    assert corrected(p_values, named("none")) == p_values
    assert all(corrected([], each) == [] for each in CORRECTIONS.values())
    with pytest.raises(ResultsError, match="no correction 'bonferoni'"):
        named("bonferoni")


@pytest.mark.slow
def test_nothing_differs_where_the_corrected_interval_holds_1() -> None:
    short = replace(CLIP, points=CLIP.points[:2], notes=(Note("censored", at=[8]),))
    answer = table(FigureData.of([PLAIN, CLIP, FURTHER, short]))
    same, further, row = answer.rows
    assert answer.compared == 12
    assert answer.sentence == "p-values are corrected for 12 ratios by Holm's method"
    assert same.sentence.startswith("clip 1 cannot be distinguished from sgd (least p ")
    assert "sgd: ratio of the fewest examples to the fewest steps 3." in further.sentence
    assert "fewest examples" in further.sentence
    assert "least steps" not in further.sentence
    # What cannot be fitted stays in, and counts.
    assert row.sentence == "clip 1 against sgd: nothing is known"
    assert all(ratio.p is None for ratio in row.ratios.values())
    assert codes(row.notes)[:2] == ["too_few_sizes", "censored"]


def test_errors() -> None:
    with pytest.raises(ResultsError, match="nothing to compare: 1 curve"):
        table(FigureData.of([PLAIN]))
    with pytest.raises(ResultsError, match="'steps' is not a quantity"):
        table(FigureData.of([PLAIN, CLIP]), quantities=["steps"])


def test_fewer_quantities_are_corrected_for_less() -> None:
    short = replace(CLIP, points=CLIP.points[:7])
    answer = table(FigureData.of([replace(PLAIN, points=PLAIN.points[3:9]), short]),
                   quantities=["min_steps"])  # fmt: skip
    assert answer.compared == 1
    assert [*answer.rows[0].ratios] == ["min_steps"]
    ratio = answer.rows[0].ratios["min_steps"]
    assert ratio.p == ratio.corrected


def test_a_row_has_the_notes_of_its_curve_and_of_its_baseline() -> None:
    """Of a curve without regimes why, once: the table names a row's curve before its notes."""
    note = Note("gradients", steps="each step takes", n=2, unit="example")
    sam = replace(technique_curve(("sgd", {"sam": 0.05}), seed=1), notes=(note,))
    plain, short = replace(PLAIN, notes=(Note("rule"),)), replace(CLIP, points=CLIP.points[:2])
    rows = {row.name: row for row in table(FigureData.of([plain, sam, short])).rows}
    assert [note in rows[name].notes for name in ("sam 0.05", "clip 1")] == [True, False]
    assert rows["clip 1"].notes.count(too_few(short)) == 1
    assert Note("of_baseline", baseline="sgd", note=Note("rule")) in rows["clip 1"].notes
