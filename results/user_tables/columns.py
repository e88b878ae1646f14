"""Which column of a log is what: by its name, or as the user says; what cannot be told is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from results.errors import ResultsError
from results.schema import TRIALS
from results.user_tables import names
from results.user_tables.batch_size import refuse_per_device, with_batch_size
from results.user_tables.formats.lines import metric_name
from results.user_tables.long_form import unfolded, widened
from results.user_tables.mapped import computed, mapped
from results.user_tables.numbers import amounts
from results.user_tables.run_names import with_settings_of_names
from results.user_tables.sampled import refuse_sampled
from results.user_tables.table_file import TableFile, number

_CALLS = "_step"
"""How often W&B was called: the order of a history, and its steps if it has no others."""
_COUNTED_FROM_0 = "trainer_global_step"
"""As Lightning gives it to W&B."""
_AMOUNTS = ("batch_size", "step", "steps", "tokens", "examples", "budget_steps")
_KEPT = {
    *("run", "step", "steps", "examples", "tokens", "target", "run_state"),
    *("experiment", "study", "trial", "batch_size"),
}
"""Names that mean something else than a setting."""
_BUDGETS = ("budget_steps", "max_steps", "total_steps", "train_steps", "num_steps", "steps_run")


def understood(
    table: TableFile, given: Mapping[str, str] | None = None, *, complete: bool = False
) -> TableFile:
    """The table under the names that ``user_tables.curves`` reads; ``means`` says what they are.

    Args:
        given: ours to theirs, as ``--map`` has them: a column, or a sum of products of columns and
            numbers (``per_device*accumulate*8``, ``step+1``).
        complete: a history of uneven steps is no sample.

    Raises:
        ResultsError: a column that is not there, or two of which either may be meant.
    """
    said = {**table.means, **(given or {})}
    named = names.of_wandb_runs(table)
    runs = "run" in said or any(names.candidates(table, names.AXES["run"], config=False))
    if named and named not in said.values() and not runs:
        table = table.renamed({"run": named})
        cells = table.columns["run"]
        if len({*cells}) < len(cells):
            each = [f"{cell} ({row})" for row, cell in enumerate(cells, 1)]
            table = table.with_columns({"run": each})
    table = widened(unfolded(table))
    refuse_per_device(table, said.get("batch_size", ""))
    table = widened(mapped(table, said))
    if "batch_size" not in said:
        table = with_batch_size(table)
    table = with_settings_of_names(table)
    if not {"examples", "tokens"}.isdisjoint(given or {}) and "step" not in (given or {}):
        steps = [*names.candidates(table, names.AXES["step"], config=False)]
        table = table.with_columns({}, drop=steps)  # they are the user's, in place of these
    for name, aliases in names.AXES.items():
        if name not in said:
            table = _with_axis(table, name, aliases)
    for name, aliases in names.SETTINGS.items():
        if name not in said:
            table = _with_setting(table, name, aliases)
    table = _in_order(_filled(table))
    refuse_sampled(table, complete=complete)
    table = _without_empty_rows(_with_steps(_with_sequences(_with_amounts(table))))
    table.require("batch_size")
    return _named(table)


def _with_axis(table: TableFile, name: str, aliases: Sequence[str]) -> TableFile:
    if name in ("tokens", "examples") and (table.has("step") or table.has("steps")):
        return table
    named = [*names.candidates(table, aliases, config=False)]
    if name == "step" and not named and table.has(_CALLS):
        named = [_CALLS]
    if name == "run_state":
        cells = [{str(c).upper() for c in table.columns[each] if c is not None} for each in named]
        named = [each for each, has in zip(named, cells, strict=True) if has <= names.STATES]
    if not named:
        return table
    chosen, *others = named
    other = next((each for each in others if names.differ(table, chosen, each)), None)
    if other is not None and name not in ("run", "run_state"):
        raise ResultsError(
            f"{table.path}: {chosen} and {other} differ, and either may be {name}",
            hint=f"say which: batchscale import PATH --map {name}={chosen}",
        )
    if names.plain(chosen) == _COUNTED_FROM_0:
        cells = computed(table, name, f"{chosen}+1")
        table = table.with_columns({name: cells}, drop=(chosen,))
        return replace(table, means={**table.means, name: f"{chosen}+1"})
    return table.renamed({name: chosen})


def _with_setting(table: TableFile, name: str, aliases: Sequence[str]) -> TableFile:
    """What a run was configured with; what was logged under that name is a measurement."""
    named = [*names.candidates(table, aliases, config=True)]
    configured = [each for each in named if names.is_config(each, table)]
    if not named or (table.has(name) and not configured):
        return table
    chosen, *others = configured or named
    if any(names.differ(table, chosen, other) for other in others):
        return table
    if table.has(name):
        table = table.renamed({f"logged_{name}": name})
    return table.renamed({name: chosen})


def _filled(table: TableFile) -> TableFile:
    """With the one value that a run has of a setting in each of its rows."""
    if not table.has("run"):
        return table
    runs = [str(cell) for cell in table.columns["run"]]
    made: dict[str, list[Any]] = {}
    for name, cells in table.columns.items():
        if None not in cells or name in names.AXES or names.is_metric(names.short(name, table)):
            continue
        values: dict[str, set[Any]] = {}
        for run, cell in zip(runs, cells, strict=True):
            if cell is not None:
                values.setdefault(run, set()).add(cell)
        if all(len(each) == 1 for each in values.values()):
            settled = {run: next(iter(each)) for run, each in values.items()}
            made[name] = [settled.get(run) for run in runs]
    return table.with_columns(made)


def _in_order(table: TableFile) -> TableFile:
    """A history of W&B in the order of its calls."""
    if table.means.get("step") == _CALLS and table.has("run") and not _several(table):
        # A table of runs: how often each has called W&B in all.
        return table.with_columns({}, drop=("step",))
    calls_in = "step" if table.means.get("step") == _CALLS else _CALLS
    if not table.has(calls_in):
        return table
    calls = table.numbers(calls_in, least=0, whole=True)
    runs = table.columns.get("run", [None] * len(calls))
    first = {run: at for at, run in reversed([*enumerate(runs)])}
    order = sorted(range(len(calls)), key=lambda at: (first[runs[at]], calls[at] or 0, at))
    # A call that is there twice is of two runs, which something else must tell apart.
    single = len({*zip(runs, calls, strict=True)}) == len(calls)
    return replace(table.rows(order), logged=table.logged or single)


def _with_amounts(table: TableFile) -> TableFile:
    budget = next(names.candidates(table, _BUDGETS, config=True), None)
    if budget is not None and table.has("steps") and table.numeric(budget):
        table = table.renamed({"budget_steps": budget})
    return table.with_columns({n: amounts(table.columns[n]) for n in _AMOUNTS if table.has(n)})


def _with_sequences(table: TableFile) -> TableFile:
    """With the tokens of an example, where tokens are to be divided by a batch size of sequences.

    Raises:
        ResultsError: it may be one of tokens.
    """
    length = next(names.candidates(table, names.SEQUENCE, config=True), None)
    known = table.has("tokens_per_example") or not (table.has("tokens") and table.has("batch_size"))
    if known or length is None or length in table.means.get("batch_size", ""):
        return table
    sizes, lengths = (table.numbers(name, least=1) for name in ("batch_size", length))
    if all((size or 0) % (each or 1) == 0 for size, each in zip(sizes, lengths, strict=True)):
        raise ResultsError(
            f"{table.path}: the batch size may count tokens, or sequences of {length} tokens",
            hint=f"say which: batchscale import PATH --map tokens_per_example=1, or --map "
            f"tokens_per_example={length}",
        )
    return table.renamed({"tokens_per_example": length})


def _with_steps(table: TableFile) -> TableFile:
    """With ``step``, where several rows of a run have ``steps``, tokens or examples."""
    if table.has("step") and table.has("steps") and _several(table):
        # What a run came to, among its evaluations, as exports to other tools have it.
        means = {name: text for name, text in table.means.items() if name != "steps"}
        return replace(table.with_columns({}, drop=("steps",)), means=means)
    if table.has("step") or not table.has("batch_size"):
        return table
    if table.has("steps"):
        if _several(table):
            return table.renamed({"step": "steps"})
        if {"examples", "tokens"} & {*table.means} and "steps" not in table.means:
            return table.with_columns({}, drop=("steps",))  # budgets, as the user says
        _refuse_unclear_steps(table)
        return table
    axis = next((name for name in ("tokens", "examples") if table.has(name)), None)
    if axis is None and table.means.get("step") == _CALLS:
        raise ResultsError(
            f"{table.path} has no column 'steps', for {_CALLS} of a table of runs is the last call "
            "of each",
            hint="--map steps=_step if each run was ended at its target; else import the "
            "histories: pandas.DataFrame(run.scan_history())",
        )
    if axis is None and (other := next(names.candidates(table, names.COUNTS, config=False), None)):
        cells = [number(cell) for cell in table.columns[other]]
        from_0 = 0 in cells and all((each or 0) % 1 == 0 for each in cells)
        updates, examples = ("*500+500", "*50000+50000") if from_0 else ("*500", "*50000")
        raise ResultsError(
            f"{table.path} has no column of steps, for {other} may count anything but updates",
            hint=f"--map step={other} if it counts them, --map step={other}{updates} for the "
            f"updates of one, or --map examples={other}{examples} for its examples",
        )
    if axis is None and names.is_of_optuna(table) and table.has("value"):
        raise ResultsError(
            f"{table.path} has no column of steps, and value, the objective, may be anything",
            hint="--map steps=value if it is steps to a target; a final loss needs its budget: "
            "--map loss=value --map examples=50000",
        )
    if axis is None or not _several(table):
        return table
    sizes = table.numbers("batch_size", least=1, whole=True)
    given = table.numbers(axis, least=0)
    _refuse_changing(table, sizes, given)
    each: list[float | None] = [1.0] * len(sizes)
    if axis == "tokens" and table.has("tokens_per_example"):
        each = table.numbers("tokens_per_example", least=1, whole=True)
    rows = zip(given, sizes, each, strict=True)
    steps = [round((total or 0) / ((size or 1) * (tokens or 1))) for total, size, tokens in rows]
    made: dict[str, list[Any]] = {"step": steps}
    if axis == "tokens" and not table.has("tokens_per_example"):
        made |= {"tokens_per_example": [1] * len(steps), "example_unit": ["token"] * len(steps)}
    text = f"{axis} / batch_size" + (" / tokens_per_example" if set(each) != {1.0} else "")
    table = table.with_columns(made, drop=(axis,))
    return replace(table, means={**table.means, "step": text})


def _without_empty_rows(table: TableFile) -> TableFile:
    """Without rows that have neither a step nor a metric: of a machine's state, of an end."""
    if not table.has("step") or None not in table.columns["step"]:
        return table
    metrics = [table.columns[name] for name in table.columns if names.is_measured(table, name)]
    rows = enumerate(zip(table.columns["step"], *metrics, strict=True))
    return table.rows([at for at, row in rows if any(cell is not None for cell in row)])


def _several(table: TableFile) -> bool:
    """Whether a run has several rows; where no column names it, a batch size, by its epochs."""
    none = [None] * len(table.places)
    said = {*table.means.values()}
    by_epoch = table.has("epoch") and any(re.match(r"epoch\b", text) for text in said)
    if not (table.has("run") or by_epoch):
        return False
    sizes = table.columns.get("batch_size", none)
    rows = [*zip(table.columns.get("run", none), sizes, strict=True)]
    return len(set(rows)) < len(rows)


def _refuse_changing(
    table: TableFile, sizes: Sequence[float | None], given: Sequence[float | None]
) -> None:
    """Refuse tokens or examples of a run whose batch size changes: they give no steps."""
    runs: dict[Any, list[int]] = {}
    for at, run in enumerate(table.columns.get("run", sizes)):
        runs.setdefault(run, []).append(at)
    for run, rows in runs.items():
        totals = [given[at] or 0 for at in rows]
        if len({sizes[at] for at in rows}) > 1 and totals == sorted(totals):
            raise ResultsError(
                f"{table.path}: the batch size of run {run} changes, so that its steps cannot be "
                "computed",
                hint="add a column step, or leave that run out",
            )


def _refuse_unclear_steps(table: TableFile) -> None:
    """Refuse steps beside a metric that grow, as those of evaluations, or are equal, as budgets."""
    metrics = [n for n in table.columns if names.is_metric(n) and table.numeric(n)]
    if not metrics or table.has("target") or "steps" in table.means:
        return
    steps: dict[Any, list[float]] = {}
    for size, cell in zip(table.columns["batch_size"], table.columns["steps"], strict=True):
        steps.setdefault(size, []).append(number(cell) or 0.0)
    if all(len(each) > 2 and each == sorted(set(each)) for each in steps.values()):
        raise ResultsError(
            f"{table.path}: steps may be steps to a target, or those of the evaluations of "
            f"{metrics[0]}",
            hint="say which: batchscale import PATH --map steps=steps, or --map step=steps",
        )
    if len(table.places) > len(steps) == len({(b, s) for b, each in steps.items() for s in each}):
        raise ResultsError(
            f"{table.path}: steps may be steps to a target, or budgets that end with {metrics[0]}",
            hint="say which: batchscale import PATH --map steps=steps, or --map "
            "examples=steps*batch_size",
        )


def _named(table: TableFile) -> TableFile:
    """Each column under a name that targets and conditions can have; without those that say where
    and when a run was.

    Raises:
        ResultsError: two columns would have one name.
    """
    made: dict[str, list[Any]] = {}
    theirs: dict[str, str] = {}
    for old, cells in table.columns.items():
        name = names.short(old, table)
        where = names.is_environment(name, cells)
        if old == _CALLS or (where and old not in TRIALS.names and old not in _KEPT):
            continue
        if names.is_config(old, table):
            if name in _KEPT or names.is_metric(name) or table.has(name) or name in made:
                name = old
        elif table.numeric(old) or names.is_measured(table, old) or names.of_split(old):
            name = metric_name(name)
        if name in made:
            raise ResultsError(
                f"{table.path}: {theirs[name]} and {old} both are {name}",
                hint=f"give one of them another name: --map other_{name}={old}",
            )
        made[name], theirs[name] = cells, old
    renamed = {new: old for new, old in theirs.items() if new != old and names.is_metric(new)}
    return replace(table, columns=made, means={**renamed, **table.means})
