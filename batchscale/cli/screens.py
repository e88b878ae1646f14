"""What each command prints, from what `batchscale.api` returns."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.output.display import clock
from batchscale.output.errors import FAILED_TRIALS
from batchscale.output.tables import Format, records, render
from results.counts import agreeing, count

if TYPE_CHECKING:
    import pandas as pd

    from batchscale.run import Run
    from batchscale.trials import TrialRun
    from experiments.plan import Measurement, Study
    from experiments.records.status import Status
    from experiments.training.check import Finding

_RATIO = 1.9
"""Of the looks of one trial, those are shown whose step has grown by this much."""


def frame(found: pd.DataFrame, format: Format) -> str:
    """A data frame; its columns stand even when it has no rows."""
    names = [str(column) for column in found.columns]
    text = render(records(found), format, columns=names)
    return f"{text}no rows\n" if format == "table" and found.empty else text


def write(found: pd.DataFrame, output: str, format: Format) -> Path:
    """Write a query's answer: by the file's suffix, or as a table for a paper or a page."""
    from results.storage.save import destination, save

    path = destination(output)
    forms: dict[str, Format] = {".tex": "latex", ".md": "markdown"}
    if path.suffix.lower() in forms or format in ("latex", "markdown"):
        from results.storage.location import write_file, writing

        with writing(path):
            text = frame(found, forms.get(path.suffix.lower(), format))
            write_file(str(path.absolute()), text.encode())
    else:
        save(found, path)
    return path


def plan(found: pd.DataFrame, format: Format) -> str:
    """What a sweep would train: columns that are the same in all studies go to the last line."""
    if format in ("csv", "json"):
        return frame(found, format)
    evaluating = float((found["worker_hours"] * found["evaluation_share"]).sum())
    shown = found.drop(columns=["worker_hours", "evaluation_share"])
    shown["memory"] = [_mebibytes(count) for count in found["memory"]]
    shown["at_most"] = [clock(hours * 3600) for hours in found["worker_hours"]]
    # As text: a field may be a list.
    same = [n for n in shown.columns if n not in _PLANNED and shown[n].map(str).nunique() == 1]
    text = frame(shown.drop(columns=same), format)
    if format != "table":
        return text
    wanted, have = int(found["trials"].sum()), int(found["recorded"].sum())
    all_of = ", ".join(f"{n.replace('_', ' ')} {shown[n].iloc[0]}" for n in same)
    steps, examples = int(found["most_steps"].sum()), int(found["most_examples"].sum())
    hours = float(found["worker_hours"].sum())
    example = found.attrs.get("example_unit", "example")
    unit = "GPU-hours" if found.attrs.get("device") == "cuda" else "worker-hours"
    return (
        f"{text}\n{count(len(found), 'study')}, {count(wanted, 'feasible trial')} wanted, "
        f"{count(have, 'trial')} recorded"
        f"{f'; {all_of}' if all_of else ''}\n"
        f"at most {count(steps, 'step')}, {count(examples, example)}, {hours:.2g} {unit} of this "
        f"machine ({clock(hours * 3600)} on one worker, {evaluating / hours:.0%} of it for "
        "evaluations), if every trial ran its whole budget; stopping at the target and dominated "
        "stopping leave less\n"
    )


_PLANNED = (
    "optimizer",
    "batch_size",
    "trials",
    "recorded",
    "budget_steps",
    "most_steps",
    "most_examples",
    "memory",
    "at_most",
)


def _mebibytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{max(1, round(count / 2**20))} MiB"


def summary(run: Run) -> int:
    """What a sweep did; the exit status: 3 where it finished but some trials failed."""
    did = run.summary
    assert did is not None
    print(
        f"{did.experiment}: {count(did.trained, 'trial')} trained in {clock(did.seconds)}, "
        f"{did.trials:,} recorded; {did.reached} of {count(did.studies, 'study')} reached the "
        "target"
    )
    print(f"results: {did.path}")
    if did.failed:
        them = "it" if did.failed == 1 else "them"
        failed = f"{count(did.failed, 'trial')} failed; the same command tries {them} once more"
        print(failed, file=sys.stderr)
    if not did.complete:
        print("not complete: the same command goes on from here")
    return FAILED_TRIALS if did.failed else 0


def status(found: Status, format: Format) -> str:
    """Where a results folder stands: its experiments, the packs that run, the time left."""
    if format in ("csv", "json"):
        return frame(found.studies, format)
    others = int(found.studies["other_searches"].sum())
    table = found.algorithms
    text = frame(table if others else table.drop(columns="other_searches"), format)
    if format != "table":
        return text
    if others:
        text += (
            f"\n{count(others, 'trial')} of other searches of these studies (another space, method "
            f"or seed) {agreeing(others, 'are')} not counted: regimes, plot and report do so with "
            "--search all\n"
        )
    if len(found.packs):
        packs = found.running
        shown = [*_PACK, "best", "machine"]
        words = [f"{seconds:.0f} s ago" for seconds in packs["silent"]]
        text += f"\n{frame(packs[shown].assign(last_word=words), format)}"
    return f"{text}\n{_left(found)}\n"


_PACK = ["experiment", "optimizer", "batch_size", "trials", "step"]


def _left(found: Status) -> str:
    if not found.left:
        return "complete"
    start = f"{count(found.left, 'trial')} left"
    if found.seconds is not None:
        return f"{start}, about {clock(found.seconds)} with the packs that run now"
    if found.work_seconds is not None:
        return f"{start}, about {clock(found.work_seconds)} for one worker; nothing runs now"
    return f"{start}; nothing runs now"


def listing(names: Mapping[str, str], format: Format) -> str:
    """Names, each with one line."""
    rows = [{"name": name, "what": what} for name, what in names.items()]
    return render(rows, format, columns=("name", "what"))


def new(workload: Path, experiment: Path) -> str:
    """What was written, and what to do with it."""
    spec = f"{workload}:{_class_in(workload)}"
    return (
        f"wrote {workload} and {experiment}. Next:\n"
        f"  batchscale check {spec}\n"
        f"  batchscale trial {spec} --optimizer sgd --batch-size 64 --param learning_rate=0.1\n"
        f"  batchscale sweep {experiment}\n"
    )


def _class_in(workload: Path) -> str:
    import ast

    tree = ast.parse(workload.read_text(encoding="utf-8"))
    return next(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def check(findings: Sequence[Finding], format: Format) -> str:
    """Findings, passed or not; the facts among them without a verdict."""
    words = {True: "pass", False: "FAIL", None: ""}
    rows = [
        {
            "check": finding.check,
            "passed" if format in ("json", "csv") else "": finding.passed
            if format in ("json", "csv")
            else words[finding.passed],
            "finding": finding.finding,
        }
        for finding in findings
    ]
    text = render(rows, format)
    failed = sum(finding.passed is False for finding in findings)
    if format == "table":
        text += f"\n{failed} of the checks failed\n" if failed else "\nit keeps the contract\n"
    return text


class TrialOutput:
    """A trial on the screen: a line each time its step has about doubled, and how it ended."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self._shown = 0.0
        self._first = ""

    def __call__(self, study: Study, look: Measurement) -> None:
        """A measurement was made."""
        self._first = study.targets[-1].metric
        if self.format != "table" or look.step < self._shown * _RATIO:
            return
        self._shown = look.step
        self._line(look)

    def end(self, run: TrialRun) -> int:
        """Its metaparameters, and how it ended; the exit status.

        That is 1 where a recorded trial came out differently.
        """
        if self.format == "table":
            if run.looks and run.looks[-1].step > self._shown:
                self._line(run.looks[-1])
            print(run.algorithm)
            print(run.verdict)
        else:
            print(frame(run.measurements, self.format), end="")
            print(run.algorithm, file=sys.stderr)
            print(run.verdict, file=sys.stderr)
        return 0 if run.equal else 1

    def _line(self, look: Measurement) -> None:
        names = sorted(look.metrics, key=lambda name: (name != self._first, name))
        metrics = "".join(f"  {name} {look.metrics[name]:<10.4g}" for name in names)
        print(f"step {look.step:>8,}{metrics}{look.train_seconds:8.2f} s", flush=True)
