"""fine_tune and distill: weights of files, what techniques prepare, and how workers get the files.

That both engines train alike with them is tested by ``tests/conformance``.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

import workloads
from experiments.config.combinations import data_files
from experiments.config.compile import load
from experiments.engines import choose, stacking_refusal
from experiments.engines.module import ModuleEngine
from experiments.errors import ExperimentError
from experiments.execution.staging import staged
from experiments.techniques.transfer.distill import Distill
from experiments.techniques.transfer.weights_file import load_weights, packaged_weights
from experiments.training.study_context import StudyContext
from tests.experiments.transfer_cases import KINDS, experiment, file_weights, of_folder, twins
from tests.problems import engine, largest_difference, tensors, trials


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_training_begins_with_the_weights_of_a_trial(trained: Path, precision: str) -> None:
    of = of_folder(trained, technique={"fine_tune": "first.safetensors"}, precision=precision)
    pack = trials(of, 3)
    for kind in KINDS:
        for row in range(3):
            for name, value in engine(kind, of, pack).weights(row).items():
                assert torch.equal(value, file_weights(trained)[name].to(value.dtype))
    assert choose(StudyContext.load(of), trials(of, 8)) == "stacked"


def test_weights_of_a_float64_trial_keep_their_bits(trained: Path) -> None:
    exact = {n: v.double() + 1e-12 for n, v in file_weights(trained).items()}
    save_file(exact, trained / "exact.safetensors")
    of = of_folder(trained, technique={"fine_tune": "exact.safetensors"})
    for name, value in engine("module", of, trials(of, 1)).weights(0).items():
        assert torch.equal(value, exact[name])


def test_a_new_head_begins_as_without_the_file(trained: Path) -> None:
    technique: dict[str, Any] = {"fine_tune": {"weights": "first.safetensors", "head": "new"}}
    of = of_folder(trained, "models.py:ThreeClasses", technique=technique)
    pack = trials(of, 2)
    fresh = engine("module", replace(of, technique={"precision": "float64"}), pack)
    begun = engine("module", of, pack)
    for row in range(2):
        for name, value in begun.weights(row).items():
            expected = fresh.weights(row) if name.startswith("2.") else file_weights(trained)
            assert torch.equal(value, expected[name].to(value.dtype))


def test_names_that_do_not_match_are_said(trained: Path) -> None:
    values = file_weights(trained)
    save_file({"0.weigth": values.pop("0.weight"), **values}, trained / "other.safetensors")
    strict = of_folder(trained, technique={"fine_tune": "other.safetensors"})
    with pytest.raises(ExperimentError) as raised:
        StudyContext.load(strict)
    assert "the file lacks 0.weight, and the model lacks 0.weigth" in str(raised.value)
    assert "did you mean '0.weight'? {partial: true}" in (raised.value.hint or "")
    partial: dict[str, Any] = {"fine_tune": {"weights": "other.safetensors", "partial": True}}
    of = of_folder(trained, technique=partial)
    with pytest.warns(UserWarning, match=r"0\.weight, 0\.weigth did not match other\.safetensors"):
        context = StudyContext.load(of)
    assert StudyContext.load(of).techniques is context.techniques  # loaded once, said once
    begun = engine("module", of, trials(of, 1)).weights(0)
    assert torch.equal(begun["2.weight"], values["2.weight"].double())
    with pytest.raises(ExperimentError, match="nothing in the file is of this model"):
        load_weights(nn.Linear(2, 2), {"x": torch.zeros(1)}, "technique", partial=True)
    two = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    values = nn.Sequential(nn.Linear(2, 4), nn.Linear(2, 5)).state_dict()
    with pytest.raises(ExperimentError, match="0, 1 have other shapes than in the file"):
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


def test_identity_is_of_the_contents_of_a_file(trained: Path) -> None:
    def study_id(technique: str) -> str:
        (study,) = load(experiment(trained, technique)).studies()
        return study.id

    first = study_id("{fine_tune: first.safetensors}")
    (trained / "elsewhere").mkdir()
    (trained / "first.safetensors").rename(trained / "elsewhere/second.safetensors")
    moved = "{fine_tune: {weights: elsewhere/second.safetensors}}"
    assert study_id(moved) == first
    assert study_id(moved.replace("elsewhere", f"{trained}/elsewhere")) == first
    assert study_id(moved.replace("}}", ", head: new}}")) != first
    changed = {n: v + 1 for n, v in file_weights(trained, "elsewhere/second.safetensors").items()}
    save_file(changed, trained / "elsewhere/second.safetensors")
    assert study_id(moved) != first


def test_packaged_weights_have_a_name(trained: Path) -> None:
    """They are on every worker with the package; identity is of their contents as well."""
    technique = {"fine_tune": "mnist8-fc", "distill": "mnist8-fc"}
    packaged = packaged_weights()["mnist8-fc"]
    of = of_folder(trained, technique=technique, precision="float32")
    for name, value in engine("module", of, trials(of, 1)).weights(0).items():
        assert torch.equal(value, file_weights(packaged.parent, packaged.name)[name])
    ids = []
    shutil.copy(packaged, trained / "copy.safetensors")
    for path, files in (("mnist8-fc", []), ("copy.safetensors", ["copy.safetensors"])):
        written = load(experiment(trained, f"{{fine_tune: {path}, distill: {path}}}"))
        assert data_files(written.combinations, written.base) == files
        ids += [study.id for study in written.studies()]
    assert len(set(ids)) == 1


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


@pytest.mark.slow
def test_what_a_technique_prepares_is_shared_by_all_models(trained: Path) -> None:
    (trained / "mine.py").write_text(PREPARED)
    of = of_folder(trained, technique={"mine.py:MeanInput": True})
    pack = trials(of, 3)
    prepared = twins(of, pack, steps=50)
    plain = twins(of_folder(trained), pack, steps=50)
    assert largest_difference(prepared[0], plain[0]) > 1e-3
    (trained / "mine.py").write_text(PREPARED.replace("* 5", "* 0"))
    again = twins(of, pack, steps=50)  # the traced steps of the first one are not taken for these
    assert largest_difference(again[0], plain[0]) < 1e-9


USER = '''
import torch
import batchscale as bs
from workloads.digits import DigitsMLP


class Noisy(bs.Technique):
    """Other inputs in every step."""

    def batch(self, batch):
        return (batch[0] + 0.1 * torch.randn_like(batch[0]), *batch[1:])


class Teacher(DigitsMLP):
    """A workload of a file."""

    target = "validation_error < 0.1"
    version = "1"
'''


def test_the_loss_is_that_of_the_paper(trained: Path) -> None:
    """A step by hand, from the loss as Hinton et al. (2015) write it."""
    written = {"teacher": "first.safetensors", "temperature": 3.0, "weight": 0.7}
    of = of_folder(trained, technique={"distill": written}, batch_size=1297)
    (trial,) = trials(of, 1, learning_rate=0.5, weight_decay=0.0)
    one = engine("module", of, (trial,))
    before = one.weights(0)
    one.advance(1)
    teacher, student = (workloads.load("digits-mlp").model().double() for _ in range(2))
    teacher.load_state_dict(file_weights(trained))
    student.load_state_dict(before)
    x, y = tensors(workloads.load("digits-mlp").data()["train"])
    soft = F.softmax(teacher(x.double()) / 3, dim=1).detach()
    output = student(x.double())
    divergence = (soft * (soft.log() - F.log_softmax(output / 3, dim=1))).sum(1).mean()
    loss = 0.3 * F.cross_entropy(output, y) + 0.7 * 9 * divergence
    loss.backward()
    for name, parameter in student.named_parameters():
        assert parameter.grad is not None
        expected = before[name] - 0.5 * parameter.grad
        torch.testing.assert_close(one.weights(0)[name], expected, rtol=1e-9, atol=1e-12)


def test_outputs_are_computed_once_where_examples_are_fixed(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    original = Distill._outputs_of

    def counted(self: Distill, context: Any) -> Any:
        outputs = original(self, context)
        return lambda batch: passes.append(len(batch[0])) or outputs(batch)

    monkeypatch.setattr(Distill, "_outputs_of", counted)
    of = of_folder(trained, technique={"distill": "first.safetensors"}, id="counted")
    for kind in KINDS:
        one = engine(kind, of, trials(of, 4), steps=10)
        one.evaluate("validation")
    assert sum(passes) == 1297
    # Row by row those of the examples, whatever their order.
    context = StudyContext.load(of)
    rows = torch.tensor([7, 1200, 0, 7])
    x, _, taught = context.train.fetch(rows, training=True)
    model = workloads.load("digits-mlp").model().double()
    model.load_state_dict(file_weights(trained))
    torch.testing.assert_close(taught, model(x).detach())
    assert len(context.train.fetch(rows, training=False)) == len(context.small_batch()) == 2


def test_the_teacher_has_no_gradient_and_does_not_move(trained: Path) -> None:
    (trained / "mine.py").write_text(USER)
    technique: dict[str, Any] = {"distill": "first.safetensors", "mine.py:Noisy": True}
    of = of_folder(trained, technique=technique)
    pack = trials(of, 8)
    context = StudyContext.load(of)
    assert "its teacher sees each batch anew" in str(stacking_refusal(context, pack))
    assert choose(context, pack) == "module"
    one = engine("module", of, pack[:1])
    assert isinstance(one, ModuleEngine)
    part = one.runs[0].techniques.parts["distill"]
    x = torch.randn(3, 64, dtype=torch.float64, requires_grad=True)
    outputs = part._outputs  # type: ignore[attr-defined]
    before = outputs((x,))
    assert not before.requires_grad
    one.advance(20)
    assert torch.equal(outputs((x,)), before)
    # The module engine's weights and optimizer are the student's alone.
    assert one.weights(0).keys() == file_weights(trained).keys()
    parameters = [p for g in one.runs[0].optimizer.param_groups for p in g["params"]]
    assert len(parameters) == 4


def test_a_teacher_of_a_users_file(trained: Path) -> None:
    (trained / "mine.py").write_text(USER)
    save_file(file_weights(trained), trained / "bare.safetensors")
    written = "{distill: {teacher: bare.safetensors, workload: 'mine.py:Teacher'}}"
    loaded = load(experiment(trained, written))
    files = data_files(loaded.combinations, loaded.base)
    assert files == ["bare.safetensors", "mine.py"]
    (study,) = loaded.studies()
    with staged(loaded.base, [], [], files) as copies:
        for name in files:
            (trained / name).rename(trained / f"gone-{name}")
        context = StudyContext.load(copies.localize(study))
        for name in files:
            (trained / f"gone-{name}").rename(trained / name)
    named = of_folder(trained, technique={"distill": "first.safetensors"}, precision="float32")
    expected = StudyContext.load(named).techniques.example_tensors[0]
    assert torch.equal(context.techniques.example_tensors[0], expected)
    (trained / "mine.py").write_text(USER + "\n")
    (edited,) = load(trained / "my.yaml").studies()
    assert edited.id != study.id
    (trained / "mine.py").write_text(USER + "    def forward(self, m, b): return m(b[0])[:, :1]\n")
    with pytest.raises(ExperimentError, match="not one number a class"):
        load(trained / "my.yaml").studies()
