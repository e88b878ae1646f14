"""Checks that a program keeps the contract of a sweep: three short runs, of a minute together."""

from __future__ import annotations

import math
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from experiments.errors import nearest
from experiments.plan import Study, Trial
from experiments.programs.metrics import Metrics
from experiments.programs.nodes import start
from experiments.programs.process import Ended
from experiments.programs.reports import Report
from experiments.training.check import Finding
from results.counts import count

_MEASUREMENTS = 5
_POLL_SECONDS = 0.1
PATIENCE_SECONDS = 300.0
"""Until two reports and a measurement, of each run: a slow start or a long epoch is no fault."""
SEEN = ("examples", "samples", "tokens")
"""How a name ends of what a program has read so far, by which its batch size is seen."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A short run of a program: some measurements, and its end."""

    reports: Sequence[Report]
    by_itself: bool
    """Whether it ended before it was told to."""
    seconds: float
    """From SIGTERM to the end of its last process."""
    ended: Ended
    printed: Sequence[str]
    """Its last line of standard output."""
    form: str
    """How a report of it would be, and what there is where it was to be."""

    @property
    def last_line(self) -> str:
        """Of its standard error, or else of its output, as the end of a sentence."""
        lines = self.ended.stderr or self.printed
        return f"; its last line: {lines[-1]}" if lines else ""

    def values(self, metric: str) -> dict[int, float]:
        """A metric by step; of several reports of one step the first."""
        return {r.step: r.metrics[metric] for r in reversed(self.reports) if metric in r.metrics}


def check(
    studies: Sequence[Study],
    *,
    seconds: float = 60.0,
    observer: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Run the first trial of a program twice, and with another batch size.

    Args:
        studies: of one experiment, by batch size.
        seconds: for all runs together, from their first measurement until they are to end.
        observer: called with a few words for each run that begins, and while one measures nothing.
    """
    study = studies[0]
    (trial,) = study.draw(0, 1)
    alike = (study.optimizer, study.workload)
    others = [each for each in studies if (each.optimizer, each.workload) == alike]
    other = next((each for each in others if each.batch_size != study.batch_size), None)
    size = f"batch size {study.batch_size}"
    observer(size)
    first = _run(study, trial, seconds / 2, observer)
    findings = _of_reports(first, study)
    if not all(finding.passed for finding in findings):
        return findings
    metric, left = study.targets[-1].metric, seconds / 4
    observer(f"{size}, with the same seed")
    again = _run(study, trial, left, observer)
    findings += [_of_term(first), *_of_end(again, study, " with the same seed")]
    findings.append(_of_seed(first.values(metric), again.values(metric)))
    if other is not None:
        observer(f"batch size {other.batch_size}")
        of_other = _run(other, trial, left, observer)
        ends = _of_end(of_other, other, f" at batch size {other.batch_size}")
        findings += ends or [_of_size(metric, study, first, other, of_other)]
    return findings


def _run(study: Study, trial: Trial, seconds: float, observer: Callable[[str], None]) -> _Run:
    metric, reports, measured = study.targets[-1].metric, list[Report](), 0
    until, waits, said = time.monotonic() + PATIENCE_SECONDS, True, False
    with (
        tempfile.TemporaryDirectory(prefix="batchscale-check-") as folder,
        closing(start(study, trial, Path(folder))) as process,
    ):
        while process.ended is None and time.monotonic() < until:
            reports += process.reports(_POLL_SECONDS)
            measured = sum(metric in (*r.metrics, *r.no_numbers) for r in reports)
            if waits and measured and len({report.step for report in reports}) > 1:
                waits, until = False, time.monotonic() + seconds
            elif reports and not measured and not said:
                observer(f"no {metric} yet, only {', '.join(reports[-1].metrics) or 'steps'}")
                said = True
            if measured >= _MEASUREMENTS:
                break
        by_itself, ended_at = process.ended is not None, time.monotonic()
        process.end()
        while process.ended is None:
            reports += process.reports(_POLL_SECONDS)
        how, took = process.ended, time.monotonic() - ended_at
        logs = (log.read_text("utf-8", "replace") for log in Path(folder).glob("stdout.log"))
        printed = [line[:500] for log in logs for line in log.splitlines() if line.strip()][-1:]
        metrics = Metrics(getattr(study.workload.program, "reports", None))
        default = f'a report is {{"step": 1, "{metric}": 0.5}} in a line, or what metrics says'
        form = f"{'metrics: ' if metrics.text else ''}{metrics.written(Path(folder), default)}"
        return _Run(
            reports=reports,
            by_itself=by_itself,
            seconds=took,
            ended=how,
            printed=printed,
            form=form,
        )


def _of_reports(run: _Run, study: Study) -> list[Finding]:
    """Whether it reports, by steps, and what the target needs; the last is of what failed."""
    metric = study.targets[-1].metric
    names = dict.fromkeys(name for report in run.reports for name in report.metrics)
    waited = "" if run.by_itself else f" in {PATIENCE_SECONDS:.0f} s"
    steps = [report.step for report in run.reports]
    if not steps:
        how = f"it ended: {run.ended}" if run.by_itself else "and it was still running"
        line = f"none{waited}, {how}{run.last_line}; {run.form}"
        return [Finding(check="reports", passed=False, finding=line)]
    line = f"{count(len(steps), 'report')}: {', '.join(names)}"
    findings = [Finding(check="reports", passed=True, finding=line), *(end := _of_end(run, study))]
    # Of several files, one may be read before another that is behind.
    several = Metrics(getattr(study.workload.program, "reports", None)).several
    order = [r.step for r in run.reports if metric in r.metrics or not several]
    grows = order == sorted(order) and min(steps) < max(steps)
    line = f"from {steps[0]:,} to {steps[-1]:,}"
    line += "" if grows else ": they must grow, by one an update"
    if grows or not end:
        findings.append(Finding(check="steps", passed=grows, finding=line))
    known = metric in names
    line = metric if known else f"no {metric}{waited}: {nearest(metric, names) or ', '.join(names)}"
    texts = [r.no_numbers[metric] for r in run.reports if metric in r.no_numbers]
    line = f"{metric} was {texts[0]!r}, which is no number" if texts and not known else line
    losses = [name for name in names if name == metric or name.endswith("loss")]
    if wrong := next((name for name in losses if _is_placeholder(run, name, metric)), None):
        known, line = False, f"{wrong} is not finite at some steps, and a sweep ends a trial there"
        line += " as diverged: leave it out of the report where it is not measured"
    return [*findings, Finding(check="metric", passed=known, finding=line)]


def _is_placeholder(run: _Run, name: str, metric: str) -> bool:
    """Whether values are not finite though it has not diverged: later ones are, or none before."""
    finite = [math.isfinite(r.metrics[name]) for r in run.reports if name in r.metrics]
    return finite != sorted(finite, reverse=True) or (name == metric and not any(finite[:1]))


def _of_end(run: _Run, study: Study, where: str = "") -> list[Finding]:
    """What is wrong with how it ended by itself, as a sweep would have it."""
    values = run.values(metric := study.targets[-1].metric).values()
    if where and not (run.by_itself or values):
        line = f"no {metric}{where} in {PATIENCE_SECONDS:.0f} s, and it was still running"
        return [Finding(check="metric", passed=False, finding=line + run.last_line)]
    over = any(not math.isfinite(v) or study.targets[-1].hit(v) for v in values)
    steps = [0, *sorted({report.step for report in run.reports})]
    next_step = steps[-1] + max(b - a for a, b in pairwise([*steps, steps[-1]]))
    if not run.by_itself or over or (run.ended.exit == 0 and next_step >= study.budget_steps):
        return []
    line = f"it ended{where} after step {steps[-1]:,} of {study.budget_steps:,}: {run.ended}"
    return [Finding(check="end", passed=False, finding=line + run.last_line)]


def _of_term(run: _Run) -> Finding:
    if run.by_itself:
        return Finding(check="SIGTERM", passed=None, finding=f"it had ended before: {run.ended}")
    passed = run.ended.signal != signal.SIGKILL
    line = f"its processes ended after {run.seconds:.1f} s{'' if passed else ', by SIGKILL'}"
    return Finding(check="SIGTERM", passed=passed, finding=line)


def _of_seed(first: Mapping[int, float], again: Mapping[int, float]) -> Finding:
    common = sorted(first.keys() & again.keys())
    far = max((_apart(first[step], again[step]) for step in common), default=math.nan)
    line = f"two runs of one seed differ by up to {far:.1g}: a trial cannot be repeated exactly"
    line = f"two runs of one seed agree at {count(len(common), 'step')}" if far == 0.0 else line
    line = line if common else "two runs of one seed have measured no step both"
    return Finding(check="seed", passed=far == 0.0 or None, finding=line)


def _of_size(metric: str, study: Study, run: _Run, other: Study, of_other: _Run) -> Finding:
    """Whether it uses the batch size that it is given."""
    sizes = f"batch sizes {study.batch_size} and {other.batch_size}"
    names = [name for report in run.reports for name in report.metrics if name.endswith(SEEN)]
    for name in [name for name in names if of_other.values(name)]:
        rates = [_rate(each.values(name)) for each in (run, of_other)]
        if rates[0] <= 0:  # such as the size of a split
            continue
        same = math.isclose(rates[0] * other.batch_size, rates[1] * study.batch_size, rel_tol=0.01)
        line = f"{name} a step at {sizes}: {rates[0]:,.6g} and {rates[1]:,.6g}"
        return Finding(check="batch size", passed=same, finding=line)
    values, others = run.values(metric), of_other.values(metric)
    common = sorted(values.keys() & others.keys())
    if common and all(values[step] == others[step] for step in common):
        line = f"{metric} is the same at {sizes}, to the last digit: it does not use it"
        return Finding(check="batch size", passed=False, finding=line)
    line = f"it reports neither examples nor tokens, by which its use could be seen at {sizes}"
    return Finding(check="batch size", passed=None, finding=line)


def _rate(values: Mapping[int, float]) -> float:
    """What is read a step: between the first report and the last, or up to the only one."""
    steps = sorted(values)
    if len(steps) == 1:
        return values[steps[0]] / max(1, steps[0])
    return (values[steps[-1]] - values[steps[0]]) / (steps[-1] - steps[0])


def _apart(a: float, b: float) -> float:
    """Relative; two NaN agree."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    return abs(a - b) / max(abs(a), abs(b))
