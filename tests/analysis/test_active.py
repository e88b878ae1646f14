"""Techniques that had not begun when the target was reached: shares, verdicts, the correction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

import batchscale
from analysis import Curve
from analysis.figure_data import FigureData
from analysis.techniques.active import Active, active
from analysis.techniques.corrections import corrected, named
from analysis.techniques.table import table
from batchscale.output.technique_table import techniques
from tests.analysis.techniques_compared import technique_curve

PLAIN = technique_curve(("sgd", {}))


def acting(curve: Curve, begins: Mapping[str, int], late: int = 12) -> Curve:
    """``curve``, whose ``late`` last points reach the target by the step at which parts act."""
    points = [
        replace(point, minimum=float(i < len(curve.points) - late) * 1e9 + 40, acts_from=begins)
        for i, point in enumerate(curve.points)
    ]
    return replace(curve, points=tuple(points))


SWA = technique_curve(("sgd", {"swa": 0.75}), seed=1)


def test_the_share_of_best_trials_in_which_it_acted() -> None:
    for late, share, tested in (
        (0, 1.0, True),
        (6, 0.5, True),
        (7, 5 / 12, False),
        (12, 0.0, False),
    ):
        of = active(acting(SWA, {"swa": 40}, late), PLAIN)
        assert (of.share, of.tested) == (share, tested)
        assert (of.note is None) == (late == 0)
    assert of.note == "swa acted before the target in 0 of 12 best trials"
    assert of.text == "0%: not tested"
    # A hit in the step in which it begins is one without it; one step later it is not.
    assert active(acting(SWA, {"swa": 39}), PLAIN).share == 1
    # What acts from the first step on, and what is not known.
    assert active(SWA, PLAIN).share == 1
    missed = tuple(replace(point, steps=None, minimum=None) for point in SWA.points)
    assert active(replace(SWA, points=missed), PLAIN) == Active(share=None)
    assert Active(share=None).tested
    assert Active(share=None).text == "unknown"


def test_only_what_it_changes_counts_and_all_of_it() -> None:
    base = acting(technique_curve(("sgd", {"swa": 0.75})), {"swa": 40})
    clipped = acting(technique_curve(("sgd", {"swa": 0.75, "clip": 1.0})), {"swa": 40})
    assert active(clipped, base).share == 1
    assert active(clipped, PLAIN).share == 0
    wsd = technique_curve(("sgd", {}), schedule="wsd")
    assert active(acting(wsd, {"schedule": 40}), PLAIN).note == (
        "the decay acted before the target in 0 of 12 best trials"
    )
    assert active(acting(wsd, {"schedule": 40}), wsd).share == 1
    ramped = technique_curve(("sgd", {"ramp": "2x at 0.5"}))
    assert active(acting(ramped, {"ramp": 40}), PLAIN).late == "ramp"


@pytest.mark.slow
def test_what_is_not_tested_is_no_hypothesis() -> None:
    further = technique_curve(("sgd", {"clip": 1.0}), critical=240.0, seed=2)
    never = acting(replace(SWA, label="sgd swa"), {"swa": 40})
    answer = table(FigureData.of([PLAIN, never, further]), correction="holm")
    alone = table(FigureData.of([PLAIN, further]), correction="holm")
    swa, clip = answer.rows
    assert answer.compared == alone.compared == 4
    assert clip.ratios == alone.rows[0].ratios
    assert swa.sentence == (
        "swa 0.75 is not tested against sgd: swa acted before the target in 0 of 12 best trials"
    )
    for ratio in swa.ratios.values():
        assert ratio.corrected is None
        assert not ratio.differs(0.9)
    described = swa.to_dict()
    assert (described["active"], described["tested"]) == (0.0, False)
    text = techniques(answer, "table")
    assert "active" in text.splitlines()[2]
    assert "0%: not tested" in text
    # With it there would be twice as many.
    acts = table(FigureData.of([PLAIN, acting(SWA, {"swa": 40}, 6), further]), correction="holm")
    assert acts.compared == 8
    assert acts.rows[0].notes[0] == "swa acted before the target in 6 of 12 best trials"
    every = [ratio.p for row in acts.rows for ratio in row.ratios.values()]
    assert [r.corrected for row in acts.rows for r in row.ratios.values()] == corrected(
        every, named("holm")
    )


@pytest.mark.slow
def test_the_packaged_arms_that_never_act() -> None:
    plain = "technique LIKE '{_precision_:_float32_}' AND optimizer = 'sgd'"
    for experiment, where, name in (
        ("techniques-digits", "technique LIKE '%swa%'", "swa 0.75"),
        ("techniques-digits", "schedule = 'wsd'", "wsd"),
        ("techniques-compression", "technique LIKE '%until%'", "prune sparsity 0.8 until 0.5"),
    ):
        both = f"experiment = '{experiment}' AND ({where} OR schedule = 'constant' AND {plain})"
        (row,) = batchscale.techniques("own", where=both, quantities=["critical_batch_size"])
        assert row["name"] == name
        assert (row["active"], row["tested"], row["compared"]) == (0.0, False, 0)
        assert f"{name} is not tested against" in row["sentence"]
        assert row["ratios"]["critical_batch_size"]["p_corrected"] is None
    group = json.loads(row["technique"])
    assert group["prune"]["until"] == 0.5
