"""What a cluster can place: whole GPUs and parts of them, growth, refusals, and what waits."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution.ray.demand import Capacity, WaitWatch
from experiments.plan import Layout

CPU, GPU = {"CPU": 4.0}, {"CPU": 32.0, "GPU": 8.0}
HEAD = {"CPU": 0.0}


def test_a_worker_without_a_gpu_takes_a_core() -> None:
    capacity = Capacity(nodes=[CPU, CPU])
    layout = capacity.with_gpus(Layout())
    assert layout.gpus_per_worker == 0
    assert capacity.worker(layout) == {"CPU": 1.0}
    assert capacity.slots(layout) == 8
    assert capacity.slots(Layout(workers=3)) == 2


@pytest.mark.parametrize(
    ("gpus", "worker", "slots"),
    [
        (0.0, {"CPU": 4.0, "GPU": 1.0}, 8),  # nothing said: a whole one
        (0.25, {"CPU": 1.0, "GPU": 0.25}, 32),
        (0.1, {"CPU": 0.4, "GPU": 0.1}, 80),
    ],
)
def test_a_worker_on_a_gpu_takes_its_share_of_the_cores(
    gpus: Any, worker: dict[str, float], slots: int
) -> None:
    capacity = Capacity(nodes=[GPU])
    layout = capacity.with_gpus(Layout(gpus_per_worker=gpus))
    assert capacity.worker(layout) == worker
    assert capacity.slots(layout) == slots


def test_the_share_is_that_of_the_machine_with_the_fewest_cores_a_gpu() -> None:
    capacity = Capacity(nodes=[GPU, {"CPU": 8.0, "GPU": 8.0}])
    layout = capacity.with_gpus(Layout())
    assert capacity.worker(layout) == {"CPU": 1.0, "GPU": 1.0}
    assert capacity.slots(layout) == 16


def test_growth_that_the_user_states() -> None:
    capacity = Capacity(nodes=[HEAD], grows_to=16)
    capacity.refuse_impossible(Layout())
    assert capacity.slots(Layout()) == 16
    assert capacity.slots(Layout(workers=4)) == 4
    with pytest.raises(ExperimentError) as caught:
        capacity.refuse_impossible(Layout(workers=17))
    assert str(caught.value) == (
        "the experiment asks for 17 workers with 1 CPU each; the cluster grows to 16 workers, says "
        "--grows-to"
    )


@pytest.mark.parametrize(
    ("nodes", "layout", "message"),
    [
        ([HEAD], Layout(), "asks for 1 CPU; the cluster has no CPU and no GPU on 1 machine"),
        ([CPU], Layout(gpus_per_worker=0.5), "asks for 0.5 CPUs and 0.5 GPUs; the cluster has 4"),
        ([GPU], Layout(workers=9, gpus_per_worker=1.0), "asks for 9 workers with 4 CPUs and 1 GPU"),
    ],
)
def test_what_can_never_be_placed(nodes: list[Any], layout: Layout, message: str) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        Capacity(nodes=nodes).refuse_impossible(layout)
    assert "--grows-to 16" in str(caught.value.hint)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_waits_is_said_every_minute() -> None:
    clock, capacity = Clock(), Capacity(nodes=[GPU])
    watch, layout = WaitWatch(clock), Layout(workers=4, gpus_per_worker=1.0)
    free = [{"GPU": 2.0, "CPU": 8.0}]

    def said(at: float, running: int) -> str | None:
        clock.now = at
        return watch.sentence(layout, capacity, lambda: free, out=2, running=running)

    assert [said(at, 1) for at in (0, 30, 59)] == [None, None, None]
    assert said(61, 1) == (
        "1 pack of 2 has waited 61 s for 4 workers with 4 CPUs and 1 GPU each; the cluster has 32 "
        "CPUs and 8 GPUs on 1 machine, of which 8 CPUs and 2 GPUs are free."
    )
    assert said(90, 1) is None
    assert "122 s" in str(said(122, 1))
    assert said(130, 2) is None  # both train
    assert said(200, 1) is None  # a new wait begins
    assert "70 s" in str(said(270, 1))
    free = [{"GPU": 3.0, "CPU": 12.0}, {"GPU": 1.0, "CPU": 4.0}]
    assert said(400, 1) is None  # there is a place: its process is being started


def test_nothing_is_free_where_nothing_is() -> None:
    clock = Clock()
    watch = WaitWatch(clock)
    watch.sentence(Layout(), Capacity(nodes=[HEAD], grows_to=4), list, out=4, running=0)
    clock.now = 60
    text = watch.sentence(Layout(), Capacity(nodes=[HEAD], grows_to=4), list, out=4, running=0)
    assert str(text).startswith("4 packs of 4 have waited 60 s for 1 CPU;")
    assert str(text).endswith(
        "no CPU and no GPU on 1 machine, of which no CPU and no GPU are free."
    )


def test_the_experiment_says_which_part_of_a_gpu() -> None:
    of = ["grid.batch_size=[64]", "grid.optimizer=[sgd]"]
    plain, quarter = (load("digits", [*of, *gpus]).studies()[0] for gpus in ([], ["gpus=0.25"]))
    assert [study.layout.gpus_per_worker for study in (plain, quarter)] == [0.0, 0.25]
    assert plain.trial(0).id == quarter.trial(0).id  # it is placement
