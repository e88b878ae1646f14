"""What a cluster can place: whole GPUs and parts of them, growth, refusals, and what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution.executors.base import ExecutorContext
from experiments.execution.ray import gpu_share
from experiments.execution.ray import growth as growth_requests
from experiments.execution.ray.demand import Capacity, WaitWatch, growth
from experiments.plan import AUTO, Layout, Pack
from experiments.scheduling.packs import largest
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import FakeTraining, Plan, points, study

CPU, GPU = {"CPU": 4.0}, {"CPU": 32.0, "GPU": 8.0}
HEAD = {"CPU": 0.0, "node:__internal_head__": 1.0}
GIB = 2**30


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
        (AUTO, {"CPU": 4.0, "GPU": 1.0}, 8),  # until its memory has been measured
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


def test_packs_are_offered_up_to_what_the_cluster_grows_to() -> None:
    config = {
        "max_workers": 3,
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": CPU},
            "small": {"resources": CPU, "max_workers": 4},
            "gpu": {"resources": GPU, "max_workers": 2},
            "more": {"resources": CPU},
        },
    }
    nodes = growth(config)
    assert nodes == [GPU, GPU, CPU]  # three of them at the most
    assert Capacity(nodes=[HEAD], growth=nodes).slots(Layout(gpus_per_worker=1.0)) == 16
    # A machine that is there already is one of them.
    assert Capacity(nodes=[HEAD, GPU], growth=nodes).slots(Layout(gpus_per_worker=1.0)) == 16
    assert Capacity(nodes=[CPU], growth=[]).slots(Layout()) == 4


class Groups:
    """Placement groups of a cluster that holds some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[int, str] = {}
        self.made: list[Any] = []
        monkeypatch.setattr(growth_requests, "placement_group", self.make)
        monkeypatch.setattr(growth_requests, "remove_placement_group", self.states.pop)
        monkeypatch.setattr(
            growth_requests, "placement_group_table", lambda group: {"state": self.states[group]}
        )

    def make(self, bundles: Any, strategy: str) -> int:
        self.made.append((bundles, strategy))
        self.states[len(self.made)] = "PENDING"
        return len(self.made)


def test_machines_are_asked_for_until_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(monkeypatch)
    requests = growth_requests.Requests(4, {"CPU": 1.0}, workers=2)
    assert groups.made == [([{"CPU": 1.0}] * 2, "PACK")] * 4
    groups.states[2] = "CREATED"  # its place is for a pack
    requests.reduce(3)
    assert set(groups.states) == {1, 3, 4}
    requests.reduce(1)
    assert set(groups.states) == {1}
    assert len(requests) == 1
    requests.reduce(0)
    assert not groups.states
    assert Capacity(nodes=[CPU], grows_to=16).missing(Layout()) == 12
    assert Capacity(nodes=[CPU], grows_to=16).missing(Layout(workers=4)) == 3
    assert Capacity(nodes=[CPU]).missing(Layout()) == 0


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


def test_packs_a_gpu_by_its_memory() -> None:
    memory = [gpu_share.Memory(peak=peak * GIB, total=80 * GIB) for peak in (3, 17, 9)]
    assert [each.packs for each in memory] == [16, 4, 8]
    assert gpu_share.share(memory) == 0.25
    assert gpu_share.share(memory[:1]) == 0.0625
    assert gpu_share.share([gpu_share.Memory(peak=90 * GIB, total=80 * GIB)]) == 1.0
    assert gpu_share.share([gpu_share.Memory(peak=25 * GIB, total=80 * GIB)]) == 0.5
    assert gpu_share.sentence(memory) == (
        "gpus: auto: 4 packs on each GPU; the largest takes 17.0 GiB of 80.0 GiB."
    )
    thirds = gpu_share.share([gpu_share.Memory(peak=20 * GIB, total=80 * GIB)])
    capacity = Capacity(nodes=[GPU])
    assert capacity.slots(Layout(gpus_per_worker=thirds)) == 24  # three on each


def test_what_is_measured_are_the_largest_batches_of_each_shape() -> None:
    kinds: dict[str, dict[str, Any]] = {
        "a": {"batch_size": 8},
        "b": {"batch_size": 512},
        "c": {"batch_size": 64, "optimizer": "adam"},
        "d": {"batch_size": 999, "layout": Layout(workers=2)},
    }
    states = [
        StudyState(plan=Plan(study(id=name, trials=30, **of), points(8)), columns={}, label=name)
        for name, of in kinds.items()
    ]
    packs = largest(states, Layout(), 16)
    assert [(pack.study.id, len(pack.trials)) for pack in packs] == [("b", 16), ("c", 16)]
    assert len({trial.id for trial in packs[0].trials}) == 16
    assert {trial.metaparameters["learning_rate"] for trial in packs[0].trials} == {points(8)[0]}
    assert len(largest(states, Layout(), 64)[0].trials) == 30


def _experiment(**changes: Any) -> Any:
    return load(
        {
            "name": "gpus",
            "workload": "digits-softmax",
            "grid": {"batch_size": [64], "optimizer": ["sgd"]},
            "trials": 2,
            "budget": "20 steps",
            **changes,
        }
    )


def test_the_experiment_says_which_part_of_a_gpu() -> None:
    plain, quarter, auto = (_experiment(**of) for of in ({}, {"gpus": 0.25}, {"gpus": "auto"}))
    layouts = [each.plans()[0].study.layout.gpus_per_worker for each in (plain, quarter, auto)]
    assert layouts == [0.0, 0.25, AUTO]
    ids = {each.plans()[0].trial(0).id for each in (plain, quarter, auto)}
    assert len(ids) == 1  # it is placement


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 0}, "gpus"),
        ({"gpus": 2}, "gpus"),
        ({"gpus": "all"}, "gpus"),
        ({"gpus": 0.5, "workers": 2}, "each of several workers of a pack needs a GPU of its own"),
        ({"gpus": "auto", "workers": 2}, "needs a GPU of its own"),
    ],
)
def test_parts_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError, match=message) as caught:
        _experiment(**changes).plans()
    assert "\n" not in str(caught.value)


def _four_packs(pack: Pack) -> gpu_share.Memory:
    return gpu_share.Memory(peak=len(pack.trials) * GIB, total=10 * GIB)


@pytest.mark.ray
@pytest.mark.slow
def test_a_pool_measures_before_it_divides_a_gpu(tmp_path: Path) -> None:
    """On a Ray that believes in two GPUs; the measurement is a fake."""
    from tests.forked import SERVER

    alone = SERVER.Process(target=_measured_pool, args=(tmp_path,))
    alone.start()
    alone.join(300)
    assert alone.exitcode == 0


def _measured_pool(folder: Path) -> None:
    import ray

    from experiments.execution.ray.start import RaySession
    from experiments.execution.ray.tune import RayTune
    from experiments.execution.staging import staged
    from results.storage.location import Location

    ray.init(
        num_cpus=2, num_gpus=2, include_dashboard=False, _node_ip_address="127.0.0.1",
        object_store_memory=2**27, log_to_driver=False,
    )  # fmt: skip
    layout = Layout(gpus_per_worker=AUTO)
    packs = [Pack(id="memory", study=study(), trials=tuple(Plan(study(), points(8)).trials(0, 2)))]
    context = ExecutorContext(
        location=Location(str(folder)),
        layouts=[layout],
        base=None,
        specs=(),
        files=(),
        trainer=FakeTraining,
        pace=None,
        num_cpus=None,
        missing=2,
        measure=_four_packs,
        largest=lambda _: packs,
    )
    with staged(None, (), (), ()) as files:
        session = RaySession(single_machine=True, processes=())
        pool = RayTune(context, layout, session=session, staged=files)
        assert pool.layout.gpus_per_worker == 0.25
        assert pool.slots == 8
        assert pool.device == "cuda"
    ray.shutdown()
