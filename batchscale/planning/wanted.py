"""What a sweep would have to train for an interval of a wanted width: ``sweep --plan``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from batchscale.sweeps import load, plan
from results.errors import nearest
from results.storage.location import Location, default_results
from results.targets.quantities import QUANTITIES

if TYPE_CHECKING:
    import pandas as pd

    from analysis.curves.curve import Curve
    from analysis.widths.expected import Expected
    from experiments.plan import Study

_TRIALS = (8, 16, 32, 64)
_SEARCHES = (1, 3)
_SIMULATED = 60
"""Sweeps of each alternative."""


@dataclass(frozen=True, kw_only=True)
class Want:
    """A quantity, and the factor about its estimate within which its interval is to lie."""

    quantity: str
    factor: float

    @classmethod
    def parse(cls, text: str) -> Want:
        """``critical_batch_size within 1.3``.

        Raises:
            CommandError: it is not of this form.
        """
        parts = re.fullmatch(r"\s*(\w+)\s+within\s+(\d+(?:\.\d+)?)\s*", text)
        if parts is None or not float(parts[2]) > 1:
            message = f"--want {text!r} is not a quantity within a factor over 1"
            raise CommandError(message, hint='--want "critical_batch_size within 1.3"')
        if parts[1] not in QUANTITIES:
            message = f"--want: {parts[1]!r} is not a quantity of a curve"
            raise CommandError(message, hint=nearest(parts[1], QUANTITIES, ", ".join(QUANTITIES)))
        return cls(quantity=parts[1], factor=float(parts[2]))


@dataclass(frozen=True, kw_only=True)
class CurvePlan:
    """What one curve of an experiment needs."""

    curve: str
    pilot: int
    """Recorded trials of each batch size that this rests on; 0: it rests on packaged curves."""
    expected: tuple[Expected, ...]
    """By ascending numbers of trained trials, up to one more than the first that is enough."""
    seconds: Mapping[int, float]
    """Of a trial on one worker, by batch size; NaN where nothing is known."""
    measured: bool
    """Whether these are those of recorded trials; else at most so many, as ``--dry-run`` has."""

    @property
    def chosen(self) -> Expected | None:
        """The first that is enough."""
        return next((each for each in self.expected if each.enough), None)

    def rows(self) -> list[dict[str, Any]]:
        """The alternatives as plain values; infinite widths are None."""
        return [
            {
                "curve": self.curve,
                "batch_sizes": list(each.design.batch_sizes),
                "trials": each.design.trials,
                "searches": each.design.searches,
                "width": _finite(each.factor),
                "width_low": _finite(each.low),
                "width_high": _finite(each.high),
                "share_within": each.share,
                "share_open": each.open,
                "trained": each.design.trained,
                "seconds": _finite(self.cost(each)),
                "chosen": each is self.chosen,
            }
            for each in self.expected
        ]

    def cost(self, of: Expected) -> float:
        """Seconds of one worker for all trials of a design."""
        design = of.design
        each = sum(self.seconds[size] for size in design.batch_sizes)
        return each * design.trials * design.searches


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def plans(
    source: str | Path | Mapping[str, Any],
    want: Want,
    overrides: Sequence[str] = (),
    results: str | Path | Location | None = None,
) -> list[CurvePlan]:
    """What each curve of an experiment needs, by simulation; nothing is trained but probes.

    It rests on the trials that the results folder holds of the curve, if there are eight of each
    batch size, else on packaged curves.

    Raises:
        CommandError: a curve of fewer than three batch sizes.
        ExperimentError, WorkloadError, ResultsError: as ``plan``.
    """
    from analysis.widths import prior
    from analysis.widths.expected import Known, designs, expected
    from experiments.records.planned import planned

    where = Location.of(results or default_results())
    experiment = load(source, {}, overrides)
    every = planned(experiment, known={})
    costs = plan(source, overrides, where)
    at_most = costs["worker_hours"] * 3600 / costs["trials"]
    curves: dict[str, list[tuple[Study, float]]] = {}
    for each, seconds in zip(every, at_most, strict=True):
        if not each.study.replicate:
            name = each.label.rpartition(", batch ")[0]
            curves.setdefault(name, []).append((each.study, float(seconds)))
    pilots, trained = _pilots(where), _trial_seconds(where)
    made = []
    for name, pairs in curves.items():
        studies = [study for study, _ in pairs]
        sizes = [study.batch_size for study in studies]
        if len(sizes) < 3:
            message = f"{name}: a curve of fewer than three batch sizes has no {want.quantity}"
            raise CommandError(message, hint="add batch sizes to the grid")
        # The curve that has trials of all of these studies, and of no others.
        ids = {study.id for study in studies}
        pilot = next((curve for curve in pilots if ids == {*curve.studies}), None)
        known = Known.of_pilot(pilot) if pilot else None
        first = studies[0]
        if known is None:
            tuned = [each for each in first.search.space.values() if each.scale != "discrete"]
            known = prior.known(sizes, len(tuned))
            pilot = None
        numbers = sorted({*_TRIALS, max(first.trials, _TRIALS[0])})
        alternatives = designs(sizes, numbers, _SEARCHES if len(curves) == 1 else (1,))
        ratio = first.evaluation_ratio or 1.05
        seconds = {study.batch_size: trained.get(study.id, math.nan) for study in studies}
        measured = not any(map(math.isnan, seconds.values()))
        if not measured:
            seconds = {study.batch_size: at for study, at in pairs}
        each_expected = expected(
            known, alternatives, want.quantity, want.factor, ratio=ratio, simulated=_SIMULATED
        )
        made.append(CurvePlan(
            curve=name, pilot=pilot.trials if pilot else 0, expected=tuple(each_expected),
            seconds=seconds, measured=measured,
        ))  # fmt: skip
    return made


def _pilots(where: Location) -> list[Curve]:
    """The curves of the trials that a results folder holds; a missing folder holds none."""
    import results as dataset
    from analysis.curves.curve import curves

    if not where.files("trials", ".parquet"):
        return []
    run = dataset.open(where)
    return curves(run.trials, studies=run.studies) if len(run.trials) else []


def _trial_seconds(where: Location) -> dict[str, float]:
    """Seconds of a worker for a recorded trial, by study."""
    from experiments.records.status import status

    if not where.files("trials", ".parquet"):
        return {}
    studies: pd.DataFrame = status(where).studies
    return dict(zip(studies["study"], studies["trial_seconds"], strict=True))
