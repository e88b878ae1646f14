"""What a sweep costs at most is reckoned from probes: its parts, not the machine's speed."""

from __future__ import annotations

import pytest

from experiments.config.file import load
from experiments.driver import forecast as module
from experiments.driver.forecast import forecast
from experiments.plan import Study
from experiments.training.looks import looks


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine on which a pack's step takes 1 ms and 10 µs an example, and a look 5 ms."""
    sizes: list[int] = []

    def probe(plan: object, device: str) -> object:
        assert device == "cpu"
        study: Study = plan.study  # type: ignore[attr-defined]
        sizes.append(study.batch_size)
        step = 1e-3 + 1e-5 * study.batch_size
        return module._Probe(engine="stacked", step=step, look=5e-3, memory=1000 + study.batch_size)

    monkeypatch.setattr(module, "_probe", probe)
    return sizes


def test_three_batch_sizes_are_probed_and_the_rest_is_between_them(probed: list[int]) -> None:
    plans = load("digits", ["grid.batch_size=1..1024", "grid.optimizer=[sgd]"]).plans()
    found = forecast(plans, "cpu")
    assert probed == [1, 32, 1024]
    for plan in plans:
        study, count = plan.study, len(looks(1.05, plan.study.budget_steps))
        step = 1e-3 + 1e-5 * study.batch_size
        assert found[study.id].seconds == pytest.approx(study.budget_steps * step + count * 5e-3)
        assert found[study.id].memory == 1000 + study.batch_size


def test_more_trials_than_a_pack_holds_take_more_packs(probed: list[int]) -> None:
    few, many = (
        forecast(load("digits", ["grid.batch_size=[64]", "grid.optimizer=[sgd]", t]).plans(), "cpu")
        for t in ("trials=64", "trials=96")
    )
    ((one,), (other,)) = few.values(), many.values()
    assert other.seconds == pytest.approx(1.5 * one.seconds)
    assert probed == [64, 64]


@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_a_real_probe(engine: str) -> None:
    plans = load("digits-small", [f"engine={engine}", "grid.batch_size=[64]"]).plans()
    found = forecast(plans, "cpu")
    assert {f.engine for f in found.values()} == {engine}
    assert all(f.seconds > 0 for f in found.values())
    sgd, momentum = (found[plan.study.id].memory for plan in plans)
    weights = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert sgd > 8 * 2 * weights + 1797 * 64 * 4  # weights, gradients and the data
    assert momentum - sgd >= 8 * weights  # one more tensor a model
    assert momentum < 2**25
