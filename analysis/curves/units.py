"""The unit in which batch sizes and data are counted: examples as recorded, sequences or tokens.

In tokens, a trial's batch size and training set are those in examples times its
``tokens_per_example``. All that is computed from them follows: points, fits, regimes, axes. Steps
stay steps. Curves whose examples have unequal lengths are then comparable.
"""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from results.batch_phases import BatchPhases
from results.counts import count, plural
from results.errors import ResultsError, nearest

EXAMPLES, SEQUENCES, TOKENS = UNITS = ("examples", "sequences", "tokens")
_COUNTS = ("batch_size", "train_examples", "examples_run")
"""Columns of examples that the analysis reads."""


def check_unit(unit: str | None) -> None:
    """
    Raises:
        ResultsError: no such unit.
    """
    if unit == "steps":
        message = "steps are not a unit of batch sizes"
        raise ResultsError(message, hint=f"{', '.join(UNITS)}; figures have steps on an axis")
    if unit is not None and unit not in UNITS:
        raise ResultsError(f"no unit {unit!r}", hint=nearest(unit, UNITS, ", ".join(UNITS)))


def tokens_of(trials: pd.DataFrame) -> pd.Series:
    """Tokens of an example of each trial or study, NaN where not known; 1 where they are the unit
    already."""
    missing = pd.Series(None, trials.index, dtype=float)
    counts = pd.to_numeric(trials["tokens_per_example"]) if "tokens_per_example" in trials else None
    tokens = missing if counts is None else counts.astype("Float64").astype(float)
    if "example_unit" in trials:
        tokens = tokens.mask(trials["example_unit"].eq("token"), 1.0)
    return tokens.where(tokens > 0)


def in_unit(trials: pd.DataFrame, unit: str | None) -> pd.DataFrame:
    """``trials`` with batch sizes and training sets in ``unit``, and ``example_unit`` accordingly.

    Raises:
        ResultsError: trials whose examples have no known number of tokens, or are no sequences.
    """
    if unit in (None, EXAMPLES) or trials.empty:
        return trials
    if unit == SEQUENCES:
        units = trials.get("example_unit", pd.Series(None, trials.index, dtype=object))
        others = trials[units.ne("sequence").fillna(True)]
        _refuse(others, "cannot be counted in sequences", "example_unit = 'sequence'")
        return trials
    tokens = tokens_of(trials)
    what = "cannot be counted in tokens, without tokens_per_example"
    _refuse(trials[tokens.isna()], what, "tokens_per_example > 0")
    return _times(trials, tokens)


def known_in_unit(studies: pd.DataFrame, unit: str | None) -> pd.DataFrame:
    """``in_unit`` of the studies that have the unit, without the others."""
    if unit != TOKENS or studies.empty:
        return studies
    tokens = tokens_of(studies)
    return _times(studies[tokens.notna()], tokens[tokens.notna()])


def _times(trials: pd.DataFrame, tokens: pd.Series) -> pd.DataFrame:
    """In tokens; an example is then one token."""
    counted = {
        name: pd.to_numeric(trials[name]).astype("Int64") * tokens.astype("Int64")
        for name in _COUNTS
        if name in trials
    }
    plain: dict[str, Any] = {
        name: c.astype("int64") if c.notna().all() else c for name, c in counted.items()
    }
    if "notes" in trials and "example_unit" in trials:
        units = [plural(u) if isinstance(u, str) else EXAMPLES for u in trials["example_unit"]]
        notes = [_with_unit(*pair) for pair in zip(trials["notes"], units, strict=True)]
        plain["notes"] = pd.Series(notes, trials.index, dtype=object)
    if "batch_sizes" in trials:
        pairs = zip(trials["batch_sizes"], tokens.astype(int), strict=True)
        phases = [_phases(cell, each) for cell, each in pairs]
        plain["batch_sizes"] = pd.Series(phases, trials.index, dtype=object)
    return trials.assign(**plain, example_unit="token", tokens_per_example=1)


def _phases(cell: Any, tokens: int) -> Any:
    """The phases of a batch size that grows, in tokens."""
    phases = BatchPhases.of(cell)
    if phases is None:
        return cell
    sizes = [size * tokens for size in phases.sizes]
    described = {"starts": phases.starts, "sizes": sizes, "schedule_steps": phases.schedule_steps}
    return json.dumps(described)


def _with_unit(notes: Any, unit: str) -> Any:
    """A study's recorded notes (a list as JSON) name batch sizes as they were recorded."""
    if not isinstance(notes, str):
        return notes
    return json.dumps([f"{note} (recorded in {unit})" for note in json.loads(notes)])


def _refuse(trials: pd.DataFrame, what: str, condition: str) -> None:
    if trials.empty:
        return
    names = trials["workload"].dropna() if "workload" in trials else trials.iloc[:0, 0]
    named = sorted(map(str, names.unique()))
    of = f" of {', '.join(named[:3])}{' …' if len(named) > 3 else ''}" if named else ""
    raise ResultsError(
        f"{count(len(trials), 'trial')}{of} {what}",
        hint=f'leave them out, --where "{condition}", or count in examples',
    )
