"""Optuna's samplers: points that depend on how the earlier ones came out.

Points are drawn eight at a time. Those of a block depend on the study's seed and on how all rows
before the block came out, on nothing else: neither on the order in which these were trained nor on
a restart, after which all blocks are asked for once more. The sampler minimizes log steps to
target. It is told that of what is exact by then, the ``keep`` best so far; everything else, what
was dominated, diverged or missed the target, is told as one value that is worse.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from experiments.search.base import History, Row, Table
from experiments.search.space import Dimension
from experiments.seeds import derive

BLOCK = 8
PREFIX = "optuna:"
_SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "tpe": ("TPESampler", {"n_startup_trials": BLOCK}),
    "gp": ("GPSampler", {"n_startup_trials": BLOCK}),
    "cmaes": ("CmaEsSampler", {"warn_independent_sampling": False}),
    "random": ("RandomSampler", {}),
}
METHODS = tuple(PREFIX + name for name in _SAMPLERS)
_FIGURES = 4
"""Decimals of a coordinate: what a sampler computes differs in the last bits between machines."""


def missing(method: str) -> list[str]:
    """Packages that ``method`` needs and that are not installed."""
    if method not in METHODS:
        return []
    needed = ["optuna", *(["cmaes"] if method == f"{PREFIX}cmaes" else [])]
    return [name for name in needed if importlib.util.find_spec(name) is None]


class Adaptive(Table):
    """The points that a sampler asks for.

    Args:
        worst: steps that stand for a trial of which no better is known.
    """

    block = BLOCK

    def __init__(
        self, method: str, space: Mapping[str, Dimension], seed: int, worst: float
    ) -> None:
        self.space = dict(sorted(space.items()))
        self._sampler, self._options = _SAMPLERS[method.removeprefix(PREFIX)]
        self._seed, self._worst = seed, worst
        self._rows: list[Row] = []
        self._asked: list[Any] = []
        """Optuna's trials whose end it has not been told."""
        self._study: Any = None

    def rows(self, start: int, stop: int, history: History = ()) -> list[Row]:
        """Rows ``start`` … ``stop - 1``.

        Raises:
            ValueError: ``history`` does not reach to the block of the last row.
        """
        known = BLOCK * ((stop - 1) // BLOCK)
        if len(history) < known and len(self._rows) < stop:
            raise ValueError(f"rows up to {stop} depend on {known} before, of {len(history)} known")
        if len(self._rows) < stop:
            with _quiet():
                while len(self._rows) < stop:
                    if len(self._rows) % BLOCK == 0:
                        self._begin(len(self._rows), history)
                    self._rows.append(self._ask())
        return [dict(row) for row in self._rows[start:stop]]

    def _begin(self, first: int, history: History) -> None:
        """Tell how the last block came out; a new sampler, since the old one's state would depend
        on the calls that were made of it."""
        import optuna

        sampler = getattr(optuna.samplers, self._sampler)(
            seed=derive(self._seed, "optuna", first) % 2**32, **self._options
        )
        if self._study is None:
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._study.sampler = sampler
        for trial, steps in zip(self._asked, history[first - BLOCK : first], strict=True):
            self._study.tell(trial, math.log(self._worst if steps is None else steps))
        self._asked = []

    def _ask(self) -> Row:
        import optuna

        trial = self._study.ask(
            {
                name: optuna.distributions.CategoricalDistribution(range(len(dimension.choices)))
                if dimension.scale == "discrete"
                else optuna.distributions.FloatDistribution(0, 1)
                for name, dimension in self.space.items()
            }
        )
        self._asked.append(trial)
        return {
            name: dimension.choices[trial.params[name]]
            if dimension.scale == "discrete"
            else dimension.value(round(trial.params[name], _FIGURES))
            for name, dimension in self.space.items()
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log, and what it says of features that may still change."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
