"""Seconds a step by the number of devices and the batch size: measured ones, or a model's."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from analysis.fit.convex import Array
from analysis.notes import Note
from results.errors import ResultsError

COLUMNS = ("devices", "batch_size", "seconds")
_CURVE = "curve"
_FILE = f"a CSV file with the columns {', '.join(COLUMNS)}"


class StepTime(ABC):
    """What a step takes."""

    even: ClassVar[bool] = False
    """Whether it takes what its largest share does, so that multiples of the devices are best."""
    freedom: float = math.inf
    """Degrees of freedom of its errors."""

    @abstractmethod
    def seconds(self, curve: str, devices: int, batch_sizes: Array) -> tuple[Array, Array]:
        """Seconds a step (m,), and the standard errors of their natural logs (m,); NaN where that
        is not known."""

    def of_gradients(self, number: int) -> StepTime:  # noqa: ARG002 - a hook
        """Of a curve whose steps take so many gradients of the batch."""
        return self

    def sizes(self, curve: str, devices: int) -> Array:  # noqa: ARG002 - a hook
        """Batch sizes that are to be among those that are compared."""
        return np.empty(0)

    def devices(self) -> Sequence[int]:
        """The numbers of devices that it is of; none: any."""
        return ()

    def notes(self, curve: str) -> tuple[Note, ...]:  # noqa: ARG002 - a hook
        """What limits them."""
        return ()

    def check(self, curves: Collection[str]) -> None:  # noqa: B027 - a hook
        """Refuse those of another curve's label while one of ``curves`` has none."""


@dataclass(frozen=True, kw_only=True)
class Measured(StepTime):
    """A table of measurements.

    Between two batch sizes of one number of devices seconds are linear in the batch size, as they
    are where every example costs the same; beyond them, and at other numbers of devices, they are
    not known. Of several measurements of one place the mean of the logs counts. The error of a log
    is that of all places together, which few repeats of a single one would not tell.
    """

    rows: Mapping[tuple[str | None, int], tuple[Array, Array, Array]]
    """By curve (None: all) and devices: batch sizes, seconds, errors of their logs; (n,) each."""
    freedom: float = math.inf

    @classmethod
    def of(cls, table: pd.DataFrame, name: str = "the table of step times") -> Measured:
        """
        Args:
            table: columns ``devices``, ``batch_size``, ``seconds``; ``curve``, where steps of
                several curves differ, has their labels.

        Raises:
            ResultsError: a column that is not there, no rows, or a cell that is no positive number.
        """
        if missing := [column for column in COLUMNS if column not in table]:
            raise ResultsError(
                f"{name} has no column {missing[0]!r}", hint=f"it needs {', '.join(COLUMNS)}"
            )
        if table.empty:
            raise ResultsError(f"{name} has no rows", hint=_FILE)
        numbers = table[list(COLUMNS)].apply(pd.to_numeric, errors="coerce")
        wrong = ~((numbers > 0) & np.isfinite(numbers))
        wrong["devices"] |= numbers["devices"] % 1 != 0
        if wrong.any(axis=None):
            row, column = np.argwhere(wrong.to_numpy())[0]
            cell = table[COLUMNS[column]].iloc[row]
            raise ResultsError(
                f"{name}, row {row + 1}: {COLUMNS[column]} is {str(cell)!r}, no positive "
                + ("whole number" if COLUMNS[column] == "devices" else "number")
            )
        numbers["log"] = np.log(numbers["seconds"])
        named = table[_CURVE].astype(object) if _CURVE in table else None
        numbers[_CURVE] = None if named is None else named.where(named.notna(), None)
        places = numbers.groupby([_CURVE, *COLUMNS[:2]], dropna=False)["log"]
        freedom = len(numbers) - places.ngroups
        squares = float(((numbers["log"] - places.transform("mean")) ** 2).sum())
        scatter = math.sqrt(squares / freedom) if freedom else 0.0
        rows = {}
        for (curve, devices), part in numbers.groupby([_CURVE, "devices"], dropna=False):
            each = part.groupby("batch_size")["log"].agg(["mean", "count"])
            errors = scatter / np.sqrt(each["count"])
            of = None if pd.isna(curve) else str(curve)
            sizes = each.index.to_numpy(float)
            rows[of, int(devices)] = sizes, np.exp(each["mean"].to_numpy()), errors.to_numpy()
        return cls(rows=rows, freedom=freedom or math.inf)

    @classmethod
    def read(cls, path: str | Path) -> Measured:
        """A CSV file.

        Raises:
            ResultsError: it cannot be read, or as of ``of``.
        """
        try:
            table = pd.read_csv(path, skipinitialspace=True)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise ResultsError(f"cannot read {path}: {why}", hint=_FILE) from error
        return cls.of(table, str(path))

    def check(self, curves: Collection[str]) -> None:
        """
        Raises:
            ResultsError: a curve has no row, and a row's label is that of none of them.
        """
        named = {curve for curve, _ in self.rows}
        others = sorted(each for each in named if each is not None and each not in curves)
        if others and None not in named and not named.issuperset(curves):
            raise ResultsError(
                f"the step times are of a curve {others[0]!r}, which is not among those planned",
                hint=f"the column curve has labels: {', '.join(curves)}",
            )

    def sizes(self, curve: str, devices: int) -> Array:
        """The measured ones."""
        rows = self._of(curve, devices)
        return np.empty(0) if rows is None else rows[0]

    def devices(self) -> Sequence[int]:
        """The measured ones."""
        return sorted({devices for _, devices in self.rows})

    def seconds(self, curve: str, devices: int, batch_sizes: Array) -> tuple[Array, Array]:
        """As of ``StepTime``; an error between two measurements is as if they erred together."""
        if (rows := self._of(curve, devices)) is None:
            return (np.full(len(batch_sizes), np.nan),) * 2
        sizes, seconds, errors = rows
        # A batch size that comes of logs may be off by rounding.
        inside = (batch_sizes >= sizes[0] * (1 - 1e-9)) & (batch_sizes <= sizes[-1] * (1 + 1e-9))
        at = np.clip(batch_sizes, sizes[0], sizes[-1])
        taken = np.where(inside, np.interp(at, sizes, seconds), np.nan)
        return taken, np.interp(at, sizes, seconds * errors) / taken

    def _of(self, curve: str, devices: int) -> tuple[Array, Array, Array] | None:
        return self.rows.get((curve, devices), self.rows.get((None, devices)))


@dataclass(frozen=True, kw_only=True)
class Modelled(StepTime):
    """Compute that is shared by the devices, and a ring all-reduce of the gradient.

    Of n devices each has B/n examples, and sends and gets 2 (n - 1)/n of the gradient's bytes in 2
    (n - 1) messages (Patarasuk & Yuan 2009, doi:10.1016/j.jpdc.2008.09.002). Communication hides
    behind a share of the compute. A model has no interval.
    """

    even: ClassVar[bool] = True
    seconds_per_example: float
    """Of one device, forward and backward."""
    seconds_per_step: float = 0.0
    """What a step takes besides, whatever the batch size."""
    gradient_bytes: float = 0.0
    bandwidth: float = math.inf
    """Bytes a second of a device's link."""
    latency: float = 0.0
    """Seconds of a message."""
    overlap: float = 0.0
    """The share of the compute behind which communication hides, 0 to 1."""

    def __post_init__(self) -> None:
        """
        Raises:
            ResultsError: a number that cannot be.
        """
        for name, value in vars(self).items():
            least = 1e-300 if name in ("seconds_per_example", "bandwidth") else 0.0
            most = {"overlap": 1.0, "bandwidth": math.inf}.get(name, 1e300)
            if not least <= value <= most:
                raise ResultsError(
                    f"{name.replace('_', ' ')} is {value:g}, which cannot be",
                    hint="a share from 0 to 1" if name == "overlap" else "a number above 0",
                )
        if self.gradient_bytes and self.bandwidth == math.inf:
            raise ResultsError(
                "the gradient's bytes take no time without the bandwidth of a link",
                hint="--bandwidth 1e10, bytes a second",
            )

    def of_gradients(self, number: int, measured: bool = False) -> Modelled:
        """As of ``StepTime``; ``measured``: its compute is that of all of them."""
        each = ("gradient_bytes", "latency") + ("seconds_per_example",) * (not measured)
        return replace(self, **{name: number * getattr(self, name) for name in each})

    def seconds(self, curve: str, devices: int, batch_sizes: Array) -> tuple[Array, Array]:
        """As of ``StepTime``; each device needs an example."""
        del curve
        compute = self.seconds_per_example * np.ceil(batch_sizes / devices - 1e-9)
        ring = 2 * (devices - 1)
        sent = ring / devices * self.gradient_bytes / self.bandwidth + ring * self.latency
        taken = self.seconds_per_step + compute + np.maximum(sent - self.overlap * compute, 0.0)
        enough = batch_sizes >= devices * (1 - 1e-9)
        return np.where(enough, taken, np.nan), np.where(enough, 0.0, np.nan)


@dataclass(frozen=True, kw_only=True)
class Fitted(StepTime):
    """Models whose compute is fitted to measurements on one device, and which extrapolate to more.

    The root mean square of what a fit leaves is an error of the log of its seconds, and of both
    parameters, which tell little of shares that are smaller than the measured ones. It has the
    degrees of freedom of the fit to the fewest batch sizes.
    """

    even: ClassVar[bool] = True
    measured: Measured
    models: Mapping[str | None, tuple[Modelled, float, Array]]
    """By curve (None: all), each with its error, and the parameters' covariance by its square."""
    freedom: float

    @classmethod
    def of(cls, measured: Measured, communication: Mapping[str, float]) -> Fitted:
        """
        Args:
            communication: the arguments of ``Modelled`` that are not of compute.

        Raises:
            ResultsError: fewer than three batch sizes on one device, or seconds that do not grow
                with the batch size.
        """
        models, fewest = {}, math.inf
        for curve, devices in measured.rows:
            if devices == 1:
                sizes, seconds, _ = measured.rows[curve, devices]
                fixed, each, left, covariance = _least_squares(sizes, seconds)
                model = Modelled(seconds_per_example=each, seconds_per_step=fixed, **communication)
                models[curve] = model, left, covariance
                fewest = min(fewest, len(sizes))
        if not models:
            raise ResultsError("no step time of one device to fit a model to", hint=_TO_FIT)
        return cls(measured=measured, models=models, freedom=fewest - 2)

    def of_gradients(self, number: int) -> Fitted:
        """As of ``StepTime``."""
        made = {k: (m.of_gradients(number, True), e, c) for k, (m, e, c) in self.models.items()}
        return replace(self, models=made)

    def seconds(self, curve: str, devices: int, batch_sizes: Array) -> tuple[Array, Array]:
        """As of ``StepTime``."""
        if (of := self._of(curve)) is None:
            return (np.full(len(batch_sizes), np.nan),) * 2
        model, left, covariance = of
        taken, errors = model.seconds(curve, devices, batch_sizes)
        terms = np.stack([np.ones(len(taken)), np.ceil(batch_sizes / devices - 1e-9)]) / taken
        return taken, errors + left * np.sqrt(1 + (terms * (covariance @ terms)).sum(0))

    def notes(self, curve: str) -> tuple[Note, ...]:
        """What was fitted, and how far it is from measurements on several devices."""
        if (of := self._of(curve)) is None:
            return ()
        model, left, _ = of
        notes = [Note("fitted_step_time", each=model.seconds_per_example,
                      fixed=model.seconds_per_step, scatter=left)]  # fmt: skip
        for (named, devices), (sizes, seconds, _) in self.measured.rows.items():
            if devices > 1 and named in (None, curve) and sizes[-1] >= devices:
                ratios = model.seconds(curve, devices, sizes)[0] / seconds
                low, high = float(np.nanmin(ratios)), float(np.nanmax(ratios))
                notes.append(Note("model_and_measured", devices=devices, low=low, high=high))
        return tuple(notes)

    def check(self, curves: Collection[str]) -> None:
        """As of ``Measured``."""
        self.measured.check(curves)

    def _of(self, curve: str) -> tuple[Modelled, float, Array] | None:
        return self.models.get(curve, self.models.get(None))


_TO_FIT = "seconds of a step on one device at three batch sizes or more (devices = 1)"


def _least_squares(sizes: Array, seconds: Array) -> tuple[float, float, float, Array]:
    """Seconds of a step and of an example whose relative errors have the least squares; what these
    leave, the root of their mean with two parameters taken off; and both's covariance by it."""
    if len(sizes) < 3:
        raise ResultsError("too few step times of one device to fit a model to", hint=_TO_FIT)
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    fixed, each = np.linalg.lstsq(columns, np.ones(len(sizes)), rcond=None)[0]
    if fixed < 0:  # a step cannot take less than nothing besides
        fixed, each = 0.0, columns[:, 1].sum() / (columns[:, 1] ** 2).sum()
    if each <= 0:
        why = "the seconds of a step do not grow with the batch size: there is no model of them"
        raise ResultsError(why, hint="larger batch sizes, or --step-time alone")
    left = columns @ [fixed, each] - 1
    scatter = float(np.sqrt((left**2).sum() / (len(sizes) - 2)))
    inverse = np.asarray(np.linalg.inv(columns.T @ columns), dtype=np.float64)
    return float(fixed), float(each), scatter, inverse


def step_time(
    measured: str | Path | pd.DataFrame | Sequence[Mapping[str, Any]] | None,
    model: Mapping[str, float | None],
) -> StepTime:
    """Of a file, of a table, or of a model's numbers; a model without those of compute is fitted to
    the measurements.

    Raises:
        ResultsError: neither is given, or both with compute, or one of them cannot be.
    """
    given = {name: float(value) for name, value in model.items() if value is not None}
    compute = {"seconds_per_example", "seconds_per_step"} & {*given}
    if (measured is None and not given) or (measured is not None and compute):
        raise ResultsError(
            "the seconds of a step are needed" if measured is None else "two kinds of step times",
            hint="one of --measure, --step-time FILE.csv (devices, batch_size, seconds) and "
            "--seconds-per-example 0.001 --gradient-bytes 1e8 --bandwidth 1e11",
        )
    if measured is None:
        if "seconds_per_example" not in given:
            hint = "--seconds-per-example 0.001, on one device, forward and backward"
            raise ResultsError("a model of step times needs the seconds of an example", hint=hint)
        return Modelled(**given)
    if isinstance(measured, (str, Path)):
        rows = Measured.read(measured)
    else:
        rows = Measured.of(pd.DataFrame(measured))
    return Fitted.of(rows, given) if given else rows
