"""The findings of a view of curves in sentences, intervals first, and the notes about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.curves.curve import Curve
from analysis.fit.comparisons import Comparison, compare
from analysis.fit.crossovers import Crossover, crossovers
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes, fitted_notes
from analysis.fit.search_limits import search_effect
from analysis.formatting import interval, units
from analysis.notes import Note
from analysis.report.panels import View
from results.counts import count
from results.errors import ResultsError

FEW = 10
"""Trials per point below which a note says that N is small."""

_ENDS = {
    "best batch size": "best batch size",
    "critical batch size": "critical batch size",
    "perfect scaling until": "end of perfect scaling",
    "maximal parallelism from": "start of maximal parallelism",
}
_ESTIMATORS = {
    "run": "every run a point",
    "minimum": "best of {} at each batch size",
    "best_of_10": "expected best of 10 of {} at each batch size",
    "median_of_searches": "median best of {} at each batch size",
    "iso_loss": "at equal loss, best of at least {} at each budget",
}


def baseline(view: View, wanted: str | None) -> str | None:
    """The curve that the others of a view are compared with: the wanted one, else sgd, else the
    first that could be fitted; None where there is nothing to compare."""
    fitted = [curve for curve, fit in view.pairs if fit is not None]
    if wanted is not None:
        return view.names.get(wanted, wanted)
    if len(fitted) < 2:
        return None
    return "sgd" if any(c.group.get("optimizer") == "sgd" for c in fitted) else fitted[0].label


def comparisons(view: View, against: str | None) -> list[Comparison | None]:
    """Each curve against the baseline, None where there is none."""
    if against is None:
        return [None] * len(view.pairs)
    return compare(view.curves, view.regimes, against)


def findings(view: View, styles: Sequence[int]) -> list[dict[str, Any]]:
    """A curve each: its label, what was located (name, interval, whether reached), and on what
    that rests."""
    return [
        {
            "label": curve.label,
            "look": style,
            "parts": _parts(curve, fit),
            "rests": _rests(curve, fit),
        }
        for (curve, fit), style in zip(view.pairs, styles, strict=True)
    ]


def compared(comparisons: Sequence[Comparison | None]) -> list[str]:
    """The sentences of the comparisons that have a baseline."""
    return [f"{item.sentence}." for item in comparisons if item and item.baseline is not None]


def penalties(view: View) -> list[str]:
    """A sentence for each curve with a small-batch penalty."""
    several = len(view.curves) > 1
    return [
        f"{curve.label}: {note}." if several else f"{note}."
        for curve, fit in view.pairs
        for note in (fit.notes if fit else ())
        if note.code == "penalty"
    ]


def crossover_pairs(view: View) -> list[Crossover]:
    """The pairs of curves that cross."""
    try:
        pairs = crossovers(view.curves, view.regimes)
    except ResultsError:  # no two curves can be compared
        return []
    return [pair for _, _, pair in pairs if pair.at]


def warnings(view: View, comparisons: Sequence[Comparison | None]) -> list[dict[str, Any]]:
    """Each note once with the curves that it is about; none are named where it is of all.

    First those about the view as a whole: unequal N, and small N.
    """
    everyone = [curve.label for curve in view.curves]
    counts = sorted({curve.trials for curve in view.curves if not curve.repeats})
    about: dict[Note, list[str]] = {}
    if len(counts) > 1:
        about[Note("unequal_n", n=(counts[0], counts[-1]))] = everyone
    for (curve, fit), comparison in zip(view.pairs, comparisons, strict=True):
        more = comparison.notes if comparison is not None else ()
        effect = search_effect(curve, fit)
        of_search = effect.note(fit.critical_batch_size) if effect and fit else None
        few = not curve.repeats and curve.trials < FEW
        small = Note("small_n", n=curve.trials) if few else None
        for note in filter(None, (small, *fitted_notes(curve, fit), of_search, *more)):
            if note.code == "penalty":  # among the findings
                continue
            whose = about.setdefault(note, [])
            if curve.label not in whose:
                whose.append(curve.label)
    return [
        {"text": text, "curves": [] if len(whose) == len(everyone) else whose}
        for text, whose in about.items()
    ]


def _parts(curve: Curve, fit: Regimes | None) -> list[dict[str, str]]:
    if fit is None:
        return []
    best = fit.best_batch_size
    return [
        *([] if best is None else [_part("best batch size", best, "")]),
        _part("critical batch size", fit.critical_batch_size, units([curve.example_unit])),
        _part("perfect scaling until", fit.perfect_scaling_until, ""),
        _part("maximal parallelism from", fit.maximal_parallelism_from, ""),
    ]


def _part(name: str, quantity: Interval, unit: str) -> dict[str, str]:
    text = interval(*quantity.ends)
    if text == "open":
        return {"name": _ENDS[name], "text": text, "unit": "", "is": "open"}
    state = "reached" if quantity.reached else "bounded"
    return {"name": name, "text": text, "unit": unit, "is": state}


def _rests(curve: Curve, fit: Regimes | None) -> str:
    sizes = curve.batch_sizes
    many = f"{count(len(sizes), 'batch size')}, {min(sizes):,} to {max(sizes):,}"
    if len(sizes) == 1:
        many = f"batch size {sizes[0]:,} alone"
    parts = [many, _ESTIMATORS[curve.named].format(count(curve.trials, "trial"))]
    if fit is not None and fit.min_steps.high is not None and not curve.relative:
        which = "steps at the plateau" if fit.large_level else "least steps"
        parts.append(f"{which} {interval(*fit.min_steps.ends)}")
    if curve.censored:
        parts.append("target not reached at " + ", ".join(f"{size:,}" for size in curve.censored))
    return "; ".join(parts)
