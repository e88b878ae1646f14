"""Techniques that begin with what was trained before: fine_tune, freeze, layer_rates, lora."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import batchscale as bs
from experiments import techniques
from experiments.config.combinations import data_files
from experiments.config.compile import load
from experiments.engines import choose
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.optimizers.base import RATE_FACTOR
from experiments.optimizers.groups import parameter_options, whole_name
from experiments.plan import Study, Trial, WorkloadRef
from experiments.techniques.transfer.layer_rates import layers_of
from experiments.techniques.transfer.weights_file import load_weights
from experiments.training.study_context import StudyContext
from tests.problems import engine, largest_difference, study, trials
from workloads import WorkloadError

KINDS = ["module", "stacked"]
FUSED = ["sgd", "momentum", "nesterov", "adamw", "rmsprop", "lars", "lamb", "muon", "signum"]
WORKLOADS = '''
from torch import nn
from workloads.digits import DigitsMLP


class ThreeClasses(DigitsMLP):
    """Digits modulo 3."""

    target = "validation_error < 0.1"
    version = "1"

    def data(self):
        return {name: (x, y % 3) for name, (x, y) in super().data().items()}

    def model(self):
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


class Grouped(DigitsMLP):
    """The last weight at half the rate."""

    target = "validation_error < 0.1"
    version = "1"

    def parameter_groups(self, named_parameters):
        return {"2.weight": {"learning_rate_factor": 0.5}, "0.*": {"learning_rate_factor": 3.0}}
'''


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with workloads, ``my.py``, and the weights of a trial, ``first.safetensors``."""
    (tmp_path / "my.py").write_text(WORKLOADS)
    bs.trial(
        "digits-mlp", batch_size=64, learning_rate=0.3, budget="60 steps",
        save=tmp_path / "first.safetensors",
    )  # fmt: skip
    return tmp_path


def of_folder(base: Path, workload: str = "digits-mlp", **changes: Any) -> Study:
    ref = WorkloadRef(spec=workload, base=str(base))
    return study(workload=ref, **{"precision": "float64", "batch_size": 16, **changes})


def file_weights(base: Path, name: str = "first.safetensors") -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(base / name)


def twins(of: Study, pack: tuple[Trial, ...], steps: int = 100) -> list[dict[str, Tensor]]:
    """The weights after so many steps, the same from both engines."""
    engines = [engine(kind, of, pack) for kind in KINDS]
    for each in engines:
        each.advance(steps)
    for row in range(len(pack)):
        module, stacked = (each.weights(row) for each in engines)
        assert largest_difference(module, stacked) < 1e-8
    metrics = [each.evaluate("validation") for each in engines]
    for a, b in zip(*metrics, strict=True):
        assert a["cross_entropy"] == pytest.approx(b["cross_entropy"], rel=1e-8)
    return [engines[0].weights(row) for row in range(len(pack))]


# fine_tune


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_training_begins_with_the_weights_of_a_trial(base: Path, precision: str) -> None:
    of = of_folder(base, technique={"fine_tune": "first.safetensors"}, precision=precision)
    pack = trials(of, 3)
    for kind in KINDS:
        for row in range(3):
            for name, value in engine(kind, of, pack).weights(row).items():
                assert torch.equal(value, file_weights(base)[name].to(value.dtype))
    assert choose(StudyContext.load(of), trials(of, 8)) == "stacked"
    if precision == "float64":
        twins(of, pack)


def test_weights_of_a_float64_trial_keep_their_bits(base: Path) -> None:
    exact = {n: v.double() + 1e-12 for n, v in file_weights(base).items()}
    save_file(exact, base / "exact.safetensors")
    of = of_folder(base, technique={"fine_tune": "exact.safetensors"})
    for name, value in engine("module", of, trials(of, 1)).weights(0).items():
        assert torch.equal(value, exact[name])


def test_a_new_head_begins_as_without_the_file(base: Path) -> None:
    technique: dict[str, Any] = {"fine_tune": {"weights": "first.safetensors", "head": "new"}}
    of = of_folder(base, "my.py:ThreeClasses", technique=technique)
    pack = trials(of, 2)
    fresh = engine("module", replace(of, technique={"precision": "float64"}), pack)
    begun = engine("module", of, pack)
    for row in range(2):
        for name, value in begun.weights(row).items():
            expected = fresh.weights(row) if name.startswith("2.") else file_weights(base)
            assert torch.equal(value, expected[name].to(value.dtype))
    twins(of, pack, steps=20)
    with pytest.raises(ExperimentError, match=r"2\.bias is 10 in the file and 3 in the") as raised:
        StudyContext.load(of_folder(base, "my.py:ThreeClasses", technique={
            "fine_tune": "first.safetensors"
        }))  # fmt: skip
    assert "head: new" in (raised.value.hint or "")


def test_names_that_do_not_match_are_said(base: Path) -> None:
    values = file_weights(base)
    save_file({"0.weigth": values.pop("0.weight"), **values}, base / "other.safetensors")
    strict = of_folder(base, technique={"fine_tune": "other.safetensors"})
    with pytest.raises(ExperimentError) as raised:
        StudyContext.load(strict)
    assert "the file lacks 0.weight, and the model lacks 0.weigth" in str(raised.value)
    assert "did you mean '0.weight'? {partial: true}" in (raised.value.hint or "")
    partial: dict[str, Any] = {"fine_tune": {"weights": "other.safetensors", "partial": True}}
    of = of_folder(base, technique=partial)
    with pytest.warns(UserWarning, match=r"0\.weight, 0\.weigth did not match other\.safetensors"):
        context = StudyContext.load(of)
    assert StudyContext.load(of).techniques is context.techniques  # loaded once, said once
    begun = engine("module", of, trials(of, 1)).weights(0)
    assert torch.equal(begun["2.weight"], values["2.weight"].double())
    with pytest.raises(ExperimentError, match="nothing in the file is of this model"):
        load_weights(nn.Linear(2, 2), {"x": torch.zeros(1)}, "technique", partial=True)
    with pytest.raises(ExperimentError, match="0, 1 have other shapes than in the file"):
        two = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
        values = nn.Sequential(nn.Linear(2, 4), nn.Linear(2, 5)).state_dict()
        load_weights(two, values, "technique", new_head=True)


def test_torchvisions_weights_fit_its_models() -> None:
    from torchvision.models import mobilenet_v3_small

    published = mobilenet_v3_small().state_dict()
    model = mobilenet_v3_small()
    assert load_weights(model, published, "technique") == []
    for name, value in model.state_dict().items():
        assert torch.equal(value, published[name])
    smaller = mobilenet_v3_small(num_classes=7)
    assert load_weights(smaller, published, "technique", new_head=True) == [
        "classifier.3.bias",
        "classifier.3.weight",
    ]


EXPERIMENT = """\
workload: digits-mlp
grid:
  batch_size: 64
  optimizer: sgd
  technique: TECHNIQUE
trials: 2
budget: 20 steps
target: validation_error < 0.3
"""


def experiment(base: Path, technique: str) -> Path:
    (base / "my.yaml").write_text(EXPERIMENT.replace("TECHNIQUE", technique))
    return base / "my.yaml"


@pytest.mark.parametrize(
    ("technique", "message", "hint"),
    [
        ("{fine_tune: gone.safetensors}", "technique fine_tune: file gone.safetensors: no file",
         "relative to the experiment file"),
        ("{fine_tune: resnet18.pth}", "convert it once: python -c", ""),
        ("{fine_tune: weights.bin}", "a .bin file holds pickled objects", ""),
        ("{fine_tune: weights.csv}", "weights are read from a .safetensors file", ""),
        ("{fine_tune: {weights: first.safetensors, head: old}}", "head cannot be 'old'", ""),
        ("{freeze: {}}", "technique freeze needs a value of parameters", ""),
        ("{layer_rates: 0}", "decay cannot be 0", ""),
        ("{layer_rates: 1.5}", "decay cannot be 1.5", ""),
        ("{lora: 0}", "rank cannot be 0", ""),
        ("{lora: {rank: 2, alpha: -1}}", "alpha cannot be -1", ""),
    ],
)  # fmt: skip
def test_errors_of_a_file(base: Path, technique: str, message: str, hint: str) -> None:
    file = experiment(base, technique)
    with pytest.raises(ExperimentError) as raised:
        load(file)
    assert str(raised.value).startswith(f"{file}:5: ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert hint in (raised.value.hint or "")


def test_what_is_not_a_safetensors_file(base: Path) -> None:
    (base / "torn.safetensors").write_bytes((base / "first.safetensors").read_bytes()[:-9])
    of = of_folder(base, technique={"fine_tune": "torn.safetensors"})
    with pytest.raises(ExperimentError, match=r"torn\.safetensors is not a whole safetensors file"):
        StudyContext.load(of)


def test_identity_is_of_the_contents_of_a_file(base: Path) -> None:
    def study_id(technique: str) -> str:
        (plan,) = load(experiment(base, technique)).plans()
        return plan.study.id

    first = study_id("{fine_tune: first.safetensors}")
    (base / "elsewhere").mkdir()
    (base / "first.safetensors").rename(base / "elsewhere/second.safetensors")
    moved = "{fine_tune: {weights: elsewhere/second.safetensors}}"
    assert study_id(moved) == first
    assert study_id(moved.replace("elsewhere", f"{base}/elsewhere")) == first
    assert study_id(moved.replace("}}", ", head: new}}")) != first
    changed = {n: v + 1 for n, v in file_weights(base, "elsewhere/second.safetensors").items()}
    save_file(changed, base / "elsewhere/second.safetensors")
    assert study_id(moved) != first


def test_workers_get_the_file(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "first.safetensors"
    (base / "first.safetensors").rename(outside)
    for path in (str(outside), f"../{outside.parent.name}/first.safetensors"):
        if not (base / path).exists():
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            outside.rename(base / path)
        experiment(base, f"{{fine_tune: {path}}}")
        loaded = load(base / "my.yaml")
        files = data_files(loaded.combinations, loaded.base)
        assert files == [path]
        (plan,) = loaded.plans()
        with staged(loaded.base, [], [], files) as copies:
            source = (base / path).rename(base / "hidden")
            local = copies.localize(plan.study)
            begun = engine("module", local, trials(local, 1)).weights(0)
            source.rename(base / path)
        assert local.technique == plan.study.technique
        for name, value in file_weights(base, path).items():
            assert torch.equal(value, begun[name])
    with pytest.raises(WorkloadError, match="no file"):
        techniques.data_files({"fine_tune": "gone.safetensors"}, str(base))


# freeze


@pytest.mark.parametrize("optimizer", FUSED)
@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_layer_does_not_move_bit_for_bit(kind: str, optimizer: str) -> None:
    common = {"workload": "digits-mlp", "optimizer": optimizer, "schedule": "linear"}
    of = study(**common, technique={"freeze": ["0.*", "2.bias"], "clip": 0.5, "ema": 0.9})
    pack = trials(of, 3, weight_decay=0.1)
    one = engine(kind, of, pack)
    before = [one.weights(row) for row in range(3)]
    one.advance(9)
    one.evaluate("validation")
    one.keep([0, 2])
    one.add(trials(of, 1, seed=1))
    before = [before[0], before[2], one.weights(2)]
    one.advance(9)
    measured = one.measured(0)
    for row in range(3):
        after = one.weights(row)
        for name in ("0.weight", "0.bias", "2.bias"):
            assert torch.equal(before[row][name], after[name])
            assert row or torch.equal(before[row][name], measured[name])
        assert not torch.equal(before[row]["2.weight"], after["2.weight"])


@pytest.mark.parametrize("optimizer", ["momentum", "adamw", "schedule-free-adamw", "Adadelta"])
def test_engines_agree_where_layers_are_frozen(optimizer: str) -> None:
    technique: dict[str, Any] = {"freeze": {"parameters": "*", "trained": ["2.weight", "*.bias"]}}
    of = study(workload="digits-mlp", optimizer=optimizer, precision="float64", technique=technique)
    weights = twins(of, trials(of, 3))
    free = engine("module", replace(of, technique={"precision": "float64"}), trials(of, 3))
    free.advance(100)
    assert largest_difference(weights[0], free.weights(0)) > 1e-3


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("technique", [{"freeze": "0.*"}, {"lora": 2}], ids=str)
def test_a_trial_is_the_same_in_any_pack(kind: str, technique: dict[str, Any]) -> None:
    of = study(workload="digits-mlp", optimizer="adamw", batch_size=16, technique=technique)
    pack = trials(of, 5)
    whole, part = engine(kind, of, pack), engine(kind, of, pack[:3])
    whole.advance(12)
    part.advance(8)
    saved = part.copy([2])
    part.advance(2)
    part.restore(2, saved[0])
    part.keep([2])
    snapshot = part.state()
    resumed = engine(kind, of, tuple(part.trials))
    resumed.load(snapshot)
    resumed.advance(4)
    for name, value in resumed.weights(0).items():
        assert torch.equal(value, whole.weights(2)[name])


def test_patterns_of_frozen_parameters() -> None:
    def begin(technique: dict[str, Any]) -> StudyContext:
        context = StudyContext.load(study(workload="digits-mlp", technique=technique))
        context.model(trials(context.study, 1)[0])
        return context

    with pytest.raises(ExperimentError, match="no parameter is called '0.weigth'") as raised:
        begin({"freeze": "0.weigth"})
    assert raised.value.hint == "did you mean '0.weight'?"
    with pytest.raises(ExperimentError, match="freeze: no parameter is left that is trained"):
        begin({"freeze": "*"})
    written = {"freeze": {"parameters": "*", "trained": ["2.*", "0.bias"]}}
    assert begin(written).techniques.parts["freeze"].written == written["freeze"]


def test_options_of_frozen_parameters_are_passed_over(base: Path) -> None:
    of = of_folder(base, "my.py:Grouped", technique={"freeze": "0.*"})
    assert twins(of, trials(of, 2), steps=20)
    adapted = of_folder(base, "my.py:Grouped", technique={"lora": {"rank": 2, "trained": "0.bias"}})
    assert twins(adapted, trials(adapted, 2), steps=20)
    assert whole_name("a.0.parametrizations.weight.original") == "a.0.weight"
    assert whole_name("a.0.weight") == "a.0.weight"


# layer_rates


def test_each_layer_has_its_rate(base: Path) -> None:
    """A step of SGD is the learning rate times the gradient, and the factor of the layer."""
    plain, decayed = (
        of_folder(base, technique=technique) for technique in ({}, {"layer_rates": 0.25})
    )
    for kind in KINDS:
        engines = [engine(kind, of, trials(of, 2, weight_decay=0.0)) for of in (plain, decayed)]
        start = engines[0].weights(1)
        for each in engines:
            each.advance(1)
        full, slow = (each.weights(1) for each in engines)
        for name, value in start.items():
            factor = 0.25 if name.startswith("0.") else 1.0
            torch.testing.assert_close(slow[name] - value, factor * (full[name] - value))
    other = replace(decayed, optimizer="adamw", schedule="linear")
    twins(other, trials(other, 3))


def test_rates_multiply_those_of_the_workload(base: Path) -> None:
    context = StudyContext.load(of_folder(base, "my.py:Grouped", technique={"layer_rates": 0.1}))
    model = context.model(trials(context.study, 1)[0])
    options = parameter_options(
        context.optimizer, context.workload, dict(model.named_parameters()), context.techniques
    )
    factors = {name: of[RATE_FACTOR] for name, of in options.items()}
    assert factors == pytest.approx(
        {"0.weight": 0.3, "0.bias": 0.3, "2.weight": 0.5, "2.bias": 1.0}
    )
    assert twins(context.study, trials(context.study, 2), steps=20)


def test_layers_are_in_the_order_of_the_model() -> None:
    names = [
        "token", "embedding.weight", "encoder.layers.0.mlp.1.bias", "encoder.layers.0.norm.weight",
        "encoder.layers.1.norm.weight", "head.weight", "head.bias",
    ]  # fmt: skip
    layers = layers_of(names)
    assert list(layers) == ["token", "embedding", "encoder.layers.0", "encoder.layers.1", "head"]
    assert layers["head"] == names[-2:]
    factors = (
        techniques.load({"layer_rates": 0.5}, None)
        .parts["layer_rates"]
        .parameter_groups(dict.fromkeys(names, torch.zeros(1)))
    )
    assert [of[RATE_FACTOR] for of in factors.values()] == [2**-4, 2**-3, 0.25, 0.25, 0.5, 1, 1]


# lora


def effective(weights: dict[str, Tensor], layer: str, scale: float = 1.0) -> Tensor:
    """The weight of a layer with its adapter."""
    place = f"{layer}.parametrizations.weight"
    product = weights[f"{place}.0.B"] @ weights[f"{place}.0.A"]
    return weights[f"{place}.original"] + scale * product


@pytest.mark.parametrize("rank", [1, 3])
def test_an_adapter_has_the_rank_that_was_asked_for(base: Path, rank: int) -> None:
    technique: dict[str, Any] = {
        "fine_tune": "first.safetensors",
        "lora": {"rank": rank, "alpha": 2 * rank},
    }
    of = of_folder(base, technique=technique, optimizer="adamw")
    first = file_weights(base)
    for weights in twins(of, trials(of, 3, learning_rate=0.01)):
        for layer in ("0", "2"):
            original = weights[f"{layer}.parametrizations.weight.original"]
            assert torch.equal(original, first[f"{layer}.weight"].double())
            assert torch.equal(weights[f"{layer}.bias"], first[f"{layer}.bias"].double())
            moved = effective(weights, layer, scale=2.0) - original
            assert torch.linalg.matrix_rank(moved, atol=1e-10) == rank


def test_adapters_begin_at_the_model(base: Path) -> None:
    common: dict[str, Any] = {"fine_tune": "first.safetensors"}
    plain, adapted = (
        of_folder(base, technique=technique) for technique in (common, {**common, "lora": 2})
    )
    for kind in KINDS:
        metrics = [
            engine(kind, of, trials(of, 2)).evaluate("validation") for of in (plain, adapted)
        ]
        assert metrics[0] == metrics[1]


def test_which_layers_are_adapted(base: Path) -> None:
    technique: dict[str, Any] = {"lora": {"rank": 2, "trained": "2.*"}}
    of = of_folder(base, technique=technique)
    pack = trials(of, 2)
    (first, _), start = twins(of, pack), engine("module", of, pack).weights(0)
    assert "0.parametrizations.weight.0.A" in first
    assert torch.equal(first["0.bias"], start["0.bias"])
    assert not torch.equal(first["2.weight"], start["2.weight"])
    errors: list[tuple[dict[str, Any], str]] = [
        ({"lora": 11}, "rank 11 is more than layer 2 has, 10 × 64"),
        ({"lora": {"rank": 1, "layers": "3"}}, "no linear layer is called '3'"),
        ({"lora": {"rank": 1, "trained": "*.weight"}}, "no linear layer that is not trained"),
        ({"lora": {"rank": 1, "trained": "x"}}, "no parameter is called 'x'"),
    ]
    for wrong, message in errors:
        with pytest.raises(ExperimentError, match=message):
            engine("module", of_folder(base, technique=wrong), pack)


def test_adapters_need_whole_weights(base: Path) -> None:
    file = experiment(base, "{lora: 2}")
    file.write_text(file.read_text() + "layout: shard\nworkers: 2\n")
    with pytest.raises(ExperimentError, match="technique lora needs whole weights"):
        load(file)


def test_arguments_of_what_changes_the_model_are_not_tuned_in_a_stack() -> None:
    of = study(workload="digits-mlp", technique={"layer_rates": 0.5})
    pack = trials(of, 8, **{"layer_rates.decay": 0.1})
    reason = StudyContext.load(of).techniques.unstackable(pack[0].metaparameters)
    assert reason == "technique layer_rates: one of its arguments is tuned"
    start, slow = (engine("module", of, pack[:1]) for _ in range(2))
    slow.advance(1)
    free = engine("module", of, (replace(pack[0], metaparameters={
        **pack[0].metaparameters, "layer_rates.decay": 1.0
    }),))  # fmt: skip
    free.advance(1)
    moves = [each.weights(0)["0.weight"] - start.weights(0)["0.weight"] for each in (slow, free)]
    torch.testing.assert_close(moves[0], 0.1 * moves[1], rtol=1e-3, atol=1e-7)


PREPARED = """
import torch
import batchscale as bs


class MeanInput(bs.Technique):
    '''Subtract the mean of the training inputs.'''

    def prepare(self, context):
        batch = context.splits["train"].fetch(torch.arange(200), training=False)
        return self.with_arguments({"_mean": batch[0].mean(0) * 5})

    def batch(self, batch):
        return (batch[0] - self._mean, *batch[1:])
"""


def test_what_a_technique_prepares_is_shared_by_all_models(base: Path) -> None:
    (base / "mine.py").write_text(PREPARED)
    of = of_folder(base, technique={"mine.py:MeanInput": True})
    pack = trials(of, 3)
    prepared = twins(of, pack, steps=50)
    plain = twins(of_folder(base), pack, steps=50)
    assert largest_difference(prepared[0], plain[0]) > 1e-3
    (base / "mine.py").write_text(PREPARED.replace("* 5", "* 0"))
    again = twins(of, pack, steps=50)  # the traced steps of the first one are not taken for these
    assert largest_difference(again[0], plain[0]) < 1e-9
