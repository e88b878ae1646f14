from __future__ import annotations

import pytest

from batchscale.cli.options import assignments, columns, seconds
from batchscale.output.errors import CommandError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("2d", 172800), ("1.5h", 5400)],
)
def test_lengths_of_time(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "2x", "-3m", "0", "2h later"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(CommandError, match="not a length of time") as caught:
        seconds(text)
    assert caught.value.hint


def test_values_are_read_as_an_experiment_file_reads_them() -> None:
    given = ["learning_rate=1e-3", "name=no", "width=64", "widths=[64, 10]", "flag=true"]
    assert assignments(given, "--param") == {
        "learning_rate": 1e-3,
        "name": "no",
        "width": 64,
        "widths": [64, 10],
        "flag": True,
    }


@pytest.mark.parametrize("text", ["learning_rate", "=3"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(CommandError, match="not KEY=VALUE"):
        assignments([text], "--param")


def test_columns_are_given_singly_or_with_commas() -> None:
    assert columns(["optimizer", "width, schedule"]) == ["optimizer", "width", "schedule"]
    assert columns(None) is None
