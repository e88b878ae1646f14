"""``batchscale techniques``: its formats and the API, on the packaged demo."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

import batchscale
from analysis.figure_data import FigureData
from analysis.techniques.corrections import named
from analysis.techniques.table import table
from batchscale.output.technique_table import techniques
from results.targets.target import Target
from tests.analysis.techniques_compared import technique_curve

CURVES = [
    technique_curve(("sgd", {})),
    technique_curve(("sgd", {"clip": 1.0}), critical=240.0, seed=2),
    technique_curve(("adam", {}), seed=3),
]


def test_what_is_printed() -> None:
    answer = table(FigureData.of(CURVES), correction="fdr")
    text = techniques(answer, "table")
    head, _, columns, _, clip, adam, *_ = text.splitlines()
    assert "90% intervals; p-values are corrected for 8 ratios by the false discovery rate" in head
    assert columns.split()[:4] == ["technique", "baseline", "active", "critical"]
    assert clip.startswith("clip 1")
    assert adam.startswith("adam")
    assert "clip 1 over sgd: ratio of the fewest examples to the fewest steps 3.6 [" in text
    assert "Holm" in techniques(replace(answer, correction=named("holm")), "markdown")
    assert techniques(answer, "latex").startswith("% ratios to the baseline")
    for format in ("csv", "json"):
        read = json.loads if format == "json" else lambda t: [*csv.DictReader(io.StringIO(t))]
        first, second = read(techniques(answer, format))
        assert (first["name"], second["name"]) == ("clip 1", "adam")
    both = [replace(curve, target=Target(metric="loss", value=1.0)) for curve in CURVES[::2]]
    later = technique_curve(("adam", {}), critical=960.0)
    both += [
        replace(curve, target=Target(metric="loss", value=0.5)) for curve in (CURVES[0], later)
    ]
    text = techniques(table(FigureData.of(both)), "table")
    assert "adam cannot be distinguished from sgd, loss < 1 (" in text
    assert "\n- adam over sgd, loss < 0.5: the large end " in text


@pytest.mark.slow
def test_the_demo() -> None:
    where = "experiment = 'digits'"
    momentum, adam = batchscale.techniques("own", where=where)
    assert momentum["baseline"] == adam["baseline"] == "sgd"
    assert momentum["compared"] == 8
    ratio = momentum["ratios"]["critical_batch_size"]
    against = batchscale.open("own").regimes(where=where, baseline="sgd")[1]["against"]
    assert {end: ratio[end] for end in ("value", "low", "high")} == (
        against["ratios"]["critical_batch_size"]
    )
    assert ratio["p"] < ratio["p_corrected"] < 0.1
    others = batchscale.techniques("own", where=where, baseline="adam")
    assert [each["baseline"] for each in others] == ["adam", "adam"]
