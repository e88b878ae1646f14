"""distill: a student learns the outputs of a teacher, which neither moves nor has a gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import workloads
from experiments.config.combinations import data_files
from experiments.config.compile import load
from experiments.engines import choose, stackable
from experiments.engines.module import ModuleEngine
from experiments.execution.staging import staged
from experiments.techniques.transfer.distill import Distill
from experiments.training.study_context import StudyContext
from tests.experiments.transfer_cases import KINDS, experiment, file_weights, of_folder
from tests.problems import engine, largest_difference, tensors, trials

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
        one = engine(kind, of, trials(of, 4))
        one.advance(10)
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
    assert "its teacher sees each batch anew" in str(stackable(context, pack))
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
    frozen = engine("module", replace(of, technique={**of.technique, "distill": {
        "teacher": "first.safetensors", "weight": 0.0
    }}), pack[:1])  # fmt: skip
    frozen.advance(20)
    assert largest_difference(frozen.weights(0), one.weights(0)) > 1e-3


def test_a_teacher_of_a_users_file(trained: Path) -> None:
    (trained / "mine.py").write_text(USER)
    save_file(file_weights(trained), trained / "bare.safetensors")
    written = "{distill: {teacher: bare.safetensors, workload: 'mine.py:Teacher'}}"
    loaded = load(experiment(trained, written))
    files = data_files(loaded.combinations, loaded.base)
    assert files == ["bare.safetensors", "mine.py"]
    (plan,) = loaded.plans()
    with staged(loaded.base, [], [], files) as copies:
        (trained / "mine.py").rename(trained / "gone.py")
        context = StudyContext.load(copies.localize(plan.study))
        (trained / "gone.py").rename(trained / "mine.py")
    named = of_folder(trained, technique={"distill": "first.safetensors"}, precision="float32")
    expected = StudyContext.load(named).techniques.example_tensors[0]
    assert torch.equal(context.techniques.example_tensors[0], expected)
    (trained / "mine.py").write_text(USER + "\n")
    (edited,) = load(trained / "my.yaml").plans()
    assert edited.study.id != plan.study.id
