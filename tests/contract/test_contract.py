"""What users have and read stays as it is: see ``tests.contract.frozen``."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from tests.analysis.reference import RELATIVE, compare, read
from tests.contract import frozen, lines
from tests.marks import quick
from workloads.errors import WorkloadError

IDS = read((frozen.FOLDER / "ids.csv").read_text())


@pytest.mark.parametrize("experiment", quick(sorted(set(IDS["experiment"])), 60))
def test_trials_keep_their_ids_and_seeds(experiment: str) -> None:
    committed = IDS[IDS["experiment"] == experiment].reset_index(drop=True)
    try:
        computed = frozen.ids(experiment, len(committed))
    except WorkloadError as error:
        if "is not in" not in str(error) and "no file" not in str(error):
            raise
        pytest.skip("the data are not on this machine")
    pd.testing.assert_frame_equal(computed, committed)  # ids are no numbers


def test_two_hundred_are_held() -> None:
    assert len(IDS) > 200
    assert set(IDS["experiment"]) <= set(frozen.experiments())


@pytest.mark.parametrize("name", quick(list(frozen.ANSWERS), 2))
def test_packaged_data_say_what_they_said(name: str) -> None:
    committed = read((frozen.FOLDER / f"{name}.csv").read_text())
    computed = frozen.answer(name)
    assert list(computed.columns) == list(committed.columns)
    for flat, within in ((False, RELATIVE), (True, 0.01)):
        compare(name, *(frozen.values(c, flat=flat) for c in (computed, committed)), within=within)


def test_names_that_users_write_and_columns_that_they_read() -> None:
    committed = json.loads((frozen.FOLDER / "interface.json").read_text(encoding="utf-8"))
    assert frozen.interface() == committed


@pytest.mark.skipif(not (lines.ROOT / ".git").exists(), reason="git counts the files")
@pytest.mark.parametrize("part", lines.PARTS, ids=lambda part: part.name)
def test_lines_stay_below_their_ceiling(part: lines.Part) -> None:
    assert 0 < part.lines <= part.ceiling, "delete as much as you add"
    assert part.aim < part.ceiling
