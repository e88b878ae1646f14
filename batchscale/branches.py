"""The local critical batch size along one run: its branches, trained, recorded and compared."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from results.counts import count
from results.storage.location import PACKAGED, default_results
from results.targets.target import lower_is_better

if TYPE_CHECKING:
    from analysis.branches.critical import Branches
    from analysis.branches.evaluated import Run
    from experiments.plan import Measurement, Outcome, Study, Trial
    from experiments.training.branches import Branch
    from results.reader import Results
    from results.store import Store

_WINDOW = 'for example "500 steps" (of the run\'s own batch size), "1e5 examples" or "1e6 tokens"'
_RULES = ("none", "sqrt", "linear")
_NUMBERS = "--at 1000,4000 --by 2,4,8"


def branch(
    trial: str,
    *,
    at: Sequence[int],
    window: str,
    by: Sequence[int] = (2, 4, 8),
    seeds: int = 3,
    rule: str | None = None,
    metric: str | None = None,
    tolerance: float | str = 0.01,
    results: str | Path | None = None,
    output: str | Path | None = None,
    device: str | None = None,
    threads: int = 1,
    trust: bool = False,
    observer: Callable[[str], object] | None = None,
) -> Branches:
    """The local critical batch size along a recorded trial, by branches (Merrill et al. 2025).

    The trial is trained again to each step of ``at``, and from its state there at several batch
    sizes, each for the same examples. What is recorded already is not trained again.

    Args:
        trial: its id or the first digits, or an experiment with one study: its best trial.
        at: steps of the trial.
        window: how far the branches go: ``"500 steps"`` of the trial's batch size, examples or
            tokens. It is rounded to whole steps of every batch size.
        by: how many times the trial's batch size; whole numbers.
        seeds: branches of each batch size, with data in different orders.
        rule: the learning rate at k times the batch size: ``linear`` (k times), ``sqrt`` or
            ``none``; unless given linear for SGD, sqrt for Adam and its like.
        metric: what is compared, on the whole split; the target's unless given.
        tolerance: the relative excess of the metric that counts as none; or ``"5 % examples"``:
            how many more of them a larger batch may need to the same loss.
        results: where the trial is recorded, and the branches are to be.
        output: a file for the figure, with a CSV file of its numbers beside it.
        threads, trust: as in `batchscale.rerun`.
        observer: gets a line whenever branches were trained.

    Returns:
        ``points``, one a step and window; ``ramp()`` and ``proposed``, the batch-size ramp that
        they allow; ``to_dict()``.

    Raises:
        CommandError: no such trial, or one that cannot be trained here; numbers that cannot be.
        ExperimentError: steps, a window or a batch size that the trial cannot have.
        ResultsError: a metric that was not measured, or without a ratio.
    """
    import results as dataset
    import workloads
    from analysis.branches.critical import branches as compare
    from analysis.branches.evaluated import losses as evaluated_losses
    from batchscale.training import recorded_trial, study_of, trusted
    from batchscale.trials import pick_device
    from experiments.programs.branches import ProgramBranches
    from experiments.programs.place import folder_of_trials
    from experiments.records.rows import device_name, study_columns
    from experiments.training.branches import branches, train, windows
    from experiments.training.threads import threads as on_threads
    from results.store import Store
    from workloads.user_code.program import Program

    share, of_examples = _tolerance(tolerance)
    at, by = whole("--at", at, 1), whole("--by", by, 2)
    if seeds < 1:
        raise CommandError(f"--seeds {seeds} is below 1", hint="three give an interval")
    opened = dataset.open(results or default_results())
    if opened.location is None or opened.root in PACKAGED:
        raise CommandError(
            f"branches are written beside their trial, and {opened.root} is not written to",
            hint="give the results folder of a sweep: --results results/runs",
        )
    row, point = recorded_trial(opened, _best_of(opened, trial), programs=True)
    goal = metric or str(row["target_metric"])
    if not lower_is_better(goal):
        message = f"of {goal} more is better, and branches are compared by a loss"
        raise CommandError(message, hint="--metric validation_cross_entropy")
    with trusted(opened, row, trust=trust):
        study = study_of(opened, row)
        study = replace(study, budget_steps=study.recorded_budget_steps or study.budget_steps)
        rule = _rule(study, rule)
        ref = study.workload
        workload = workloads.load(ref.spec, ref.fields, ref.base)
        columns = study_columns(study, workload)
        code = columns["workload_version"]
        length = _length(study, window, columns["tokens_per_example"])
        lengths = windows(length, by) if ref.program is None else (length,)
        wanted = [
            branches(
                study,
                point,
                step=step,
                times=times,
                lengths=lengths,
                seeds=seeds,
                rule=rule,
                code=code,
            )
            for step in at
            for times in (1, *by)
        ]
        store = Store(opened.location)
        of_trial = _measured(store, [point], goal)[point.id]
        program = None
        if isinstance(workload, Program):
            workload.admit()
            program = ProgramBranches(
                study,
                point,
                of_trial,
                rule=rule,
                code=code,
                window=length,
                folder=folder_of_trials(store.location, reached=True),
            )
        have = set(store.trials(wanted[0].study.experiment, ["trial"])["trial"])
        left = [
            replace(each, trials=tuple(trial for trial in each.trials if trial.id not in have))
            for each in wanted
        ]
        missing = [each for each in left if each.trials]
        place = pick_device(device)
        if program is None:
            trained = train(study, point, str(row["engine"]), missing, place)
        else:
            begun = _runs(store, wanted)
            trained = program.train(missing, {step: runs[0].began for step, runs in begun.items()})
        with on_threads(threads):
            for each in trained:
                of_branch = study_columns(each[0].study, workload)
                if program is not None and of_branch["workload_version"] != code:
                    message = f"{workload.name} has changed while its branches were trained"
                    raise CommandError(message, hint="the same command trains all by the new file")
                of_branch["workload_version"] = code
                _commit(store, point, *each, of_branch, row["engine"], device_name(place))
                if program is not None:
                    _check(store, wanted, goal, length, rule)
                if observer is not None:
                    size, number = each[0].times * study.batch_size, len(each[0].trials)
                    where = f"from step {each[0].step:,} at batch size {size:,}"
                    observer(f"{where}: {count(number, 'seed')}")
    about = {
        "trial": point.id,
        "experiment": study.experiment,
        "workload": columns["workload"],
        "optimizer": study.optimizer_label,
        "learning_rate": rule,
        "metric": goal,
        "example_unit": columns["example_unit"],
        "tokens_per_example": columns["tokens_per_example"],
    }
    if program is not None:
        _check(store, wanted, goal, length, rule)
    by_step = _runs(store, wanted).values()
    losses = [each for runs in by_step for each in evaluated_losses(runs, goal, length)]
    made = compare(losses, study.batch_size, tolerance=share, of_examples=of_examples, about=about)
    made = replace(made, proposed=_proposed(study, made.ramp(), rule, row))
    if output is not None:
        from analysis.branches.figure import kind
        from analysis.figure_data import FigureData, Query
        from batchscale.answers import save_figure

        save_figure(kind(made), FigureData(Query(sources=())), output)
    return made


def _tolerance(given: float | str) -> tuple[float, bool]:
    """A share, and whether it is one of the examples.

    Raises:
        CommandError: it is none.
    """
    number = r"\d*\.?\d+(?:e-?\d+)?"
    parts = re.fullmatch(rf"\s*({number})\s*(%?)\s*(examples|tokens)?\s*", str(given))
    if parts is None or not 0 < float(parts[1]) < math.inf:
        message = f"--tolerance {given} is no share of the metric or of the examples"
        raise CommandError(message, hint='0.01, or "5 % examples"')
    return float(parts[1]) / (100 if parts[2] else 1), parts[3] is not None


def whole(option: str, numbers: Sequence[int], least: int, such: str = _NUMBERS) -> list[int]:
    if not numbers or min(numbers) < least or any(number % 1 for number in numbers):
        text = ",".join(map(str, numbers))
        message = f"{option} {text} are not whole numbers of at least {least}"
        raise CommandError(message, hint=f"for example {such}")
    return sorted({int(number) for number in numbers})


def _best_of(opened: Results, name: str) -> str:
    """The trial that ``name`` is about: itself, or the best one of an experiment with one study.

    Raises:
        CommandError: the experiment has several studies, or no trial that reached its target.
    """
    trials = opened.trials
    of = trials[trials["experiment"].eq(name) & trials["role"].isin(("search", "extension"))]
    if of.empty:
        return name
    reached = of[of["steps_to_target"].notna()].sort_values(["batch_size", "steps_to_target"])
    if reached.empty:
        raise CommandError(f"no trial of {name} reached its target", hint="name a trial by its id")
    best = str(reached["trial"].iloc[0])
    if (studies := of["study"].nunique()) > 1:
        raise CommandError(
            f"{name} has {count(int(studies), 'study')}, and branches are of one trial",
            hint=f"the best one at batch size {reached['batch_size'].iloc[0]:.0f}: {best}",
        )
    return best


def _rule(study: Study, rule: str | None) -> str:
    from experiments.errors import nearest
    from experiments.factors.rule import usual_rule

    if rule is None:
        return usual_rule(study.algorithm[0])
    if rule not in _RULES:
        raise CommandError(f"there is no rule {rule!r}", hint=nearest(rule, _RULES))
    return rule


def _length(study: Study, window: str, tokens_per_example: int | None) -> int:
    """Of a window, in steps of the trial's batch size."""
    from experiments.amounts import EXAMPLES, TOKENS, Amount

    amount = Amount.parse(window, ("steps", EXAMPLES, TOKENS), _WINDOW)
    steps = amount.in_steps(study.batch_size, None, tokens_per_example)
    if steps < 1:
        raise CommandError(f"--window {window} is less than a step", hint=_WINDOW)
    return steps


def _commit(
    store: Store,
    trial: Trial,
    made: Branch,
    measurements: Sequence[Measurement],
    outcomes: Sequence[Outcome],
    columns: Mapping[str, Any],
    engine: str,
    device: str,
) -> None:
    """Record the branches of a step and batch size."""
    from experiments.records.rows import trial_row

    study, by_id = made.study, {each.id: each for each in made.trials}
    of_the_pack = {
        "pack": f"branch-{study.id}",
        "pack_models": len(by_id),
        "engine": engine,
        "device": device,
        "world_size": 1,
        "branch_of": trial.id,
    }
    store.add_studies([{**columns, "targets": [str(target) for target in study.targets]}])
    store.commit(
        study.experiment,
        measurements=[dict(vars(each)) for each in measurements],
        trials=[
            trial_row(columns, study, by_id[each.trial], each, **of_the_pack) for each in outcomes
        ],
    )


def _measured(
    store: Store, trials: Sequence[Trial], metric: str | None = None
) -> dict[str, dict[int, Mapping[str, float]]]:
    """The recorded metrics by trial and step.

    Raises:
        CommandError: ``metric`` was not measured.
    """
    from experiments.records.recorded import of_trials
    from results.errors import nearest
    from results.schema import METRIC_COLUMNS

    opened = of_trials(store, [trial.id for trial in trials])
    frame = opened.read_measurements(["trial", "step", "metrics", *METRIC_COLUMNS])
    made: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for row in frame.sort_values("step").to_dict("records"):
        others = json.loads(row["metrics"]) if isinstance(row["metrics"], str) else {}
        columns = {name: row[name] for name in METRIC_COLUMNS if not math.isnan(row[name])}
        made[row["trial"]][int(row["step"])] = {**columns, **others}
    named = {name for steps in made.values() for metrics in steps.values() for name in metrics}
    if metric is not None and metric not in named:
        raise CommandError(
            f"no metric {metric!r} was measured",
            hint=nearest(metric, sorted(named), f"measured: {', '.join(sorted(named))}"),
        )
    return made


def _runs(store: Store, wanted: Sequence[Branch]) -> dict[int, list[Run]]:
    """The recorded branches among those that are wanted, by the step that was asked for."""
    from analysis.branches.evaluated import Run
    from results.batch_phases import BatchPhases

    values = _measured(store, [trial for each in wanted for trial in each.trials])
    rows = store.trials(wanted[0].study.experiment, ["trial", "batch_sizes", "stop_reason"])
    by_trial = {row["trial"]: row for row in rows.to_dict("records")}
    made: dict[int, list[Run]] = defaultdict(list)
    for branch in wanted:
        for row in (by_trial[trial.id] for trial in branch.trials if trial.id in by_trial):
            phases = BatchPhases.of(row["batch_sizes"])
            assert phases is not None
            began, steps = phases.starts[1], values.get(row["trial"], {})
            run = Run(
                times=branch.times,
                began=began,
                measured={branch.times * (step - began): steps[step] for step in steps},
                diverged=row["stop_reason"] == "diverged",
            )
            made[branch.step].append(run)
    return made


def _check(store: Store, wanted: Sequence[Branch], metric: str, window: int, rule: str) -> None:
    """Whether the recorded branches of a program can be compared.

    Raises:
        ResultsError: as of ``analysis.branches.evaluated``.
    """
    from analysis.branches import evaluated
    from experiments.factors.rule import rate_factor

    factors = {each.times: rate_factor(rule, each.times) for each in wanted}
    for runs in _runs(store, wanted).values():
        evaluated.losses(runs, metric, window)
        evaluated.check(runs, factors)


def _proposed(
    study: Study, changes: Sequence[tuple[int, int]], rule: str, row: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The ramp as an experiment file has it, where it trains no program, and the steps in which it
    sees the trial's examples; None where no larger batch size is sure."""
    from experiments.batch_sizes import BatchSizes

    if not changes:
        return None
    size, budget = study.batch_size, study.schedule_steps
    sizes = BatchSizes.growing(size, budget, [(step, k * size) for step, k in changes])
    pairs = ", ".join(f"[{_share(step, budget)}, {k}]" for step, k in changes)
    follows = "" if rule == "none" else f", learning_rate: {rule}"
    line = f"{{from: {size}, ramp: {{at: [{pairs}]{follows}}}}}"
    reached = row["steps_to_target"]
    steps = budget if reached is None else int(reached)
    starts = [step for step, _ in changes]
    ends = [*starts, max(steps, starts[-1])]
    ramped = bisect.bisect_left(range(budget + 1), steps * size, key=sizes.examples)
    return {
        "batch_size": line if study.workload.program is None else None,
        "budget_steps": budget,
        "changes": [list(change) for change in changes],
        "longest_steps": max(after - before for before, after in itertools.pairwise(ends)),
        "to": "budget" if reached is None else "target",
        "steps": steps,
        "ramp_steps": ramped,
        "saves": 1 - ramped / steps,
    }


def _share(step: int, budget: int) -> str:
    """The shortest share of the budget that is this step."""
    shares = (f"{step / budget:.{digits}g}" for digits in range(1, 17))
    return next(share for share in shares if round(float(share) * budget) == step)
