"""The plain curve that each technique, schedule and optimizer is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from analysis.curves.curve import Curve
from analysis.curves.groups import ALGORITHM

PLAIN_OPTIMIZER = "sgd"
PLAIN_SCHEDULE = "constant"
_PLAIN_SETTINGS = {"precision": "float32"}


def arguments(curve: Curve, factors: Collection[str] = ()) -> dict[str, Any]:
    """The techniques of a curve with their arguments, and its values of the columns ``factors``."""
    text = curve.group.get("technique")
    described: dict[str, Any] = json.loads(text) if isinstance(text, str) else {}
    further = {name: curve.group.get(name) for name in factors}
    return described | {name: value for name, value in further.items() if value is not None}


def optional(curves: Sequence[Curve], columns: Iterable[str]) -> list[str]:
    """Those of ``columns`` that are factors as techniques are: arguments that curves lack."""
    return [
        name
        for name in columns
        if name not in ALGORITHM and any(curve.group.get(name) is None for curve in curves)
    ]


def plain(curves: Sequence[Curve], factors: Collection[str] = ()) -> list[list[int]]:
    """The place of each curve's baseline, as a list of one; of none for a curve that has none.

    A curve with a technique is compared with the one of the same optimizer and schedule that has
    the fewest (in float32, where precisions differ); a plain one of another schedule with the
    constant schedule's, or the first; of another optimizer with plain SGD, or the first. Workload,
    data set, fields and target are the same in both.

    Args:
        factors: columns whose null means that a technique is off (``optional``).
    """
    places: list[list[int]] = [[] for _ in curves]
    for alike in _classes(range(len(curves)), lambda i: _setting(curves[i], factors)):
        unmodified: list[int] = []
        for family in _classes(alike, lambda i: _algorithm(curves[i])):
            base = min(family, key=lambda i: _rank(arguments(curves[i], factors)))
            unmodified.append(base)
            for i in family:
                places[i] = [base] if i != base else []
        by_algorithm = {_algorithm(curves[i]): i for i in unmodified}
        optimizer = _root((name for name, _ in by_algorithm), PLAIN_OPTIMIZER)
        schedule = _root((name for _, name in by_algorithm), PLAIN_SCHEDULE)
        for (its_optimizer, its_schedule), i in by_algorithm.items():
            wanted = [(its_optimizer, schedule), (optimizer, its_schedule), (optimizer, schedule)]
            bases = [by_algorithm[pair] for pair in wanted if by_algorithm.get(pair, i) != i]
            root = (its_optimizer, its_schedule) == (optimizer, schedule)
            places[i] = [] if root else bases[:1]
    return places


def difference(curve: Curve, base: Curve, factors: Collection[str] = ()) -> str:
    """What ``curve`` changes in ``base``: ``clip 1``, ``momentum``, ``cosine``."""
    own, other = arguments(curve, factors), arguments(base, factors)
    parts = [_part(name, value) for name, value in own.items() if other.get(name) != value]
    parts += [f"without {name}" for name in other if name not in own]
    changed = [
        str(curve.group.get(name))
        for name in ("optimizer", "schedule")
        if curve.group.get(name) != base.group.get(name)
    ]
    return ", ".join([*changed, *parts]) or curve.label


def plain_name(curve: Curve, curves: Sequence[Curve], factors: Collection[str] = ()) -> str:
    """A baseline's name among ``curves``: its optimizer, and what else differs between them, but
    for what every plain curve has."""
    described = arguments(curve, factors)
    varying = [
        name
        for name in curve.group
        if name not in ("optimizer", "technique", "dataset", "model", *factors)
        and len({str(each.group.get(name)) for each in curves}) > 1
    ]
    values = [curve.group.get(name) for name in ("optimizer", *varying)]
    parts = [f"{v:g}" if isinstance(v, float) else str(v) for v in values if v is not None]
    parts += [_part(n, v) for n, v in described.items() if _PLAIN_SETTINGS.get(n) != v]
    targets = {each.target for each in curves if each.group == curve.group}
    parts += [str(curve.target)] * (len(targets) > 1)
    return ", ".join(parts) or curve.label


def _part(name: str, value: Any) -> str:
    if value is True:
        return name
    if isinstance(value, Mapping):
        value = " ".join(f"{key} {each}" for key, each in value.items())
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def _classes(places: Iterable[int], key: Callable[[int], Any]) -> list[list[int]]:
    classes: dict[Any, list[int]] = {}
    for place in places:
        classes.setdefault(key(place), []).append(place)
    return list(classes.values())


def _algorithm(curve: Curve) -> tuple[Any, Any]:
    return curve.group.get("optimizer"), curve.group.get("schedule")


def _setting(curve: Curve, factors: Collection[str]) -> tuple[Any, ...]:
    """All else: what is equal in a curve and its baseline."""
    others = {name: v for name, v in curve.group.items() if name not in (*ALGORITHM, *factors)}
    return (*sorted((name, str(value)) for name, value in others.items()), str(curve.target))


def _rank(described: Mapping[str, Any]) -> tuple[int, bool]:
    settings = (described.get(name, value) != value for name, value in _PLAIN_SETTINGS.items())
    return len(described), any(settings)


def _root(names: Iterable[Any], usual: str) -> Any:
    ordered = list(names)
    return usual if usual in ordered else ordered[0]
