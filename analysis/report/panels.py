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
    """The curves of one workload at one target; ``recorded`` where that is what was asked for.

    Their labels are short: what tells them from each other, without what the panel says.
    """

    target: Target | None
    pairs: Pairs
    recorded: bool
    names: Mapping[str, str]
    """The short label of each curve by the one it had among all of them."""

    @property
    def curves(self) -> list[Curve]:
        return [curve for curve, _ in self.pairs]

    @property
    def found(self) -> list[Regimes | None]:
        return [regimes for _, regimes in self.pairs]


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


def panels(material: FigureData) -> list[Panel]:
    """The panels of ``material``, as its curves first name them.

    The views of a panel begin with the targets as asked for. Each other goal that its studies
    name is computed too; one that trials were stopped before is among ``refused``.
    """
    found: dict[tuple[Any, Any], list[tuple[Curve, Regimes | None]]] = {}
    for curve, regimes in zip(material.curves, material.regimes, strict=True):
        found.setdefault(_key(curve.group), []).append((curve, regimes))
    return [_panel(material, key, pairs) for key, pairs in found.items()]


def _key(group: Mapping[str, Any]) -> tuple[Any, Any]:
    return group.get("workload"), group.get("dataset")


def _panel(material: FigureData, key: tuple[Any, Any], pairs: Pairs) -> Panel:
    views = _views(pairs, recorded=True)
    refused: list[tuple[Target, str]] = []
    known = {view.target for view in views}
    named = _goals(material.studies, key)
    for goal in material.goals:
        if goal in named and goal not in known:
            try:
                again = material.only(_condition(key)).at(goal)
                views += _views(list(zip(again.curves, again.regimes, strict=True)), recorded=False)
            except ResultsError as error:
                refused.append((goal, str(error)))
    workload, dataset = (None if part is None else str(part) for part in key)
    return Panel(workload=workload, dataset=dataset, views=views, refused=refused)


def _views(pairs: Pairs, *, recorded: bool) -> list[View]:
    found: dict[Target | None, Pairs] = {}
    for curve, regimes in pairs:
        found.setdefault(curve.target, []).append((curve, regimes))
    return [_view(goal, some, recorded) for goal, some in found.items()]


def _view(goal: Target | None, pairs: Pairs, recorded: bool) -> View:
    texts = labels([curve.group for curve, _ in pairs])
    if len(pairs) == 1 and not pairs[0][0].group.get("optimizer"):
        # Nothing tells it from others, as there are none: whose it is.
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
    mine = pd.Series(True, studies.index)
    for name, value in zip(("workload", "dataset"), key, strict=True):
        mine &= studies[name].isna() if value is None else studies[name].eq(value)
    texts: Sequence[str] = studies.loc[mine, "targets"].dropna().tolist()
    return {Target.parse(text) for each in texts for text in json.loads(each)}


def _condition(key: tuple[Any, Any]) -> str:
    parts = []
    for name, value in zip(("workload", "dataset"), key, strict=True):
        text = str(value).replace("'", "''")
        parts.append(f"{name} IS NULL" if value is None else f"{name} = '{text}'")
    return " AND ".join(parts)
