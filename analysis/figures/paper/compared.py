"""Which curves make a panel: those that differ in some columns alone, a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.groups import label, labels, widen
from analysis.figure_data import FigureData
from analysis.figures.drawing.facets import Pair, Pairs
from analysis.figures.paper.lines import goal, is_published, line_of, panel_of, published_lines
from analysis.figures.paper.panels import Panel, PanelFigure, normalized
from results.errors import ResultsError

ALGORITHM = frozenset({"optimizer", "schedule", "technique"})
_SEPARATE = ("experiment", "search")
"""Two results of one comparison: a panel each."""
_NAMED = ("workload", "dataset", "model")
_DATA_FIELDS = ("examples", "subset", "share", "fraction", "samples", "classes")

Key = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Varying:
    """The columns that the lines of a panel differ in; all else is the same for them."""

    columns: frozenset[str]
    name: str = ""
    """Names the panel: ``width``."""
    goals: bool = False
    """Whether targets may differ within a panel: those of other models and data sets may."""
    none: str = ""
    """The label of a line whose one column is null."""
    must: tuple[str, ...] = ()
    """Columns of which at least one has to differ within a panel; none: any of them all."""

    @classmethod
    def field(cls, name: str, **options: Any) -> Varying:
        """A field of the workload: targets may differ."""
        short = name.rpartition(".")[2]
        return cls(columns=frozenset({name}), name=short, goals=True, **options)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A figure of panels by some columns with lines by others."""

    varying: Sequence[Varying] | Callable[[FigureData, Sequence[str]], Sequence[Varying]]
    """The compared columns of its panels; or a function of the results and the columns of
    ``--by``."""
    needs: str
    """The missing data, for the error if there is nothing to draw."""
    hint: str
    least: int = 2
    """Lines that make a panel."""
    normalized: bool = False
    """Whether steps are over those at one batch size that the lines share; then there are no
    published curves beside them."""

    def __call__(self, data: FigureData) -> PanelFigure:
        """What is drawn.

        Raises:
            ResultsError: there is nothing to draw.
        """
        named = data.query.by or ()
        data = without_needless_by(data)
        pairs = data.pairs
        varying = self.varying(data, named) if callable(self.varying) else self.varying
        parts: dict[frozenset[int], tuple[Varying, Key, Pairs]] = {}
        for columns in varying:
            for key, group in grouped(pairs, columns, self.least):
                # Each set of curves once, under the first name that has it.
                parts.setdefault(frozenset(id(c) for c, _ in group), (columns, key, group))
        if not parts:
            raise ResultsError(self.needs, hint=self.hint)
        names = titles(
            [key for _, key, _ in parts.values()], [v.name for v, _, _ in parts.values()]
        )
        panels = [
            self._panel(name, columns, group, data)
            for name, (columns, _, group) in zip(names, parts.values(), strict=True)
        ]
        if not self.normalized:
            return PanelFigure(panels=panels)
        scaled = [panel for panel in map(normalized, panels) if panel is not None]
        if not scaled:
            raise ResultsError(
                "no batch size at which all curves of a panel reached their targets",
                hint="steps are shown over those at one batch size that all share",
            )
        return PanelFigure(panels=scaled)

    def _panel(
        self, title: str, varying: Varying, pairs: Sequence[Pair], data: FigureData
    ) -> Panel:
        measured = [pair for pair in pairs if not is_published(pair[0])] or list(pairs)
        curves = [curve for curve, _ in measured]
        names = line_labels(curves, varying.columns, varying.none)
        others = [c for c, _ in pairs if all(c is not curve for curve in curves)]
        others += [] if self.normalized else data.published
        lines = [
            *(line_of(c, fit, name) for (c, fit), name in zip(measured, names, strict=True)),
            *published_lines(list(zip(names, curves, strict=True)), others),
        ]
        return panel_of(title, curves, lines, "steps" if self.normalized else "steps to target")


def without_needless_by(data: FigureData) -> FigureData:
    """The data without ``--by`` if its columns distinguish curves without it: else the training
    algorithm would be minimized over."""
    by = data.query.by
    if by is None or ALGORITHM & {*by} or not data.sources:
        return data
    plain = data.each_by(None)
    columns = {name for curve in plain.curves for name in curve.group}
    return plain if {*by} <= columns | {f"fields.{name}" for name in by} else data


def grouped(pairs: Sequence[Pair], varying: Varying, least: int) -> list[tuple[Key, Pairs]]:
    """The curves of each panel, and what they have in common.

    Where two searches answer the same question, the panel is divided by experiment.
    """
    groups = []
    for key, group in _common(pairs, varying, _SEPARATE):
        lines = [_values(curve, varying.columns) for curve, _ in group]
        divided = len(set(lines)) < len(lines) and not all(is_published(c) for c, _ in group)
        groups += _common(group, varying, ()) if divided else [(key, group)]
    return [(key, group) for key, group in groups if _line_count(group, varying) >= least]


def _line_count(pairs: Sequence[Pair], varying: Varying) -> int:
    """How many lines a panel would have, without published ones if there are others."""
    curves = [curve for curve, _ in pairs if not is_published(curve)] or [c for c, _ in pairs]
    counts = [len({str(curve.group.get(name)) for curve in curves}) for name in varying.must]
    if counts and max(counts) < 2:
        return 0
    return len({_values(curve, varying.columns) for curve in curves})


def _common(
    pairs: Sequence[Pair], varying: Varying, separate: Sequence[str]
) -> list[tuple[Key, Pairs]]:
    """Groups of curves that share all columns except the varying ones, ``separate`` and the source.
    Published curves, whose goals are fixed, join ours."""
    parts: dict[tuple[Any, ...], Pairs] = {}
    ours = not all(is_published(curve) for curve, _ in pairs)
    ignored = {*varying.columns, *separate, "source"}
    for curve, fit in pairs:
        key = [(n, v) for n, v in curve.group.items() if n not in ignored and v is not None]
        any_goal = varying.goals or (ours and is_published(curve))
        parts.setdefault((*key, None if any_goal else str(curve.target)), []).append((curve, fit))
    return [(dict(key[:-1]), group) for key, group in parts.items()]


def _values(curve: Curve, columns: frozenset[str]) -> tuple[str, ...]:
    return tuple(f"{name}={curve.group.get(name)}" for name in sorted(columns | {"source"}))


def line_labels(curves: Sequence[Curve], columns: frozenset[str], none: str = "") -> list[str]:
    """Names that distinguish the lines of a panel, with the goal where goals differ."""
    groups = [
        {
            name: none if none and value is None else _with_name(name, value)
            for name, value in curve.group.items()
            if name in columns
        }
        for curve in curves
    ]
    for name in _NAMED[::-1]:
        # A model's name says its fields too, where each has another name.
        if len({str(group.get(name)) for group in groups}) == len(groups) > 1:
            groups = [{name: group.get(name)} for group in groups]
            break
    if all(group.get("model") is not None for group in groups):
        groups = [{**group, "workload": None} for group in groups]
    goals = [goal(curve) for curve in curves]
    return labels(groups, goals if len(set(goals)) > 1 else ())


def _with_name(name: str, value: Any) -> Any:
    """A field's text with its name: ``widths [64, 64]``."""
    usual = name in {*_NAMED, *ALGORITHM, *_SEPARATE, "source"}
    return value if usual or not isinstance(value, str) else f"{name.rpartition('.')[2]} {value}"


def titles(keys: Sequence[Key], by: Sequence[str] = ()) -> list[str]:
    """What each panel is of: its workload, else data set or model, then what distinguishes it from
    others of that, then what its lines are ``by``."""
    firsts = [_first(key) for key in keys]
    names = list(dict.fromkeys(name for key in keys for name in key if name not in _NAMED))
    texts = []
    for i, (key, first) in enumerate(zip(keys, firsts, strict=True)):
        alike = [other for other, start in zip(keys, firsts, strict=True) if start == first]
        differing = [name for name in names if len({str(k.get(name)) for k in alike}) > 1]
        values = {name: key[name] for name in differing if name in key}
        last = f"by {by[i]}" if by and by[i] else ""
        texts.append(
            ", ".join(filter(None, (first, label(values, values) if values else "", last)))
        )
    return texts


def key_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """What names a panel of one group: its values, without the source."""
    return {name: value for name, value in group.items() if value is not None and name != "source"}


def _first(key: Key) -> str:
    if key.get("workload") is not None:
        return str(key["workload"])
    return " on ".join(str(key[name]) for name in ("model", "dataset") if key.get(name) is not None)


def fields_of(curves: Sequence[Curve]) -> list[str]:
    """Workload fields that vary, of those that name neither data set nor training."""
    usual = {"source", *_SEPARATE, *_NAMED, *ALGORITHM}
    names = dict.fromkeys(name for curve in curves for name in curve.group if name not in usual)
    return [name for name in names if len({str(c.group.get(name)) for c in curves}) > 1]


def is_smoothing(name: str) -> bool:
    """Whether a column is the label smoothing, of whatever table."""
    return name.rpartition(".")[2] == "label_smoothing"


def data_fields(data: FigureData) -> list[str]:
    """The fields that vary and choose examples: those with which the size of the training set
    changes, or, where that is not recorded, those with such a name."""
    fields = [name for name in fields_of(data.curves) if not is_smoothing(name)]
    by_name = [name for name in fields if any(part in name for part in _DATA_FIELDS)]
    if not data.sources:
        return by_name
    frame = widen(data.trials).frame
    if "train_examples" not in frame or not frame["train_examples"].notna().any():
        return [name for name in by_name if name in frame]
    return [name for name in fields if name in frame and _changes_size(frame, name, fields)]


def _changes_size(frame: pd.DataFrame, name: str, fields: Sequence[str]) -> bool:
    """Whether training sets differ in size where workloads differ in this field alone."""
    rows = frame[frame[name].notna() & frame["train_examples"].notna()]
    keys = [rows[key].astype(str) for key in (*_NAMED, *(f for f in fields if f != name))]
    groups = rows.assign(value=rows[name].astype(str)).groupby(keys, sort=False)
    return bool(((groups["value"].nunique() > 1) & (groups["train_examples"].nunique() > 1)).any())
