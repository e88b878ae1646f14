"""``batchscale trial``, ``check`` and ``new``: one workload, in this process."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.options import Device, Fmt, Json, Results, assignments, option, output_format
from batchscale.output.progress import say
from batchscale.output.tables import Format, frame_text, render
from results.counts import count

if TYPE_CHECKING:
    from batchscale.trials import TrialRun
    from experiments.plan import Measurement, Study
    from experiments.training.check import Finding

_PRINTED_EVERY = 1.9
"""An evaluation is printed when the step has grown by this factor since the last printed one."""


def trial(
    workload: Annotated[
        str | None, typer.Argument(metavar="WORKLOAD", help="A workload's name, or file.py:Class.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="An optimizer's name, or file.py:Class.")] = "sgd",
    batch_size: Annotated[int | None, typer.Option(help="Examples per step.")] = None,
    param: Annotated[
        list[str] | None,
        option("--param", "KEY=VALUE", "A metaparameter, or a field of the workload."),
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="A schedule's name, or file.py:Class.")
    ] = "constant",
    technique: Annotated[
        list[str] | None,
        option(
            "--technique",
            "NAME[=VALUE]",
            "A technique with its argument: --technique clip=1.0. Several arguments: "
            '"NAME={a: 1, b: 2}". Repeat it for several techniques.',
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help='The budget, as in a file: "50 epochs + 2000 steps".')
    ] = None,
    target: Annotated[
        str | None, typer.Option(help='Another target than the workload\'s: "METRIC < VALUE".')
    ] = None,
    engine: Annotated[str, typer.Option(help="module or stacked.")] = "module",
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
    from_: Annotated[
        str | None, option("--from", "TRIAL_ID", "Repeat a recorded trial, in its engine.")
    ] = None,
    results: Results = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="With --from: run the Python files that the record names. Those of yours that you "
            "have run before, unchanged, need none.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        option(
            "--save",
            "FILE.safetensors",
            "Save the weights that the last evaluation measured: averaged ones, if a "
            "technique evaluates an average.",
        ),
    ] = None,
    device: Device = None,
    threads: Annotated[
        int,
        typer.Option(
            help="Threads of the processor. Workers of a sweep have one each; more are slower if "
            "others use the processors too."
        ),
    ] = 1,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Train one trial in this process, without Ray: a new one, or a recorded one again."""
    from batchscale import training
    from batchscale.output.errors import CommandError

    output = _TrialOutput(output_format(format, json), threads)
    if from_ is not None:
        if workload is not None:
            raise CommandError("give a WORKLOAD or --from TRIAL_ID, not both")
        run = training.rerun(
            from_, results=results, device=device, threads=threads, save=save, trust=trust,
            on_measure=output,
        )  # fmt: skip
        return output.end(run)
    if trust:
        raise CommandError("--trust is for --from: a WORKLOAD that you name is run in any case")
    if workload is None or batch_size is None:
        raise CommandError(
            f"trial needs {'a WORKLOAD' if workload is None else '--batch-size'}",
            hint="batchscale trial digits-mlp --optimizer sgd --batch-size 64 "
            "--param learning_rate=0.1",
        )
    given = assignments(param or [], "--param")
    for name in given.keys() & inspect.signature(training.trial).parameters.keys():
        raise CommandError(
            f"--param {name}={given[name]}: {name} is neither a metaparameter nor a field",
            hint=f"--{name.replace('_', '-')}",
        )
    run = training.trial(
        workload,
        optimizer=optimizer,
        batch_size=batch_size,
        schedule=schedule,
        technique=_techniques(technique or []),
        budget=budget,
        target=target,
        engine=engine,
        seed=seed,
        device=device,
        threads=threads,
        save=save,
        on_measure=output,
        **given,
    )
    return output.end(run)


def _techniques(texts: Sequence[str]) -> dict[str, Any] | None:
    """``NAME=VALUE`` texts as an experiment file has them; one without arguments is True."""
    named = [text if "=" in text else f"{text}=true" for text in texts]
    return assignments(named, "--technique") or None


def check(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="A workload's name, or file.py:Class; or an experiment file with a program.",
        ),
    ],
    fields: Annotated[
        list[str] | None, option("--param", "KEY=VALUE", "A field of the workload.")
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Examples per step. Default: 64, or fewer in a small data set."),
    ] = None,
    device: Device = None,
    format: Fmt = "table",
    json: Json = False,
) -> int:
    """Check that a workload keeps its contract, or a program.

    Equal micro-batches, invariant evaluation, seeded weights; whether it can be stacked; speed. Of
    a program: its reports, its end, its seed and its batch size, in three short runs.
    """
    from batchscale import api

    def observer(part: str) -> None:
        say(f"{part} …", file=sys.stderr)

    findings = api.check(
        workload,
        batch_size=batch_size,
        device=device,
        observer=observer,
        **assignments(fields or [], "--param"),
    )
    what = "program" if workload.endswith((".yaml", ".yml")) else "workload"
    print(_findings(findings, output_format(format, json), what), end="")
    return 1 if any(finding.passed is False for finding in findings) else 0


def logs(
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="The id of a program's trial, or its first part.")
    ],
    results: Results = None,
    stderr: Annotated[
        bool, typer.Option("--stderr", help="Its standard error, not its standard output.")
    ] = False,
) -> None:
    """Print what a trial of your own program has written, also while it runs."""
    from batchscale import api

    print(api.logs(trial, results, stderr=stderr), end="")


def new(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE.py", help="The file to write.")
    ] = None,
    program: Annotated[
        str | None,
        option(
            "--program",
            "TRAIN.py",
            "Instead: write an experiment for your own program, from its argparse options.",
        ),
    ] = None,
) -> None:
    """Write a workload and an experiment to start from."""
    from batchscale import api
    from batchscale.output.errors import CommandError

    if (file is None) == (program is None):
        raise CommandError("new takes a FILE.py to write, or --program TRAIN.py")
    if program is not None:
        beside = api.new_program(program)
        print(
            f"wrote {beside}: look at its target. Next:\n"
            f"  batchscale check {shlex.quote(str(beside))}\n"
            f"  batchscale sweep {shlex.quote(str(beside))}"
        )
        return
    assert file is not None
    workload, experiment = api.new(file)
    (name,) = re.findall(r"^class (\w+)", workload.read_text("utf-8"), re.MULTILINE)
    spec = shlex.quote(f"{workload}:{name}")
    print(
        f"wrote {workload} and {experiment}. Next:\n"
        f"  batchscale check {spec}\n"
        f"  batchscale trial {spec} --optimizer sgd --batch-size 64 --param learning_rate=0.1\n"
        f"  batchscale sweep {shlex.quote(str(experiment))}"
    )


def _findings(findings: Sequence[Finding], format: Format, what: str) -> str:
    """A row a check, passed or not; facts have no verdict."""
    if format in ("json", "csv"):
        return render([vars(finding) for finding in findings], format)
    verdicts = {True: "pass", False: "FAIL", None: ""}
    rows = [{"check": f.check, "": verdicts[f.passed], "finding": f.finding} for f in findings]
    failed = sum(finding.passed is False for finding in findings)
    end = f"{failed} of the checks failed" if failed else f"the {what} keeps its contract"
    return render(rows, format) + (f"\n{end}\n" if format == "table" else "")


class _TrialOutput:
    """A trial on the screen: a line each time its step has about doubled, and how it ended."""

    def __init__(self, format: Format, threads: int) -> None:
        self.format = format
        self.threads = threads
        self._printed = 0.0
        self._first = ""

    def __call__(self, study: Study, measurement: Measurement) -> None:
        """Print a measurement that was just made, if it is due."""
        self._first = study.targets[-1].metric
        if self.format == "table" and measurement.step >= self._printed * _PRINTED_EVERY:
            self._printed = measurement.step
            self._print(measurement)

    def end(self, run: TrialRun) -> int:
        """Its metaparameters, and how it ended; the exit status.

        That is 1 where a recorded trial came out differently.
        """
        if self.format == "table":
            if run.evaluations and run.evaluations[-1].step > self._printed:
                self._print(run.evaluations[-1])
        else:
            print(frame_text(run.measurements, self.format), end="")
        stream = sys.stdout if self.format == "table" else sys.stderr
        algorithm = f"{run.algorithm}; {count(self.threads, 'thread')}"
        say(f"{algorithm}\n{run.verdict}", file=stream)
        return 0 if run.equal else 1

    def _print(self, measurement: Measurement) -> None:
        values = measurement.metrics
        names = sorted(values, key=lambda name: (name != self._first, name))
        metrics = "".join(f"  {name} {values[name]:<10.4g}" for name in names)
        line = f"step {measurement.step:>8,}{metrics}{measurement.train_seconds:8.2f} s"
        if measurement.evaluated_examples is not None:
            line += f"  ({count(measurement.evaluated_examples, 'example')} read)"
        say(line)
