"""What benchmarks share, and that each has its table on the page."""

from __future__ import annotations

import math
from importlib import import_module

import pytest

from benchmarks import driver, harness
from benchmarks.__main__ import PARTS
from benchmarks.harness import PAGE, Row, measured, peak_gigabytes
from validation.page import blocks, table


def test_each_part_has_its_table_on_the_page() -> None:
    assert tuple(blocks(PAGE.read_text(encoding="utf-8"))) == PARTS
    assert all(callable(import_module(f"benchmarks.{name}").rows) for name in PARTS)


def test_a_row_is_a_line_of_the_table() -> None:
    head = ("what", "measured", "wanted")
    said = "| what | measured | wanted |\n| --- | --- | --- |\n| x | 1 s |  |\n"
    assert table(head, [Row("x", "1 s")]) == said


def test_a_function_is_measured_in_a_process_of_its_own() -> None:
    """Its peak is its own, not that of the process that starts it, which is what getrusage says."""
    held = bytearray(2**29)
    cost = measured(math.factorial, 5)
    assert cost.value == 120
    assert 0.001 < cost.gigabytes < 0.4
    assert peak_gigabytes() > len(held) / 1e9


def test_a_ratio_is_how_many_times_as_fast_ours_is() -> None:
    ours, theirs = (harness.Used(lambda: None) for _ in range(2))
    ours.seconds, theirs.seconds = 2.0, 6.0
    assert harness.ratio([ours] * 4, [theirs] * 4, 0.5) == (1.5, "1.50× (1.50 … 1.50)")


@pytest.mark.slow
def test_a_driver_in_small() -> None:
    assert driver.planned(240) == 240
