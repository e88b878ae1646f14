"""Results divided as the page is: a panel a workload and data set, in it a view a target."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.figure_data import FigureData
from analysis.fit.regimes import Regimes
from results.errors import ResultsError
from results.targets.target import Target

Pairs = list[tuple[Curve, Regimes | None]]


@dataclass(frozen=True, kw_only=True)
class View:
    """The curves of one workload at one target; ``recorded`` where the query has that target.

    Their labels are short: only what distinguishes them in the panel.
    """

    target: Target | None
    pairs: Pairs
    recorded: bool
    names: Mapping[str, str]
    """Short labels of the curves by their labels among all curves."""

    @property
    def curves(self) -> list[Curve]:
        return [curve for curve, _ in self.pairs]

    @property
    def regimes(self) -> list[Regimes | None]:
        return [fit for _, fit in self.pairs]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """``refused`` has the goals that cannot be computed, each with the reason."""

    workload: str | None
    dataset: str | None
    views: list[View]
    refused: list[tuple[Target, str]] = field(default_factory=list)

    @property
    def heading(self) -> str:
        """What the panel is called: its workload, and its data set where that says more."""
        if self.workload is None:
            return self.dataset or "steps to target"
        more = self.dataset is not None and self.dataset not in self.workload
        return f"{self.workload}, {self.dataset}" if more else self.workload


def panels(data: FigureData) -> list[Panel]:
    """The panels of ``data``, as its curves first name them.

    The views of a panel begin with the targets of the query. Each other goal that its studies
    name is computed too; one that trials were stopped before is among ``refused``.
    """
    parts: dict[tuple[Any, Any], Pairs] = {}
    for curve, fit in data.pairs:
        key = curve.group.get("workload"), curve.group.get("dataset")
        parts.setdefault(key, []).append((curve, fit))
    return [_panel(data, key, pairs) for key, pairs in parts.items()]


def _panel(data: FigureData, key: tuple[Any, Any], pairs: Pairs) -> Panel:
    views = _views(pairs, recorded=True)
    refused: list[tuple[Target, str]] = []
    recorded = {view.target for view in views}
    named = _goals(data.studies, key)
    for goal in data.goals:
        if goal in named and goal not in recorded:
            try:
                views += _views(data.only(_condition(key)).at(goal).pairs, recorded=False)
            except ResultsError as error:
                refused.append((goal, str(error)))
    workload, dataset = (None if part is None else str(part) for part in key)
    return Panel(workload=workload, dataset=dataset, views=views, refused=refused)


def _views(pairs: Pairs, *, recorded: bool) -> list[View]:
    by_target: dict[Target | None, Pairs] = {}
    for curve, fit in pairs:
        by_target.setdefault(curve.target, []).append((curve, fit))
    return [_view(goal, same, recorded) for goal, same in by_target.items()]


def _view(goal: Target | None, pairs: Pairs, recorded: bool) -> View:
    texts = labels([curve.group for curve, _ in pairs])
    if len(pairs) == 1 and not pairs[0][0].group.get("optimizer"):
        # The only curve needs no distinction: its label is its source.
        group = pairs[0][0].group
        texts = [str(group.get("source") or group.get("workload") or texts[0])]
    return View(
        target=goal,
        pairs=[(replace(c, label=text), f) for (c, f), text in zip(pairs, texts, strict=True)],
        recorded=recorded,
        names={curve.label: text for (curve, _), text in zip(pairs, texts, strict=True)},
    )


def _goals(studies: pd.DataFrame, key: tuple[Any, Any]) -> set[Target]:
    """The targets that the studies of one workload and data set name."""
    match = pd.Series(True, studies.index)
    for name, value in zip(("workload", "dataset"), key, strict=True):
        match &= studies[name].isna() if value is None else studies[name].eq(value)
    texts: Sequence[str] = studies.loc[match, "targets"].dropna().tolist()
    return {Target.parse(text) for each in texts for text in json.loads(each)}


def _condition(key: tuple[Any, Any]) -> str:
    parts = []
    for name, value in zip(("workload", "dataset"), key, strict=True):
        text = str(value).replace("'", "''")
        parts.append(f"{name} IS NULL" if value is None else f"{name} = '{text}'")
    return " AND ".join(parts)
