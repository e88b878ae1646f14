"""A finished training run and how it compares with its record; how workloads are referred to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from experiments.plan import Measurement, Outcome, Study, Trial, WorkloadRef
from results.counts import count
from results.targets.target import Target

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from torch import Tensor

    from workloads import Workload

OnMeasure = Callable[[Study, Measurement], None]


@dataclass(frozen=True, kw_only=True)
class TrialRun:
    """A finished training run."""

    study: Study
    trial: Trial
    outcome: Outcome
    engine: str
    metaparameters: Mapping[str, Any]
    """All arguments of the optimizer and the schedule, defaults included."""
    evaluations: Sequence[Measurement]
    weights: Mapping[str, Tensor] = field(repr=False)
    """Parameters and buffers by name, as the last evaluation measured them: averaged, where a
    technique evaluates an average."""
    recorded: Mapping[str, Any] | None = None
    """The row of the trial that this one repeats, and ``measurements``: its metric and how
    many examples were read (NaN: the whole split) by step."""

    @property
    def steps_to_target(self) -> int | None:
        """The first evaluated step strictly better than the target."""
        return self.outcome.steps_to_target

    @property
    def target(self) -> Target:
        """The target that it was trained to."""
        return self.study.targets[-1]

    @property
    def measurements(self) -> pd.DataFrame:
        """One row an evaluation: step, examples, train_seconds, and each metric; evaluated_examples
        too, where some evaluations read a part of the split."""
        import pandas as pd

        whole = all(m.evaluated_examples is None for m in self.evaluations)
        return pd.DataFrame(
            {
                "step": m.step,
                "examples": m.examples,
                "train_seconds": m.train_seconds,
                **m.metrics,
                **({} if whole else {"evaluated_examples": m.evaluated_examples}),
            }
            for m in self.evaluations
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """The target's metric against the step, with the target and where it was reached."""
        import matplotlib.pyplot as plt

        from analysis.figures.drawing.colours import FAINT
        from analysis.figures.drawing.page import COLUMN, Page
        from analysis.figures.drawing.style import curve_style, grid

        frame, target = self.measurements, self.target
        with Page().context():
            if ax is None:
                size = (COLUMN, 0.7 * COLUMN)
                ax = plt.subplots(figsize=size, layout="constrained")[1]
            ax.set(xscale="log", xlabel="step", ylabel=target.metric.replace("_", " "))
            grid(ax)
            ax.plot(frame["step"], frame[target.metric], color=curve_style(0).colour)
            ax.axhline(target.value, color=FAINT, linestyle="--", linewidth=0.8)
            # On the left, where a curve that is still far from its target leaves room.
            ax.annotate(
                str(target), (0, target.value), xycoords=("axes fraction", "data"),
                xytext=(3, 3), textcoords="offset points", color=FAINT,
            )  # fmt: skip
            if self.steps_to_target is not None:
                hit = frame[frame["step"] == self.steps_to_target]
                ax.plot(hit["step"], hit[target.metric], marker="o", color=curve_style(1).colour)
                ax.set_title(f"target reached at step {self.steps_to_target:,}")
        return ax

    @property
    def algorithm(self) -> str:
        """The optimizer with the values of its metaparameters, in one line."""
        values = ", ".join(f"{name} {value}" for name, value in self.metaparameters.items())
        return f"{self.study.optimizer}: {values}" if values else self.study.optimizer

    @property
    def verdict(self) -> str:
        """How it ended, in one line."""
        if self.recorded is not None:
            return self._against_record()
        outcome = self.outcome
        last = self.evaluations[-1].metrics if self.evaluations else {}
        if outcome.steps_to_target is not None:
            return (
                f"{self.target} reached at step {outcome.steps_to_target:,} "
                f"(last miss: {outcome.last_miss:,})"
            )
        if outcome.stop_reason == "diverged":
            return f"diverged by step {outcome.steps_run:,}"
        at = last.get(self.target.metric, math.nan)
        return (
            f"{self.target} not reached in {count(outcome.steps_run, 'step')}: "
            f"{self.target.metric} is {at:.4g}"
        )

    @property
    def equal(self) -> bool:
        """Whether a repeated trial stopped at the same step with the same measurements."""
        if self.recorded is None:
            return True
        if self.recorded["stop_reason"] == "error":
            return False  # the recorded trial raised an error
        if self.outcome.steps_run != int(self.recorded["steps_run"]):
            return False
        return self._first_difference() is None

    def _first_difference(self) -> int | None:
        """The first step at which the target's metric differs from what was recorded."""
        assert self.recorded is not None
        recorded: Mapping[int, tuple[float, float]] = self.recorded["measurements"]
        for evaluation in self.evaluations:
            before, examples = recorded.get(evaluation.step, (None, math.nan))
            read = evaluation.evaluated_examples or math.nan
            # Another target ends evaluations elsewhere.
            alike = read == examples or (math.isnan(read) and math.isnan(examples))
            if before is not None and alike and before != evaluation.metrics[self.target.metric]:
                return evaluation.step
        return None

    def _against_record(self) -> str:
        assert self.recorded is not None
        now, then = self.outcome.steps_run, int(self.recorded["steps_run"])
        if self.recorded["stop_reason"] == "error":
            ran = count(now, "step")
            return f"{ran} without the error that was recorded after step {then:,}"
        line = f"{count(now, 'step')}, recorded {then:,}: {'equal' if self.equal else 'different'}"
        apart = self._first_difference()
        return line if apart is None else f"{line} ({self.target.metric} from step {apart:,} on)"


def reference(workload: str | type[Workload] | Workload, fields: Mapping[str, Any]) -> WorkloadRef:
    """How a name, a class or an object is loaded again.

    A class in a file is named by the file, so that another process finds it too.
    """
    if isinstance(workload, str):
        return WorkloadRef(spec=workload, fields=dict(fields), base=str(Path.cwd()))
    cls = workload if isinstance(workload, type) else type(workload)
    its_fields = {} if isinstance(workload, type) else workload.fields
    spec: Any = cls
    from workloads.registry import packaged_name

    if name := packaged_name(cls):
        spec = name
    else:
        try:
            file = inspect.getsourcefile(cls)
        except TypeError:  # a notebook's cell: the class itself is sent
            file = None
        if file and Path(file).is_file() and "." not in cls.__qualname__:
            spec = f"{Path(file).resolve()}:{cls.__name__}"
    return WorkloadRef(spec=spec, fields={**its_fields, **fields}, base=str(Path.cwd()))


def pick_device(device: str | None) -> str:
    """``device``, else the first GPU, else the CPU.

    Raises:
        CommandError: no such device here.
    """
    import torch

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CommandError(
            f"this machine has no device {device!r}: {str(error).splitlines()[0]}",
            hint="cpu, cuda or cuda:1",
        ) from None
    return device
