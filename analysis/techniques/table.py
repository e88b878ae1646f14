"""Each technique and optimizer against the plain one: ratios, intervals and corrected p-values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.fit.comparisons import OF_RANGE, Comparison, Pair, against, nearest, ratio_text
from analysis.fit.interval import Interval
from analysis.fit.regimes import fitted_notes
from analysis.notes import Note, codes
from analysis.techniques.active import Active, active
from analysis.techniques.baselines import difference, optional, plain, plain_name
from analysis.techniques.corrections import Controls, Correction, corrected, named
from analysis.techniques.p_values import LEVELS, P_VALUES, p_value
from results.counts import count
from results.errors import ResultsError
from results.errors import nearest as nearest_name

RATIOS = {
    "critical_batch_size": "critical batch size",
    "perfect_scaling_until": "perfect scaling until",
    "min_steps": "least steps",
    "min_examples": "fewest examples",
}
"""The quantities that are compared, with their names in sentences and figures."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A quantity over the baseline's."""

    interval: Interval
    p: float | None
    """Of "the ratio is 1"; None where the ratio is not known at all."""
    corrected: float | None = None
    """The same, corrected for all ratios of the table that are tested."""

    def differs(self, level: float) -> bool:
        """Whether the corrected interval at this level leaves out 1."""
        return self.corrected is not None and self.corrected <= 1 - level

    def to_dict(self) -> dict[str, float | None]:
        return {**self.interval.to_dict(), "p": self.p, "p_corrected": self.corrected}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A curve against its baseline."""

    name: str
    """What it changes in the baseline: ``clip 1``."""
    curve: Curve
    baseline: str | None
    """The baseline's name; None if several curves could be it, which ``notes`` name."""
    ratios: Mapping[str, Ratio]
    level: float
    notes: tuple[Note, ...]
    steps: Mapping[int, Interval] = field(default_factory=dict)
    """Ratio of the fitted steps at each batch size that both curves have."""
    active: Active = field(default_factory=lambda: Active(share=None))
    """In how many of its best trials it acted before they reached the target."""
    of_range: bool = False
    """Whether critical batch sizes are bounded alone (``Comparison.of_range``)."""

    @property
    def sentence(self) -> str:
        """Which of its ratios differ from 1 after the correction."""
        if self.baseline is None:
            return f"{self.name} is compared with nothing"
        if not self.active.tested:
            return f"{self.name} is not tested against {self.baseline}: {self.active.note}"
        if not any(ratio.interval.reached or ratio.p is not None for ratio in self.ratios.values()):
            return f"{self.name} against {self.baseline}: nothing is known"
        names = {**RATIOS, "critical_batch_size": OF_RANGE[0]} if self.of_range else RATIOS
        clear = [
            f"{names[name]} {ratio_text(ratio.interval)} (p {p_text(ratio.corrected)})"
            for name, ratio in self.ratios.items()
            if ratio.differs(self.level)
        ]
        if clear:
            return f"{self.name} over {self.baseline}: {', '.join(clear)}{self._at_ends}"
        least = min(
            (ratio.corrected for ratio in self.ratios.values() if ratio.corrected is not None),
            default=None,
        )
        return f"{self.name} cannot be distinguished from {self.baseline} (least p {p_text(least)})"

    @property
    def _at_ends(self) -> str:
        """The ratio of steps at the smallest and the largest common batch size."""
        if not self.steps:
            return ""
        first, last = min(self.steps), max(self.steps)
        return (
            f"; steps {ratio_text(self.steps[first])} at batch size {first:,}, "
            f"{ratio_text(self.steps[last])} at {last:,}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As ``techniques --json`` prints it."""
        return {
            "name": self.name,
            "baseline": self.baseline,
            **self.curve.group,
            "target": None if self.curve.target is None else str(self.curve.target),
            "active": self.active.share,
            "tested": self.active.tested,
            "ratios": {name: ratio.to_dict() for name, ratio in self.ratios.items()},
            "steps": [
                {"batch_size": size, **ratio.to_dict()} for size, ratio in self.steps.items()
            ],
            "level": self.level,
            "sentence": self.sentence,
            "notes": list(self.notes),
            "note_codes": codes(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows, in the order of the curves."""

    rows: tuple[Row, ...]
    correction: Correction
    compared: int
    """How many ratios were corrected for: those that are unknown too, and none of techniques that
    did not act."""
    level: float

    @property
    def sentence(self) -> str:
        """How the p-values are corrected."""
        return f"p-values are {self.correction.text.format(count(self.compared, 'ratio'))}"

    def to_dicts(self) -> list[dict[str, Any]]:
        """As ``techniques --json`` prints it."""
        shared = {"correction": self.correction.name, "compared": self.compared}
        return [{**row.to_dict(), **shared} for row in self.rows]


def table(
    data: FigureData, *, correction: str | None = None, quantities: Sequence[str] | None = None
) -> Table:
    """Compare every curve of ``data`` with its plain one, or with the query's baseline.

    Args:
        correction: ``dunnett``, ``holm``, ``fdr`` or ``none``. By default ``dunnett`` where all
            studies are of a design with one baseline (``one_factor``), else ``holm``.
        quantities: those of ``RATIOS`` that are compared, and so corrected for; all by default.

    Raises:
        ResultsError: no such correction or quantity, or no two curves that can be compared.
    """
    names = _quantities(quantities)
    method = named(_usual(data) if correction is None else correction)
    curves, fits, level = data.curves, data.regimes, 0.9
    factors = optional(curves, data.query.by or ())
    baseline = data.query.baseline
    places = plain(curves, factors) if baseline is None else nearest(curves, baseline)
    pairs = [(i, bases) for i, bases in enumerate(places) if bases]
    if not pairs:
        raise ResultsError(
            f"nothing to compare: {count(len(curves), 'curve')}, and none is the plain one of "
            "another",
            hint=f"name the one to compare with: --baseline {curves[0].label!r}",
        )
    rows: list[Row] = []
    shared: list[tuple[tuple[int, str], float]] = []
    for i, bases in data.each(pairs, "curves compared"):
        ratios = dict.fromkeys(names, Ratio(interval=Interval(), p=None))
        if len(bases) > 1:
            labels = "; ".join(curves[base].label for base in bases)
            note = Note("several_baselines", curve=curves[i].label, labels=labels)
            rows.append(Row(
                name=curves[i].label, curve=curves[i], baseline=None, ratios=ratios, level=level,
                notes=(note,),
            ))  # fmt: skip
            shared += [((-1 - i, name), 0.0) for name in names]
            continue
        curve, base = curves[i], curves[bases[0]]
        fit, of_base = fits[i], fits[bases[0]]
        comparison: Comparison | None = None
        pair = None if fit is None or of_base is None else Pair.of(fit, of_base)
        if fit is not None and of_base is not None and pair is not None:
            comparison = against(curve, base, fit, of_base, pair)
            ratios = {
                name: Ratio(interval=comparison.ratios[name], p=p_value(*pair.ends(name, LEVELS)))
                for name in names
            }
        base_name, acted = plain_name(base, curves, factors), active(curve, base, factors)
        notes = _notes(data, (i, bases[0]), base_name, comparison, ratios)
        if acted.tested and acted.note is not None:
            notes.insert(0, acted.note)
        rows.append(Row(
            name=difference(curve, base, factors), curve=curve, baseline=base_name, ratios=ratios,
            level=level, notes=tuple(notes), active=acted,
            steps={} if comparison is None else comparison.steps,
            of_range=comparison is not None and comparison.of_range,
        ))  # fmt: skip
        if acted.tested:
            shared += [((bases[0], name), _shared(pair, name, level)) for name in names]
    every = [ratio.p for row in rows if row.active.tested for ratio in row.ratios.values()]
    adjusted = iter(corrected(every, method, _controls(shared)))
    rows = [
        replace(
            row,
            ratios={n: replace(ratio, corrected=next(adjusted)) for n, ratio in row.ratios.items()},
        )
        if row.active.tested
        else row
        for row in rows
    ]
    return Table(rows=tuple(rows), correction=method, compared=len(every), level=level)


_FACTORS_ALONE = re.compile(r"^design:\s+\{?one_factor\b", re.MULTILINE)
"""In an experiment's resolved file."""


def _usual(data: FigureData) -> str:
    """The correction unless one is named."""
    studies = data.studies if data.query.sources else pd.DataFrame()
    if "experiment_yaml" not in studies or not len(studies):
        return "holm"
    # A study of another experiment may have the same id: its file says nothing of these curves.
    files = studies["experiment_yaml"][studies["experiment"].isin(data.recorded["experiment"])]
    alone = files.map(lambda text: isinstance(text, str) and bool(_FACTORS_ALONE.search(text)))
    return "dunnett" if alone.all() else "holm"


def _shared(pair: Pair | None, name: str, level: float) -> float:
    """The baseline's share of the variance of a log ratio, by the lengths of both intervals; 0,
    which corrects most, where one is open."""
    if pair is None:
        return 0.0
    own, base = (float(high[0] - low[0]) ** 2 for _, low, high in pair.ends(name, [level]))
    share = base / (own + base) if own + base > 0 else 0.0
    return share if np.isfinite(share) else 0.0


def _controls(shared: Sequence[tuple[tuple[int, str], float]]) -> Controls:
    """From the baseline and quantity of each ratio, and its share."""
    groups = list(dict.fromkeys(key for key, _ in shared))
    return Controls(
        group=np.array([groups.index(key) for key, _ in shared]),
        shared=np.array([share for _, share in shared]),
    )


def p_text(p: float | None) -> str:
    """``0.023``, ``≤ 0.0001``, ``unknown``: two significant digits."""
    if p is None:
        return "unknown"
    return f"≤ {P_VALUES[-1]:.4f}" if p <= P_VALUES[-1] else f"{p:.2g}"


def _quantities(names: Sequence[str] | None) -> list[str]:
    wanted = list(RATIOS) if not names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in RATIOS:
            raise ResultsError(
                f"{name!r} is not a quantity that is compared",
                hint=nearest_name(name, RATIOS, f"known: {', '.join(RATIOS)}"),
            )
    return wanted


def _notes(
    data: FigureData,
    places: tuple[int, int],
    baseline: str,
    comparison: Comparison | None,
    ratios: Mapping[str, Ratio],
) -> list[Note]:
    """What limits a row: of the comparison, its open intervals, and of both curves."""
    notes = [] if comparison is None else list(comparison.notes)
    for quantity, ratio in ratios.items():
        if comparison is not None and not ratio.interval.reached:
            sides = ("below", ratio.interval.low), ("above", ratio.interval.high)
            where = " and ".join(side for side, end in sides if end is None)
            notes.append(Note("open_ratio", quantity=quantity, sides=where))
    own, of_base = (fitted_notes(data.curves[i], data.fits[i]) for i in places)
    return [*notes, *own, *(Note("of_baseline", baseline=baseline, note=each) for each in of_base)]
