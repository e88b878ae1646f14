"""How predictions of the critical batch size are scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.fit.interval import Interval
from tests.analysis.gallery import Row
from tests.analysis.noisy_trajectories import CURVES, SIZES, recorded
from validation.noise_scale import NOTHING, Case, cases, chosen, predictions, score


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """A workload for each of the two curves, so that each is predicted from the other."""
    root = tmp_path_factory.mktemp("made")

    def named(row: Row) -> Row:
        return {**row, "workload": f"of-{row['optimizer']}"} if "optimizer" in row else row

    recorded(root, named)
    return cases(root, "true")


def test_a_curve_is_predicted_from_its_middle_batch_size(made: list[Case]) -> None:
    assert [case.variant for case in made] == [f"of-{name}" for name in CURVES]
    assert {case.trajectory.point.batch_size for case in made} == {SIZES[len(SIZES) // 2]}


def test_a_factor_is_that_of_the_other_workloads(made: list[Case]) -> None:
    logs: list[float] = []
    for case in made:
        noise = case.noise("path")
        assert noise is not None
        critical = case.measured("knee")
        assert critical is not None
        logs.append(float(np.log(noise.noise_scale / critical)))
    itself = score(predictions("path", "itself", made))
    assert itself.curves == 2
    assert itself.median.value == pytest.approx(np.exp(np.median(np.abs(logs))))
    fitted = score(predictions("path", "times a factor", made))
    assert fitted.median.value == pytest.approx(np.exp(abs(logs[0] - logs[1])))
    assert fitted.shift == pytest.approx(1.0)  # one is too high by as much as the other too low
    nothing = score(predictions("path", NOTHING, made))
    knees = [case.measured("knee") for case in made]
    assert nothing.median.value == pytest.approx(max(knees) / min(knees))  # type: ignore[type-var,operator]


def test_what_is_chosen_for_a_workload_does_not_depend_on_its_critical_batch_size(
    made: list[Case],
) -> None:
    def called(name: str, source: Case, knee: float, times: float) -> Case:
        recorded = source.trajectory.recorded
        recorded = recorded.assign(variance=times * recorded["variance"])
        trajectory = replace(source.trajectory, recorded=recorded)
        group = {**source.curve.group, "workload": name}
        curve = replace(source.curve, group=group)
        return replace(
            source, curve=curve, variant=name, knee=Interval(value=knee), trajectory=trajectory
        )

    three = [*made, called("third", made[1], 90.0, 0.7)]
    first, second = (chosen([*three, called("last", made[0], knee, 1.3)]) for knee in (70.0, 7.0))
    assert [case.workload for case, _ in first] == ["of-sgd", "of-momentum", "third", "last"]
    assert first[3][1] == second[3][1]
    assert first[0][1] != second[0][1]  # it is fitted to the others
