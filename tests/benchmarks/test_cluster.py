"""The simulated cluster in small: every pack is slept through once, and counted rightly."""

from __future__ import annotations

import pytest

from benchmarks import cluster, driver


@pytest.mark.ray
@pytest.mark.slow
def test_eight_workers_that_sleep() -> None:
    run = cluster.measure(8, packs_each=2, seconds=1.0)
    assert run.complete
    assert (run.slots, run.packs, run.trials) == (8, 16, 8 * 32)
    assert 0 < run.busy <= 1
    assert run.private > 0


def test_the_part_of_the_time_in_which_workers_are_busy() -> None:
    intervals = [(0.0, 10.0), (1.0, 11.0), (12.0, 22.0), (11.0, 21.0)]
    assert cluster.busy_share(intervals, slots=2, since=1.0, until=21.0) == pytest.approx(0.95)


def test_a_driver_in_small() -> None:
    run = driver.cost(240)
    assert run.trials == 240
    assert run.seconds > 0
