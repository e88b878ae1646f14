"""The local critical batch size along one run: its branches, trained, recorded and compared."""

from __future__ import annotations

import bisect
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.output.errors import CommandError
from results.counts import count
from results.storage.location import PACKAGED, default_results
from results.targets.target import lower_is_better

if TYPE_CHECKING:
    from analysis.branches.critical import Branches, Losses
    from experiments.plan import Measurement, Outcome, Study, Trial
    from experiments.training.branches import Branch
    from results.reader import Results
    from results.store import Store

_WINDOW = 'for example "500 steps" (of the run\'s own batch size), "1e5 examples" or "1e6 tokens"'
_RULES = ("none", "sqrt", "linear")


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
    from batchscale.training import recorded_trial, study_of, trusted
    from batchscale.trials import pick_device
    from experiments.records.rows import device_name, study_columns
    from experiments.training.branches import branches, train
    from experiments.training.threads import threads as on_threads
    from results.store import Store

    share, of_examples = _tolerance(tolerance)
    at, by = _whole("--at", at, 1), _whole("--by", by, 2)
    if seeds < 1:
        raise CommandError(f"--seeds {seeds} is below 1", hint="three give an interval")
    opened = dataset.open(results or default_results())
    if opened.location is None or opened.root in PACKAGED:
        raise CommandError(
            f"branches are written beside their trial, and {opened.root} is not written to",
            hint="give the results folder of a sweep: --results results/runs",
        )
    row, point = recorded_trial(opened, _best_of(opened, trial))
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
        lengths = _lengths(study, window, by, columns["tokens_per_example"])
        wanted = [
            branches(
                study,
                point,
                step=step,
                times=times,
                lengths=lengths,
                seeds=seeds,
                rule=rule,
                code=columns["workload_version"],
            )
            for step in at
            for times in (1, *by)
        ]
        store = Store(opened.location)
        _values(store, [point], goal)  # before anything is trained
        have = set(store.trials(wanted[0].study.experiment, ["trial"])["trial"])
        left = [
            replace(each, trials=tuple(trial for trial in each.trials if trial.id not in have))
            for each in wanted
        ]
        missing = [each for each in left if each.trials]
        of_study = {each.study.id: study_columns(each.study, workload) for each in missing}
        place = pick_device(device)
        with on_threads(threads):
            for each in train(study, point, str(row["engine"]), missing, place):
                _commit(store, point, *each, of_study, row["engine"], device_name(place))
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
    losses = list(_losses(store, wanted, goal))
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
    if parts is None or not float(parts[1]) > 0:
        message = f"--tolerance {given} is no share of the metric or of the examples"
        raise CommandError(message, hint='0.01, or "5 % examples"')
    return float(parts[1]) / (100 if parts[2] else 1), parts[3] is not None


def _whole(option: str, numbers: Sequence[int], least: int) -> list[int]:
    if not numbers or min(numbers) < least:
        text = ",".join(map(str, numbers))
        message = f"{option} {text} are not numbers of at least {least}"
        raise CommandError(message, hint="for example --at 1000,4000 --by 2,4,8")
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


def _lengths(
    study: Study, window: str, by: Sequence[int], tokens_per_example: int | None
) -> tuple[int, ...]:
    """After how many steps of the trial's batch size branches are measured."""
    from experiments.amounts import EXAMPLES, TOKENS, Amount
    from experiments.training.branches import windows

    amount = Amount.parse(window, ("steps", EXAMPLES, TOKENS), _WINDOW)
    steps = amount.in_steps(study.batch_size, None, tokens_per_example)
    if steps < 1:
        raise CommandError(f"--window {window} is less than a step", hint=_WINDOW)
    return windows(steps, by)


def _commit(
    store: Store,
    trial: Trial,
    made: Branch,
    measurements: Sequence[Measurement],
    outcomes: Sequence[Outcome],
    of_study: Mapping[str, Mapping[str, Any]],
    engine: str,
    device: str,
) -> None:
    """Record the branches of a step and batch size."""
    from experiments.records.rows import trial_row

    study, by_id = made.study, {each.id: each for each in made.trials}
    columns = of_study[study.id]
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


def _losses(store: Store, wanted: Sequence[Branch], metric: str) -> Iterator[Losses]:
    """The recorded values of a metric, by step and window; infinite where a branch diverged.

    Raises:
        CommandError: it was not measured.
    """
    from analysis.branches.critical import Losses

    values = _values(store, [trial for each in wanted for trial in each.trials], metric)
    for step in sorted({each.step for each in wanted}):
        of_step = [each for each in wanted if each.step == step]
        base = next(each for each in of_step if each.times == 1)
        for place, end in enumerate(base.ends):
            yield Losses(
                step=step,
                window=end - step,
                by_times={
                    each.times: [
                        values.get((trial.id, each.ends[place]), math.inf) for trial in each.trials
                    ]
                    for each in of_step
                },
            )


def _values(store: Store, trials: Sequence[Trial], metric: str) -> dict[tuple[str, int], float]:
    """The recorded values of a metric by trial and step.

    Raises:
        CommandError: it was not measured.
    """
    from experiments.errors import nearest
    from experiments.records.recorded import of_trials
    from results.schema import METRIC_COLUMNS

    opened = of_trials(store, [trial.id for trial in trials])
    frame = opened.read_measurements(["trial", "step", "metrics", *METRIC_COLUMNS])
    others = [json.loads(text) if isinstance(text, str) else {} for text in frame["metrics"]]
    named = {name for name in METRIC_COLUMNS if frame[name].notna().any()}
    named |= {name for each in others for name in each}
    if metric not in named and len(frame):
        raise CommandError(
            f"no metric {metric!r} was measured",
            hint=nearest(metric, sorted(named), f"measured: {', '.join(sorted(named))}"),
        )
    column = frame[metric] if metric in METRIC_COLUMNS else [each.get(metric) for each in others]
    keys = zip(frame["trial"], frame["step"].astype(int), strict=True)
    return {key: float(value) for key, value in zip(keys, column, strict=True)}


def _proposed(
    study: Study, changes: Sequence[tuple[int, int]], rule: str, row: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The ramp as an experiment file has it, and the steps in which it sees the trial's examples;
    None where no larger batch size is sure."""
    from experiments.batch_sizes import BatchSizes

    if not changes:
        return None
    size, budget = study.batch_size, study.schedule_steps
    sizes = BatchSizes.growing(size, budget, [(step, k * size) for step, k in changes])
    pairs = ", ".join(f"[{_share(step, budget)}, {k}]" for step, k in changes)
    follows = "" if rule == "none" else f", learning_rate: {rule}"
    reached = row["steps_to_target"]
    steps = budget if reached is None else int(reached)
    starts = [step for step, _ in changes]
    ends = [*starts, max(steps, starts[-1])]
    ramped = bisect.bisect_left(range(budget + 1), steps * size, key=sizes.examples)
    return {
        "batch_size": f"{{from: {size}, ramp: {{at: [{pairs}]{follows}}}}}",
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
