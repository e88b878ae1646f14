"""Studies of experiments that are not complete: a sweep into a copy counts what was trained."""

from __future__ import annotations

import batchscale as bs
import results
from tests.test_imports import ROOT

FOLDER = ROOT / "validation" / "unfinished"


def test_a_sweep_counts_the_packaged_rows() -> None:
    trials = results.open(FOLDER).trials
    assert set(trials["experiment"]) == {"cifar10-resnet8-momentum"}
    assert trials["source"].eq("batchscale").all()
    assert trials["steps_to_target"].notna().any()
    state = bs.status(FOLDER)
    assert state.studies["done"].sum() == len(trials)
    counted = state.studies["wanted"].sum() - state.left
    assert counted == state.studies[["reached", "dominated"]].sum().sum()
