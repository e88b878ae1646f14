"""The growth of cost: what is measured, and the slope."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import results
from benchmarks import growth
from benchmarks.growth import Cost
from benchmarks.memory import peak_gigabytes


def costs(power: float) -> list[Cost]:
    """A constant cost, and one that grows as a power."""
    return [Cost(n, 2.0, 1e-9 + 0.001 * n**power, 0.5) for n in (1, 10, 100, 1000)]


@pytest.mark.parametrize("power", [0.8, 1.0, 1.3])
def test_the_slope_is_the_power(power: float) -> None:
    assert growth.slope(costs(power)) == pytest.approx(power, abs=1e-4)


def test_a_table_and_a_figure_of_both_lines(tmp_path: Path) -> None:
    file = tmp_path / "growth.png"
    growth.draw(costs(1.0), costs(0.5), file)
    with Image.open(file) as image:
        assert image.size == (1400, 540)
    rows = growth.table(costs(1.0), costs(0.5))
    assert len(rows) == 10
    assert rows[4]["what"] == "slope of processor seconds in logs, 100 to 1,000 trials trained"
    assert (rows[4]["measured"], rows[9]["measured"]) == ("1.00", "0.50")


def test_the_measurements_that_are_made_up_have_regimes(tmp_path: Path) -> None:
    growth.fill(str(tmp_path), 12 * 16 * growth.EACH)
    run = results.open(tmp_path)
    assert len(run.read_measurements(["step"])) == 12 * 16 * growth.EACH
    measured = run.with_target(growth.TARGET).trials
    # A trial is better than its target from where its error has halved.
    best = measured[measured.batch_size == 1024].steps_to_target.min()
    assert 200 * 1.06 * 0.9 < best < 200 * 1.06 * 1.5 + growth.EACH
    growth.analyse(str(tmp_path))


@pytest.mark.slow
def test_as_many_trials_are_trained_as_are_asked_for() -> None:
    growth.train(3)


def test_the_peak_of_a_process_is_its_own() -> None:
    """Not that of the one that starts it, which is what getrusage says."""
    code = "from benchmarks.memory import peak_gigabytes; print(peak_gigabytes())"
    held = bytearray(2**29)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.001 < float(done.stdout) < 0.4
    assert peak_gigabytes() > len(held) / 1e9
