"""A packaged trial of each experiment, trained again from its seed: the same steps to its target.

They were trained in packs of many, by several versions of torch and on several kinds of processors.
On one kind all bits are the same (``tests/experiments``); on another one the last bits of a sum are
not, a difference that grows as training goes on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
import results
from tests.results.test_own import STANDARD_LIBRARY
from workloads.data import present
from workloads.registry import get

TRIALS = Path(__file__).resolve().parents[2] / "results" / "own" / "trials"
EXPERIMENTS = sorted(folder.name for folder in TRIALS.iterdir() if folder.is_dir())
ALWAYS = {"atlas-digits", "gallery-goals", "noise-digits", "techniques-digits"}
"""Quick ones, which every run of the tests trains again."""
MOST_EXAMPLES = 60_000
OF_ROUNDING = ("0010f921", "0011b37d", "001ff6c9", "00826268", "00b58c87", "01178b86")
"""Trials whose steps rounding decides: MKL_CBWR changes their losses as another processor does."""
EARLY = 20
"""Steps up to which the others are the same to five digits on another processor."""


@pytest.fixture(scope="module")
def own() -> results.Results:
    return results.open("own")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ALWAYS else [pytest.mark.slow]) for n in EXPERIMENTS],
)
def test_a_packaged_trial_is_trained_again(own: results.Results, name: str) -> None:
    """The first by its id, a hash, of those that reached their target within 60,000 examples."""
    trials = own.trials[~own.trials["trial"].str.startswith(OF_ROUNDING)]
    trials = trials[trials["experiment"] == name]
    reached = trials["steps_to_target"].notna() & (trials["examples_run"] < MOST_EXAMPLES)
    if not reached.any():
        pytest.skip(f"every trial of {name} that reached its target took more examples")
    row = trials[reached].sort_values("trial").iloc[0]
    _skip_without_its_data(row)
    run = bs.rerun(row["trial"], results="own")
    assert run.steps_to_target == row["steps_to_target"]
    recorded = own.query(f"SELECT * FROM measurements WHERE trial = '{row['trial']}'")
    made = _values(run.measurements)
    for step, values in _values(recorded).items():
        if step <= EARLY:
            assert {name: made[step][name] for name in values} == pytest.approx(values, rel=1e-5)


def _skip_without_its_data(row: pd.Series[Any]) -> None:
    dataset = row["dataset"]
    if dataset in {"mnist", "fashion_mnist", "cifar10"} and not present(dataset):
        pytest.skip(f"needs {dataset} in BATCHSCALE_DATA")
    if row.get("text") == "stdlib":
        text = get("lm-transformer")(text="stdlib").data_fingerprint
        if text != STANDARD_LIBRARY:
            pytest.skip("this Python's standard library is another text")


def _values(rows: pd.DataFrame) -> dict[int, dict[str, float]]:
    """What was measured of the validation split, by step."""
    made = {}
    for row in rows.to_dict("records"):
        more = row.get("metrics")
        metrics = {**row, **(json.loads(more) if isinstance(more, str) else {})}
        made[row["step"]] = {
            name: value
            for name, value in metrics.items()
            if name.startswith("validation_") and pd.notna(value)
        }
    return made
