"""Optuna's samplers: points that depend on the results of the earlier ones.

Points are drawn eight at a time. Those of a block depend on the study's seed and on the results of
all rows before the block, on nothing else: neither on the order in which these were trained nor on
a restart, after which all blocks are drawn once more. The sampler minimizes log steps to target.
It gets those of the trials that are exact by then, the ``keep`` best so far; all others, which were
dominated, diverged or missed the target, count as one value that is worse.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from experiments.search.base import History, Request, Row, Table
from experiments.seeds import derive

BLOCK = 8
_FIGURES = 4
"""Decimals of a coordinate: what a sampler computes differs in the last bits between machines."""


class Adaptive(Table):
    """The points that a sampler draws."""

    block = BLOCK
    alike = False
    not_enlargeable = "its points are drawn where the earlier ones were good"
    packages: ClassVar[Sequence[str]] = ("optuna",)
    sampler: ClassVar[str]
    """The class of ``optuna.samplers``."""
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._worst = request.worst
        self._rows: list[Row] = []
        self._pending: list[Any] = []
        """Optuna's trials whose results it does not have yet."""
        self._study: Any = None

    def rows(self, start: int, stop: int, history: History = ()) -> list[Row]:
        """Rows ``start`` … ``stop - 1``.

        Raises:
            ValueError: ``history`` does not reach to the block of the last row.
        """
        if len(self._rows) < stop:
            needed = BLOCK * ((stop - 1) // BLOCK)
            if len(history) < needed:
                raise ValueError(f"rows up to {stop} need {needed} results, not {len(history)}")
            with _quiet():
                while len(self._rows) < stop:
                    if len(self._rows) % BLOCK == 0:
                        self._begin(len(self._rows), history)
                    self._rows.append(self._ask())
        return [dict(row) for row in self._rows[start:stop]]

    def _begin(self, first: int, history: History) -> None:
        """Hand over the results of the last block, and make a new sampler, since the state of the
        old one would depend on the calls that were made of it."""
        import optuna

        sampler = getattr(optuna.samplers, self.sampler)(
            seed=derive(self.seed, "optuna", first) % 2**32, **self.options
        )
        if self._study is None:
            self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._study.sampler = sampler
        for trial, steps in zip(self._pending, history[first - BLOCK : first], strict=True):
            self._study.tell(trial, math.log(self._worst if steps is None else steps))
        self._pending = []

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
        self._pending.append(trial)
        return {
            name: dimension.choices[trial.params[name]]
            if dimension.scale == "discrete"
            else dimension.value(round(trial.params[name], _FIGURES))
            for name, dimension in self.space.items()
        }


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's log and its warnings of experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


class TPE(Adaptive):
    """A tree-structured Parzen estimator."""

    name = "optuna:tpe"
    sampler = "TPESampler"
    options: ClassVar[Mapping[str, Any]] = {"n_startup_trials": BLOCK}


class GP(Adaptive):
    """A Gaussian process."""

    name = "optuna:gp"
    sampler = "GPSampler"
    options: ClassVar[Mapping[str, Any]] = {"n_startup_trials": BLOCK}


class CMAES(Adaptive):
    """CMA-ES, which would draw at random with fewer than two ranges."""

    name = "optuna:cmaes"
    sampler = "CmaEsSampler"
    options: ClassVar[Mapping[str, Any]] = {"warn_independent_sampling": False}
    least_ranges = 2
    packages: ClassVar[Sequence[str]] = ("optuna", "cmaes")


class Random(Adaptive):
    """Independent points, to compare the others with."""

    name = "optuna:random"
    sampler = "RandomSampler"
