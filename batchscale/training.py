"""Train one trial in this process: a new one, or one as it was recorded."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from batchscale.trials import OnMeasure, TrialRun, pick_device
from experiments.plan import Measurement, Outcome, Pack, Study, Trial
from experiments.programs.place import script_of
from results.counts import count
from results.schema import METRIC_COLUMNS
from results.storage.location import default_results
from results.storage.save import destination
from results.targets.target import Target

if TYPE_CHECKING:
    import pandas as pd

    from experiments.schedules import Schedule
    from results.reader import Results
    from workloads import Workload
    from workloads.user_code.trust import RefusedCodeError


def trial(
    workload: str | type[Workload] | Workload,
    *,
    optimizer: str = "sgd",
    batch_size: int,
    schedule: str | type[Schedule] = "constant",
    technique: str | Mapping[str, Any] | None = None,
    budget: str | None = None,
    target: str | None = None,
    engine: str = "module",
    seed: int = 0,
    device: str | None = None,
    threads: int = 1,
    save: str | Path | None = None,
    on_measure: OnMeasure | None = None,
    **metaparameters: Any,
) -> TrialRun:
    """One training run, here, without Ray: ``trial(MyModel, batch_size=64, learning_rate=0.1)``.

    Args:
        workload: a name, ``file.py:Class``, or the class.
        budget: as in an experiment file; its default unless given.
        threads: of the processor. Workers of a sweep have one each, and a trial has the same bits
            with as many; more are slower than one where others use the processors too.
        save: a ``.safetensors`` file for the weights that the last evaluation measured.
        schedule: a name, ``file.py:Class``, or the class.
        technique: a name, or names with their arguments: ``{"clip": 1.0, "ema": 0.99}``.
        metaparameters: of the optimizer and the schedule, and fields of the workload. A value that
            is not given is the optimizer's default: torch's, or that of its constructor.

    Returns:
        Its steps to target, measurements and weights; ``.plot()`` draws them.

    Raises:
        CommandError: a metaparameter has neither value nor default, or ``save`` is not such a file.
    """
    from experiments.config import compile as config

    if "trials" in metaparameters:
        raise CommandError(
            "a trial is one of its kind: trials is a key of experiments", hint="sweep"
        )
    optional = {"budget": budget, "target": target, "technique": technique}
    given = {name: value for name, value in optional.items() if value is not None}
    experiment = config.from_keywords(
        workload=workload,
        optimizer=optimizer,
        batch_size=batch_size,
        schedule=schedule,
        trials=1,
        seed=seed,
        **given,
        **metaparameters,
    )
    (study,) = experiment.studies()
    defaults, search = _defaults(study), study.search
    missing = [name for name in search.space if name not in defaults]
    if missing:
        example = " ".join(f"--param {name}=…" for name in missing)
        raise CommandError(
            f"one trial of {optimizer} needs a value of {' and '.join(missing)}",
            hint=f"{example}, or in Python {missing[0]}=…",
        )
    fixed = {**search.fixed, **{name: defaults[name] for name in search.space}}
    point = replace(study, search=replace(search, space={}, fixed=fixed)).trial(0)
    return _run(study, point, engine, device, threads, save, on_measure)


def rerun(
    trial: str,
    *,
    results: str | Path | None = None,
    device: str | None = None,
    threads: int = 1,
    save: str | Path | None = None,
    trust: bool = False,
    on_measure: OnMeasure | None = None,
) -> TrialRun:
    """A recorded trial once more, here, in the engine that trained it.

    Args:
        trial: its id, or the first digits of it.
        results: where it is recorded; the default results folder unless given.
        threads: as in `batchscale.trial`.
        save: a ``.safetensors`` file for the weights that the last evaluation measured.
        trust: run the Python files that the record names, whoever wrote them. Files of this user,
            outside of the results folder, with a content that was run before need none.

    Returns:
        As `batchscale.trial`; ``.equal`` says whether it came out as it was recorded.

    Raises:
        CommandError: no such trial, several that begin with these digits, one that batchscale did
            not train, or one that needs ``trust``.
    """
    import results as dataset

    opened = dataset.open(results or default_results())
    row, point = recorded_trial(opened, trial)
    column = row["target_metric"]
    columns = [column] if column in METRIC_COLUMNS else []
    rows = opened.read_measurements(["trial", "step", "metrics", "evaluated_examples", *columns])
    rows = rows[rows["trial"] == point.id]
    # The same examples are read again, in the same order.
    partly = rows["evaluated_examples"].notna().any()
    with trusted(opened, row, trust=trust):
        study = replace(study_of(opened, row), evaluate="auto" if partly else "full")
        run = _run(study, point, row["engine"], device, threads, save, on_measure)
    values = rows[column] if columns else rows["metrics"].map(lambda t: json.loads(t)[column])
    of_steps = zip(values, rows["evaluated_examples"], strict=True)
    recorded = {"measurements": dict(zip(rows["step"], of_steps, strict=True)), **row}
    return replace(run, recorded=recorded)


def recorded_trial(
    opened: Results, trial: str, *, programs: bool = False
) -> tuple[dict[str, Any], Trial]:
    """A trial by its id, or the first digits of it: its row, and as it was planned.

    Raises:
        CommandError: no such trial, several, or one that cannot be trained here.
    """
    row = row_of(opened, trial)
    if row["role"] == "branch":
        raise CommandError(
            f"trial {row['trial']} is a branch of trial {row['branch_of']}, from one of its steps",
            hint=f"give that one: {row['branch_of']}",
        )
    return row, trial_of(opened, row, programs=programs)


@contextmanager
def trusted(opened: Results, row: Mapping[str, Any], *, trust: bool) -> Iterator[None]:
    """Within, the Python files that a trial's record names are run, if this user's or trusted.

    Raises:
        CommandError: one is neither.
    """
    from workloads.user_code.trust import RefusedCodeError, named_by_record

    with nullcontext() if trust else named_by_record(opened.root):
        try:
            yield
        except RefusedCodeError as refused:
            raise untrusted(opened, row, refused) from None


def untrusted(opened: Results, row: Mapping[str, Any], refused: RefusedCodeError) -> CommandError:
    """The error of a record that names Python files."""
    from experiments.config.yaml_lines import read

    waiting: list[Any] = [read(_recorded(opened, row)["experiment_yaml"], "")[0]]
    named: set[str] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and re.search(r"\.py\b", value):
            named.add(value)
    files = f", of {', '.join(sorted(named))}" if named else ""
    return CommandError(
        f"{refused.file} is not run: the record of trial {row['trial']} in {opened.root} names "
        f"it{files}, and {refused.reason}",
        hint="whoever wrote that folder chose the files: read them, then give --trust (in Python: "
        "trust=True)",
    )


def _recorded(opened: Results, row: Mapping[str, Any]) -> pd.Series:
    """The row of a trial's study."""
    studies = opened.studies
    return studies[studies["study"] == row["study"]].iloc[-1]


def row_of(opened: Results, trial: str) -> dict[str, Any]:
    frame = opened.trials
    match = frame[frame["trial"] == trial]
    if match.empty:
        match = frame[[str(name).startswith(trial) for name in frame["trial"]]]
    if len(match) > 1:
        message = f"{count(len(match), 'trial')} of {opened.root} begin with {trial!r}"
        raise CommandError(message, hint="give more of its digits")
    if match.empty:
        raise CommandError(
            f"no trial of {opened.root} is called {trial!r}",
            hint=f"for example {frame['trial'].iloc[0]}: batchscale query "
            f"'SELECT trial FROM trials' {shlex.quote(opened.root)}"
            if len(frame)
            else "there are no trials yet",
        )
    row = match.astype(object).where(match.notna(), None).iloc[0]
    return {str(name): value for name, value in row.items()}


def trial_of(opened: Results, row: Mapping[str, Any], *, programs: bool = False) -> Trial:
    """A recorded trial.

    Raises:
        CommandError: batchscale did not train it, or of a program, unless ``programs`` may be.
    """
    if not row["metaparameters"] or not row["seed"]:
        raise CommandError(f"trial {row['trial']} of {opened.root} was not trained by batchscale")
    if row["engine"] == "program" and not programs:
        raise CommandError(
            f"trial {row['trial']} of {opened.root} is of a program, which is not run here",
            hint=script_of(opened.root, row["trial"]),
        )
    return Trial(
        id=row["trial"],
        index=int(row["index"]),
        seed=int(row["seed"]),
        metaparameters=json.loads(row["metaparameters"]),
        role=row["role"],
        round=int(row["round"]),
    )


def study_of(
    opened: Results, row: Mapping[str, Any], known: dict[Any, list[Study]] | None = None
) -> Study:
    """The study of a recorded trial, its budget where the trial stopped.

    One that raised did so beyond the step that was recorded: it has its study's whole budget.

    Args:
        known: keeps the studies of an experiment from one of its trials to the next.
    """
    study = _planned(row, _studies(opened, row, {} if known is None else known))
    ended = None if row["stop_reason"] == "error" else row["steps_run"]
    target = Target(
        metric=row["target_metric"],
        value=float(row["target_value"]),
        lower_is_better=bool(row["lower_is_better"]),
    )
    return replace(
        study,
        targets=study.targets if study.targets[-1] == target else (target,),
        # If the target was made easier later, the trial went on beyond its hit.
        stop_at_target=study.stop_at_target and row["steps_to_target"] in (None, ended),
        keep=None,
        budget_steps=int(ended or row["budget_steps"]),
        recorded_budget_steps=row["budget_steps"] and int(row["budget_steps"]),
        evaluation_ratio=row["evaluation_ratio"] and float(row["evaluation_ratio"]),
        layout=replace(study.layout, workers=1, gpus_per_worker=0.0),
    )


def _studies(opened: Results, row: Mapping[str, Any], known: dict[Any, list[Study]]) -> list[Study]:
    """The studies of a trial's experiment, as its record says."""
    from experiments.config import compile as config
    from experiments.errors import ExperimentError

    steps, version = row["baseline_steps"], row["workload_version"]
    text = _recorded(opened, row)["experiment_yaml"]
    if (text, steps, version) not in known:
        try:
            experiment = config.parse(text, f"experiment {row['experiment']}")
        except ExperimentError as error:
            if "no file" not in str(error):
                raise
            # Rows name a user's file relative to its experiment's folder, which is not recorded.
            raise CommandError(
                str(error), hint="run the command in the folder of the experiment's file"
            ) from None
        of_baseline = None if steps is None else int(steps)
        known[text, steps, version] = [*experiment.studies(version, lambda _: of_baseline)]
    return known[text, steps, version]


def _planned(row: Mapping[str, Any], studies: Sequence[Study]) -> Study:
    """The study of a trial; if an optimizer's code has changed, the study with the present code."""
    import workloads
    from experiments.records.recorded import description
    from experiments.records.rows import study_columns

    for study in studies:
        if study.id == row["study"]:
            return study
    for study in studies:
        ref = study.workload
        columns = study_columns(study, workloads.load(ref.spec, ref.fields, ref.base))
        if description(columns) == description(row):
            return study
    raise CommandError(
        f"trial {row['trial']}: experiment {row['experiment']}, as recorded, has no such study"
    )


def _run(
    study: Study,
    trial: Trial,
    engine: str,
    device: str | None,
    threads: int,
    save: str | Path | None,
    on_measure: OnMeasure | None,
) -> TrialRun:
    from experiments.errors import nearest
    from experiments.training.pack_training import Training
    from experiments.training.threads import threads as on_threads

    path, kinds = _savable(save), ("module", "stacked", "auto")
    if engine not in kinds:
        raise CommandError(f"unknown engine {engine!r}", hint=nearest(engine, kinds))
    pack = Pack(id=f"trial-{trial.id}", study=study, trials=(trial,), engine=engine)  # type: ignore[arg-type]
    if threads < 1:
        raise CommandError(f"threads {threads} is below 1", hint="one is what workers have")
    evaluations, outcomes = list[Measurement](), list[Outcome]()
    with on_threads(threads):
        training = Training(pack, device=pick_device(device), keep_weights=True)
        for events in training.run():
            for event in events:
                if isinstance(event, Outcome):
                    outcomes.append(event)
                    continue
                evaluations.append(event)
                if on_measure is not None:
                    on_measure(study, event)
    run = TrialRun(
        study=study,
        trial=trial,
        outcome=outcomes[0],
        engine=training.engine,
        metaparameters={**_defaults(study), **trial.metaparameters},
        evaluations=evaluations,
        weights=training.final[trial.id],
    )
    if path is not None:
        _write(run, path)
    return run


def _defaults(study: Study) -> dict[str, Any]:
    """The defaults of the optimizer's and the schedule's metaparameters."""
    optimizer, schedule = study.algorithm
    return {**schedule.defaults, **optimizer.defaults}


def _savable(save: str | Path | None) -> Path | None:
    """Check before training that the weights can be written after it."""
    if save is None:
        return None
    path = destination(save)
    if path.suffix != ".safetensors":
        raise CommandError(f"cannot save to {path}: weights are kept as .safetensors")
    if not path.absolute().parent.is_dir():
        raise CommandError(f"cannot save to {path}: there is no folder {path.parent}")
    return path


def _write(run: TrialRun, path: Path) -> None:
    """Weights by name, and a description of the trial in the file's metadata (JSON text)."""
    from safetensors.torch import save

    from results.storage.whole_file import write_file

    about = {
        "trial": run.trial.id,
        "workload": str(run.study.workload.spec),
        "fields": json.dumps(dict(run.study.workload.fields)),
        "optimizer": run.study.optimizer,
        "metaparameters": json.dumps(dict(run.metaparameters)),
        "outcome": json.dumps(asdict(run.outcome)),
    }
    weights = {name: value.cpu().contiguous() for name, value in run.weights.items()}
    write_file(str(path.absolute()), save(weights, metadata=about))
