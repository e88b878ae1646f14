"""Odd CSV and Parquet files: each is read, or ends in one clear line; none hangs."""

from __future__ import annotations

import pytest

from tests.fuzz import guard
from tests.fuzz.corpus import CSV_FILES, PARQUET_FILES
from tests.fuzz.guard import Outcome

REFUSED = {
    "a seed of 1e400": "odd.csv line 2: seed is 1e400",
    "a seed beyond 64 bits": "odd.csv line 2: seed is 1e+19, which is beyond 64 bits",
    "a world size that is infinite": "odd.csv line 2: world_size is inf",
    "warm-up steps of one and a half": "odd.csv line 2: warmup_steps is 1.5, but it must be whole",
    "a direction that is no flag": "odd.csv line 2: lower_is_better is 'perhaps', but it must be",
    "steps of 1e308": "odd.csv line 2: steps 1e+308 at batch size 8 is beyond 64 bits",
    "a batch size beyond 64 bits": "odd.csv line 2: batch_size is 1e+19, which is beyond 64 bits",
    "steps times a batch size beyond 64 bits": "odd.csv line 2: steps 1e+15 at batch size 1e+15",
    "a step of 1e300": "odd.csv line 2: step is 1e+300, which is beyond 64 bits",
    "a cell larger than csv takes": "odd.csv line 2: field larger than field limit",
    "a quote left open": "odd.csv line 4: steps is '60\\n32,40', not a number",
    "half a surrogate pair": "odd.csv is not UTF-8 text",
    "two columns of one name": "has two columns",
    "a target of two points": "odd.csv line 2: target 'validation_error < 1.2.3' is not METRIC",
    "an infinite target": "odd.csv line 2: target 'validation_error < 1e999': 1e999 is not a",
    "final losses of examples beyond 64 bits": "odd.csv line 2: examples is 1e+300",
    "final losses of tokens of no examples": "odd.csv line 2: tokens_per_example must be a whole",
    "nothing but a header": "odd.csv has no rows",
    "nothing": "odd.csv is empty",
}
"""What cannot be read at all; the others can."""


@pytest.fixture(scope="module")
def corpus() -> dict[str, Outcome]:
    return guard.run("tests.fuzz.sources", "corpus")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CSV_FILES, *PARQUET_FILES])
def test_the_worst_that_are_known(corpus: dict[str, Outcome], name: str) -> None:
    mine = {key: each for key, each in corpus.items() if key.startswith(f"{name}: ")}
    assert len(mine) >= 4
    assert {key: each.wrong for key, each in mine.items() if each.wrong} == {}
    said = corpus[f"{name}: frames"].error
    assert (said is None) == (name not in REFUSED)
    assert REFUSED.get(name, "") in (said or "")


@pytest.mark.slow
def test_many() -> None:
    found = guard.run("tests.fuzz.sources", "random", 0, 160)
    assert {name: each.wrong for name, each in found.items() if each.wrong} == {}
    frames = [each for name, each in found.items() if name.endswith(" frames")]
    assert len(frames) == 160
    works = sum(each.error is None for each in frames)
    assert 40 < works < 150  # the generator makes both
