"""Which parameters, which optimizer: by patterns of names in the experiment file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import batchscale as bs
from experiments import optimizers
from experiments.config.compile import from_keywords, load, parse
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.identity import optimizer_identity
from experiments.optimizers import routed
from experiments.plan import WorkloadRef
from experiments.seeds import derive
from experiments.training.batch_order import BatchOrder
from tests.experiments.test_cohorts import bits
from tests.problems import engine, largest_difference, study, tensors, trials
from workloads import load as load_workload

FILE = """
import torch
from workloads.digits import DigitsMLP


class Grouped(DigitsMLP):
    '''Biases have no decay, whichever optimizer trains them.'''

    target = "validation_error < 0.1"

    def parameter_groups(self, named_parameters):
        return {"*.bias": {"weight_decay": 0.0}, "2.weight": {"learning_rate_factor": 0.5}}


class Heavy(torch.optim.SGD):
    def __init__(self, params, lr=0.1, weight_decay=0.0, mass=0.9):
        super().__init__(params, lr=lr, weight_decay=weight_decay, momentum=mass)
"""
ROUTES = json.dumps({"0.*": "momentum", "*": "adamw"})
MUON = json.dumps({"*.weight": "muon", "*": "nesterov"})
NORMS = json.dumps({"*.weight": "lamb", "*": "lion"})
AVERAGE = json.dumps({"0.*": "schedule-free-sgd", "*": "adamw"})
USERS = json.dumps({"2.*": "mine.py:Heavy", "*": "adamw"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path


def of(folder: Path, optimizer: str, **changes: Any) -> Any:
    workload = WorkloadRef(spec="mine.py:Grouped", base=str(folder))
    return study(workload=workload, optimizer=optimizer, **{"batch_size": 16, **changes})


@pytest.mark.parametrize(
    ("separate", "kind"),
    [
        (True, "module"),
        (True, "stacked"),
        pytest.param(False, "module", marks=pytest.mark.slow),
        pytest.param(False, "stacked", marks=pytest.mark.slow),
    ],
)
def test_both_engines_are_a_loop_with_two_optimizers(
    folder: Path, kind: str, separate: bool
) -> None:
    """One rate for both, or one for each; the options of the workload go to either."""
    rates: dict[str, Any] = {"learning_rate": 0.02}
    if separate:
        rates = {"momentum.learning_rate": 0.05, "adamw.learning_rate": 0.003}
    a_study = of(folder, ROUTES, batch_size=50, precision="float64", schedule="linear")
    drawn = trials(a_study, 2, decay_steps=20, warmup_steps=0, end_factor=0.1, **rates)[0]
    m = {**drawn.metaparameters}
    if separate:
        m.pop("learning_rate")
    trial = type(drawn)(id="a", index=0, seed=drawn.seed, metaparameters=m)
    trained = engine(kind, a_study, (trial, *trials(a_study, 2, seed=5)))
    trained.advance(30)
    x, y = tensors(load_workload("digits-mlp").data()["train"])
    with torch.random.fork_rng():
        torch.manual_seed(derive(trial.seed, "init"))
        model = load_workload("digits-mlp").model().double()
    value: dict[str, Any] = m
    first, first_bias, last, last_bias = model.parameters()
    first_rate, last_rate = [0.05, 0.003] if separate else [0.02, 0.02]
    groups: list[dict[str, Any]] = [
        {"params": [first]},
        {"params": [first_bias], "weight_decay": 0.0},
    ]
    momentum = torch.optim.SGD(
        groups,
        lr=first_rate,
        momentum=value["momentum"],
        weight_decay=value["weight_decay"],
    )
    adamw = torch.optim.AdamW(
        [
            {"params": [last], "lr": 0.5 * last_rate},
            {"params": [last_bias], "weight_decay": 0.0},
        ],
        lr=last_rate,
        betas=(value["beta1"], value["beta2"]),
        weight_decay=value["weight_decay"],
    )
    groups = [*momentum.param_groups, *adamw.param_groups]
    starts = [group["lr"] for group in groups]
    order = BatchOrder(trial.seed, len(x), 50)
    for step in range(30):
        batch = order.batches(step, 1)[0]
        factor = 1 - 0.9 * min(step / 20, 1)
        for group, start in zip(groups, starts, strict=True):
            group["lr"] = start * factor
        model.zero_grad()
        output = model(x[batch].double())
        loss = torch.nn.functional.cross_entropy(output, y[batch], reduction="sum")
        (loss / 50).backward()
        momentum.step()
        adamw.step()
    assert largest_difference(dict(model.state_dict()), trained.weights(0)) < 1e-10


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("optimizer", [ROUTES, MUON, USERS])
def test_bits_do_not_depend_on_the_pack(folder: Path, kind: str, optimizer: str) -> None:
    """Of trials that join, leave, are taken back, or continue from a snapshot."""
    a_study = of(folder, optimizer, schedule="cosine")
    pack = trials(a_study, 5)
    whole = engine(kind, a_study, pack)
    whole.advance(12)
    trained = engine(kind, a_study, pack[:3])
    trained.advance(6)
    copied = trained.copy([1])
    trained.add(pack[3:])
    trained.advance(3)
    trained.keep([1, 3])
    trained.restore(0, copied[0])
    trained.advance(6)
    assert bits(trained, 0) == bits(whole, 1)
    resumed = engine(kind, a_study, tuple(trained.trials))
    resumed.load(trained.state())
    resumed.advance(3)
    assert bits(resumed, 1) == bits(whole, 3)


@pytest.mark.parametrize("optimizer", [ROUTES, USERS, NORMS, AVERAGE])
def test_engines_agree(folder: Path, optimizer: str) -> None:
    a_study = of(folder, optimizer, precision="float64")
    pack = trials(a_study, 3)
    module, stacked = engine("module", a_study, pack), engine("stacked", a_study, pack)
    assert hasattr(stacked.update, "form") == (optimizer != USERS)  # type: ignore[attr-defined]
    for trained in (module, stacked):
        trained.advance(30)
    for row in range(3):
        assert largest_difference(module.weights(row), stacked.weights(row)) < 1e-8
    measured = [each.evaluate("validation")[2]["cross_entropy"] for each in (module, stacked)]
    assert measured[0] == pytest.approx(measured[1], rel=1e-9)


@pytest.mark.parametrize("kind", ["module", "stacked"])
def test_evaluations_measure_the_average_where_a_part_has_it(folder: Path, kind: str) -> None:
    a_study = of(folder, AVERAGE, precision="float64")
    trained = engine(kind, a_study, trials(a_study, 3))
    trained.advance(10)
    weights = trained.weights(1)
    (measured,) = trained.evaluate("validation", [1])
    split = trained.context.splits["validation"]
    x, y = split.fetch(torch.arange(len(split)), training=False)
    model = load_workload("digits-mlp").model().double()
    output = torch.func.functional_call(model, weights, (x,))
    loss = float(torch.nn.functional.cross_entropy(output, y))
    assert measured["cross_entropy"] != pytest.approx(loss, rel=1e-4)
    for name, value in trained.weights(1).items():
        assert torch.equal(value, weights[name])


EXPERIMENT = """\
workload: mine.py:Grouped
grid:
  batch_size: [16, 32]
  optimizer:
    - adamw
    - {}
search:
  learning_rate: {{log: [1e-3, 0.1]}}
trials: 2
budget: 10 steps
"""


def plans(folder: Path, mapping: str) -> Any:
    file = folder / "mine.yaml"
    file.write_text(EXPERIMENT.format(mapping))
    return load(file)


@pytest.mark.slow
def test_a_sweep_records_the_name_and_trains_nothing_twice(folder: Path) -> None:
    experiment = plans(folder, '{"*.weight": muon, "*": adamw}')
    results = str(folder / "results")
    file = str(folder / "mine.yaml")
    run = bs.sweep(file, results=results, address="none")
    assert set(run.trials["optimizer"]) == {"adamw", "muon + adamw"}
    assert len(run.trials) == 8
    renamed = '{"*.weight": "muon", "*": "adamw", as: mixed}'
    assert [p.study.id for p in plans(folder, renamed).plans()] == [
        p.study.id for p in experiment.plans()
    ]
    text = experiment.to_yaml()
    reread = parse(text, base=folder)
    assert [p.study for p in reread.plans()] == [p.study for p in experiment.plans()]
    assert [t.id for p in reread.plans() for t in p.trials(0, 2)] == [
        t.id for p in experiment.plans() for t in p.trials(0, 2)
    ]


def test_the_order_of_patterns_and_their_optimizers_are_the_identity(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    base = str(tmp_path)
    texts = [
        '{"0.*": adamw, "*": sgd}',
        '{"0.*": sgd, "*": adamw}',
        '{"0.weight": adamw, "*": sgd}',
        '{"*": sgd, "0.*": adamw}',
        '{"0.*": "mine.py:Heavy", "*": sgd}',
    ]
    identities = [json.dumps(optimizer_identity(optimizers.get(t, base), base)) for t in texts]
    assert len(set(identities)) == len(texts)
    (tmp_path / "mine.py").write_text(FILE.replace("momentum=mass", "momentum=mass / 2"))
    assert json.dumps(optimizer_identity(optimizers.get(texts[4], base), base)) != identities[4]


def test_metaparameters_are_shared_by_name() -> None:
    mixed = optimizers.get('{"*.weight": muon, "0.*": momentum, "*": adamw}')
    assert mixed.label == "muon + momentum + adamw"
    assert {"learning_rate", "momentum", "muon.momentum", "adamw.beta1"} <= mixed.arguments
    assert "adamw.momentum" not in mixed.arguments
    assert mixed.space == {
        "learning_rate": {"log": [1e-4, 10]},
        "weight_decay": {"log": [1e-4, 1]},
        "momentum": {"reverse_log": [0.1, 0.99]},
    }
    assert mixed.defaults["nesterov"] is True
    assert mixed.defaults["weight_decay"] == 0.1
    named = [("1.weight", torch.nn.Parameter(torch.ones(2, 2)))]
    named += [("1.gain", torch.nn.Parameter(torch.ones(2)))]
    two = optimizers.get('{"*.weight": muon, "*": adamw}')
    made: Any = two.module(named, {"learning_rate": 0.1, "beta1": 0.5})
    assert [part.param_groups[0]["weight_decay"] for part in made.parts] == [0.1, 0.1]
    assert made.param_groups[1]["betas"] == (0.5, 0.999)


def test_a_shared_value_that_nothing_uses_is_not_tuned(folder: Path) -> None:
    file = folder / "mine.yaml"
    file.write_text(
        EXPERIMENT.format('{"*.weight": muon, "*": adamw, as: routed}').replace(
            "search:\n",
            "search:\n  muon.learning_rate: {log: [1e-3, 1]}\n  adamw.learning_rate: 0.01\n",
        )
    )
    experiment = load(file)
    plain, of_routes = experiment.combinations
    assert plain.space.keys() == {"learning_rate", "weight_decay"}
    assert of_routes.space.keys() == {"muon.learning_rate", "weight_decay"}
    assert of_routes.fixed == {"adamw.learning_rate": 0.01}
    reread = parse(experiment.to_yaml(), base=folder)
    assert reread.combinations[1].space == of_routes.space
    file.write_text(file.read_text().replace("adamw.learning_rate: 0.01", "adamw.beta1: 1"))
    with pytest.raises(ExperimentError, match=r"search.adamw.beta1: 1 is outside \[0, 1\)"):
        load(file)


@pytest.mark.parametrize(
    ("mapping", "message", "hint"),
    [
        (
            '{"2.weigth": adamw, "*": sgd}',
            "optimizer adamw + sgd: no parameter is called '2.weigth'",
            "did you mean '2.weight'?",
        ),
        (
            '{"*.weight": adamw, "2.*": sgd}',
            "optimizer adamw + sgd has none for parameter '0.bias': no pattern matches it",
            'add a last pattern for the rest: "*": adamw',
        ),
        (
            '{"*": adamw, "2.*": sgd}',
            "optimizer adamw + sgd: the patterns before '2.*' take all parameters that it matches",
            "write the narrower pattern first",
        ),
        (
            '{"*.bias": muon, "*": sgd}',
            "optimizer muon takes hidden matrices, and no parameter that '*.bias' matches is one",
            "choose another optimizer, such as adamw",
        ),
        (
            '{"*": muon, as: only}',
            "optimizer only has none for parameter '0.bias': muon takes hidden matrices, and its "
            "shape is (64,)",
            'add a last pattern for the rest: "*": adamw',
        ),
        (
            '{"*.weight": moun, "*": adamw}',
            "unknown optimizer 'moun'",
            "did you mean 'muon'?",
        ),
        (
            '{"*.weight": [muon], "*": adamw}',
            "is not a mapping of parameters' names to optimizers",
            'for example: optimizer: {"*.weight": muon, "*": adamw}',
        ),
        (
            '{"*": adamw}',
            """grid.optimizer: adamw and {"*": "adamw"} are both called adamw""",
            "give it another name in its mapping: as: adamw-2",
        ),
        (
            '{"0.*": sgd, "*": mine.py:Heavy as sgd}',
            "two are called sgd",
            "give it another name: sgd as sgd-2",
        ),
    ],
)
def test_errors_before_training(folder: Path, mapping: str, message: str, hint: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        plans(folder, mapping).plans()
    assert "mine.yaml:" in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.hint == hint


def test_in_python_and_as_text() -> None:
    routes = {"*.weight": torch.optim.RMSprop, "*": "sgd"}
    experiment = from_keywords(
        workload="digits-mlp", optimizer=routes, batch_size=16, alpha=0.9, trials=1
    )
    (combination,) = experiment.combinations
    assert combination.optimizer.label == "RMSprop + sgd"
    assert combination.fixed["alpha"] == 0.9
    rates: dict[str, Any] = {"learning_rate": 0.01, "sgd.learning_rate": 0.1}
    run = bs.trial(
        "digits-mlp",
        optimizer='{"*.weight": muon, "*": sgd}',
        batch_size=64,
        budget="5 steps",
        **rates,
    )
    assert run.outcome.steps_run == 5
    assert run.metaparameters["sgd.learning_rate"] == 0.1


def test_the_files_of_users_optimizers_go_to_the_workers(folder: Path) -> None:
    text = json.dumps({"2.*": "../out/mine.py:Heavy", "*": "adamw"})
    (folder / "out").mkdir()
    (folder / "inside").mkdir()
    (folder / "out/mine.py").write_text(FILE)
    with staged(str(folder / "inside"), routed.specs(text), ()) as files:
        assert (Path(files.folder) / "mine.py").read_text() == FILE
        local = files.localize(study(optimizer=text))
        assert json.loads(local.optimizer) == {"2.*": "mine.py:Heavy", "*": "adamw"}
    assert routed.specs("adamw") == ["adamw"]


def test_a_mapping_of_another_file_is_replaced_not_merged(folder: Path) -> None:
    base = EXPERIMENT.replace("    - adamw\n    - {}", '    {{"0.*": sgd, "*": adamw}}')
    (folder / "base.yaml").write_text(base.format())
    file = folder / "mine.yaml"
    file.write_text('extends: base.yaml\ngrid: {optimizer: {"*.weight": muon, "*": adamw}}\n')
    (combination,) = load(file).combinations
    assert json.loads(combination.optimizer.name) == {"*.weight": "muon", "*": "adamw"}
