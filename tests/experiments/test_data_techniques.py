"""Techniques on examples, labels and activations do what they say.

That both engines do so alike is tested by ``tests/conformance``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import workloads
from experiments import techniques
from experiments.engines import check_contract, stacking_refusal
from experiments.errors import ExperimentError
from experiments.plan import WorkloadRef
from experiments.techniques import Step, Techniques
from experiments.techniques.composed import Augmentation
from experiments.training.study_context import StudyContext
from tests.problems import engine, study, trials
from workloads.ghost import convert_batch_norm

IMAGES = """
import torch
from torch import nn
import batchscale as bs
from tests.problems import TinyData


class Images(bs.Classification):
    target = "validation_error < 0.1"

    def data(self):
        made = TinyData.splits(96, 64)
        return {
            name: ((x.view(-1, 1, 8, 8) * 60 + 128).clamp(0, 255).to(torch.uint8), y)
            for name, (x, y) in made.items()
        }

    def transform(self, batch, *, training):
        x, y = batch
        return x.float() / 255, y

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(16, 3),
        )
"""


@pytest.fixture
def images(tmp_path: Path) -> WorkloadRef:
    (tmp_path / "images.py").write_text(IMAGES)
    return WorkloadRef(spec="images.py:Images", base=str(tmp_path))


def changed(name: str, arguments: Any, batch: Any, *, seed: int = 3, step: int = 0) -> Any:
    """A batch as a technique makes it."""
    part = techniques.load({name: arguments}, None).parts[name]
    made = Augmentation([part], seed)
    return made.stored(batch, step) if part.of_stored else made.transformed(batch, step)


def test_mixup_is_torchvisions(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.transforms import v2

    x, y = torch.rand(6, 3, 4, 4), torch.tensor([0, 1, 2, 2, 1, 0])
    monkeypatch.setattr(torch, "randperm", lambda n: torch.arange(n).roll(1))
    mixed, first, other, share = changed("mixup", 0.4, (x, y))
    monkeypatch.setattr(torch, "_sample_dirichlet", lambda _: torch.stack([share[0], 1 - share[0]]))
    expected_x, expected_y = v2.MixUp(alpha=0.4, num_classes=3)(x, y)
    torch.testing.assert_close(mixed, expected_x)
    one_hot = torch.eye(3)
    labels = share[:, None] * one_hot[first] + (1 - share)[:, None] * one_hot[other]
    torch.testing.assert_close(labels, expected_y)
    part = techniques.load({"mixup": 0.4}, None).parts["mixup"]
    output = torch.randn(6, 3)
    entropy = torch.nn.functional.cross_entropy
    loss = part.criterion(
        lambda o, b: entropy(o, b[1], reduction="none"), output, (mixed, first, other, share)
    )
    torch.testing.assert_close(loss, entropy(output, expected_y, reduction="none"))


def test_cutmix_weighs_labels_by_area() -> None:
    x = torch.arange(6).view(6, 1, 1, 1).expand(6, 1, 10, 8).to(torch.uint8)
    areas = set()
    for step in range(20):
        mixed, first, other, share = changed("cutmix", 1.0, (x, torch.arange(6)), step=step)
        for i in range(6):
            kept = float((mixed[i] == first[i]).float().mean())
            assert {*mixed[i].unique().tolist()} <= {int(first[i]), int(other[i])}
            if first[i] != other[i]:
                assert kept == pytest.approx(float(share[i]))
        areas.add(round(float(share[0]), 3))
    assert len(areas) > 5


def test_labels_of_partners_are_those_after_the_transform(tmp_path: Path) -> None:
    """A workload that stores labels from 1 on trains as one that stores them from 0 on."""
    later = IMAGES.replace("torch.uint8), y)", "torch.uint8), y + 1)")
    later = later.replace("x.float() / 255, y", "x.float() / 255, y - 1")
    batches = []
    for name, text in (("images.py", IMAGES), ("later.py", later)):
        (tmp_path / name).write_text(text)
        workload = WorkloadRef(spec=f"{name}:Images", base=str(tmp_path))
        of = study(workload=workload, technique={"cutmix": 1.0, "augment": 0.1})
        context, (trial,) = StudyContext.load(of), trials(of, 1)
        change = context.techniques.augmentation(3)
        batches.append(context.train.fetch_step(context.order(trial), slice(8), 0, 5, change))
    assert len(batches[0]) == 4
    assert all(torch.equal(*both) for both in zip(*batches, strict=True))


def test_augment_shifts_at_most_so_far_and_mirrors_half() -> None:
    x = torch.zeros(400, 1, 16, 16, dtype=torch.uint8)
    x[:, 0, 8, 3] = 1
    (after,) = changed("augment", 0.125, (x,))
    rows, columns = after[:, 0].nonzero()[:, 1], after[:, 0].nonzero()[:, 2]
    assert len(rows) == 400
    assert (rows.min(), rows.max()) == (6, 10)
    mirrored = columns >= 8
    assert 0.4 < float(mirrored.float().mean()) < 0.6
    assert {*columns[~mirrored].tolist()} == {1, 2, 3, 4, 5}
    (unmoved,) = changed("augment", {"strength": 0, "mirror": False}, (x,))
    assert torch.equal(unmoved, x)


def test_rand_augment_is_torchvisions() -> None:
    from torchvision.transforms import v2

    from experiments.seeds import derive

    x = torch.randint(0, 255, (5, 3, 8, 8), dtype=torch.uint8)
    after, y = changed("rand_augment", {"magnitude": 12, "operations": 3}, (x, torch.arange(5)))
    torch.manual_seed(derive(3, "augment", "rand_augment", 0))
    expected = [v2.RandAugment(num_ops=3, magnitude=12)(image) for image in x]
    assert torch.equal(after, torch.stack(expected))
    assert torch.equal(y, torch.arange(5))


def test_resize_grows_to_the_full_size_by_its_share_of_the_budget(images: WorkloadRef) -> None:
    of = study(workload=images, technique={"resize": 0.5}, budget_steps=40, batch_size=16)
    pack = trials(of, 4)
    run = engine("module", of, pack[:1])
    sizes: list[int] = []
    run.runs[0].model.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda _, inputs: sizes.append(inputs[0].shape[-1]) if torch.is_grad_enabled() else None
    )
    for _ in range(40):
        run.advance(1)
    assert sizes == [4] * 7 + [5] * 7 + [7] * 6 + [8] * 20
    run.runs[0].model.register_forward_pre_hook(  # type: ignore[attr-defined]
        lambda _, inputs: sizes.append(inputs[0].shape[-1])
    )
    run.evaluate("validation")
    assert set(sizes[40:]) == {8}
    assert "different sizes" in str(stacking_refusal(StudyContext.load(of), pack))


def test_resize_refuses_a_model_of_one_size(tmp_path: Path) -> None:
    flat = IMAGES.replace("nn.AdaptiveAvgPool2d(2), ", "").replace("16, 3", "256, 3")
    (tmp_path / "images.py").write_text(flat)
    ref = WorkloadRef(spec="images.py:Images", base=str(tmp_path))
    of = study(workload=ref, technique={"resize": 0.5}, budget_steps=40)
    with pytest.raises(ExperimentError, match="does not take images of 4 x 4 pixels"):
        check_contract(StudyContext.load(of), trials(of, 1)[0])


def test_select_gives_the_largest_losses_their_mean() -> None:
    part = techniques.load({"select": 0.4}, None).parts["select"]
    weights = part.select(
        torch.tensor([0.1, 3.0, 0.2, 2.0, 1.0]),
        Step(torch.tensor(0), torch.tensor(0.1), torch.tensor(0)),
    )
    assert weights.tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]


def load(**described: Any) -> Techniques:
    return techniques.load(described, None)


# label_smoothing


def test_smoothed_targets_are_the_papers() -> None:
    """The loss is the cross entropy with the target distribution written out."""
    workload = workloads.load("digits-mlp")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(7, 64, generator=draw, dtype=torch.float64)
    y = torch.randint(10, (7,), generator=draw)
    model = workload.model().double()
    loss = load(label_smoothing=0.3).loss(workload, model, (x, y))
    target = torch.full((7, 10), 0.3 / 9, dtype=torch.float64)
    target[torch.arange(7), y] = 0.7
    expected = F.cross_entropy(model(x), target, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("ignored", [False, True])
def test_smoothing_of_each_token_that_has_a_label(ignored: bool) -> None:
    """As torch does, the label -100 has no loss."""
    workload = workloads.load("lm-transformer", {"context": 8, "width": 8, "heads": 2})
    ids = torch.randint(256, (3, 9), generator=torch.Generator().manual_seed(0))
    labels = ids[:, 1:].masked_fill((torch.arange(8) % 3 == 0) & ignored, -100)
    model = workload.model().double().eval()
    loss = load(label_smoothing=0.2).loss(workload, model, (ids[:, :-1], labels))
    logits = model(ids[:, :-1])
    target = torch.full_like(logits, 0.2 / (logits.shape[-1] - 1))
    target.scatter_(-1, labels.clamp(min=0).unsqueeze(-1), 0.8)
    expected = F.cross_entropy(logits.mT, target.mT, reduction="none") * (labels >= 0)
    torch.testing.assert_close(loss, expected.mean(1), rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_smoothing_over_many_classes_in_16_bits(dtype: torch.dtype) -> None:
    """A sum over all classes is none of 16 bits: by the technique, and by the workload's field."""
    drawn = torch.randn(7, 9000, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.arange(7)
    plain, smooth = (workloads.load("digits-mlp", {"label_smoothing": e}) for e in (0.0, 0.3))
    part = load(label_smoothing=0.3).parts["label_smoothing"]
    expected = smooth.loss(drawn.double(), (drawn, y))
    with torch.autocast("cpu", dtype):
        found = [part.criterion(plain.loss, drawn, (drawn, y)), smooth.loss(drawn, (drawn, y))]
    for loss in found:
        torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=0)


def test_labels_are_smoothed_and_those_of_a_teacher_are_not() -> None:
    """With ``distill``, (1 - w) of the smoothed loss and w T² of the divergence."""
    workload = workloads.load("digits-mlp")
    draw = torch.Generator().manual_seed(0)
    x, taught = (torch.randn(7, n, generator=draw, dtype=torch.float64) for n in (64, 10))
    batch, model = (x, torch.randint(10, (7,), generator=draw)), workload.model().double()
    distill: Any = {"teacher": "mnist8-fc", "temperature": 3.0, "weight": 0.3}
    loaded = load(distill=distill, label_smoothing=0.2)
    both = loaded.with_arguments({"distill": {"_outputs": lambda _: taught}})
    smoothed = load(label_smoothing=0.2).loss(workload, model, batch)
    student, teacher = (torch.softmax(z / 3, -1) for z in (model(x), taught))
    divergence = (teacher * (teacher / student).log()).sum(-1)
    expected = 0.7 * smoothed + 0.3 * 9 * divergence
    torch.testing.assert_close(both.loss(workload, model, batch), expected, rtol=1e-10, atol=0)


# dropout


def test_dropout_sets_rates_or_is_put_behind_activations() -> None:
    text = workloads.load("lm-transformer", {"context": 8, "width": 8, "heads": 2})
    model = load(dropout=0.3).model(text.model())
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert rates == [0.3] * 3
    mlp = workloads.load("digits-mlp").model()
    names = list(dict(mlp.named_parameters()))
    model = load(dropout=0.3).model(mlp)
    assert list(dict(model.named_parameters())) == names
    assert [type(module) for module in model[1]] == [nn.ReLU, nn.Dropout]  # type: ignore[index]
    twice = load(dropout=0.3).model(nn.Sequential(*[nn.ReLU()] * 2))  # one module
    assert [len(list(part)) for part in twice.children()] == [2, 2]  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", ["module", "stacked"])
@pytest.mark.parametrize("technique", [{"label_smoothing": 0.5}, {"dropout": 0.5}], ids=str)
def test_evaluations_are_without_them(kind: str, technique: dict[str, Any]) -> None:
    plain = study(workload="digits-mlp")
    with_it, without = (
        engine(kind, of, trials(plain, 2)).evaluate("validation")
        for of in (study(workload="digits-mlp", technique=technique), plain)
    )
    assert with_it == without


def test_dropout_zeroes_the_share_that_was_asked() -> None:
    model = load(dropout=0.25).model(nn.Sequential(nn.Linear(8, 8), nn.Tanh())).train()
    torch.manual_seed(0)
    out = model(torch.randn(4_000, 8))
    share = float((out == 0).double().mean())
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / out.numel()) ** 0.5


# stochastic_depth


class _Residual(nn.Module):
    """A residual branch that adds 1 to each example, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.second(self.first(torch.ones_like(x)))
        return x + added


def test_branches_are_left_out_by_the_linear_rule() -> None:
    model = load(stochastic_depth=0.5).model(nn.Sequential(_Residual(), _Residual()))
    torch.manual_seed(0)
    x = torch.zeros(20_000, 1)
    assert torch.equal(model.eval()(x), torch.full_like(x, 2.0))
    with torch.no_grad():
        first = model[0].train()(x)  # type: ignore[index]
        second = model[1].train()(x)  # type: ignore[index]
    for out, rate in ((first, 0.25), (second, 0.5)):
        kept = out != 0
        assert torch.equal(out[kept].unique(), torch.tensor([1 / (1 - rate)]))
        deviation = (rate * (1 - rate) / len(x)) ** 0.5
        assert abs(float((~kept).double().mean()) - rate) < 4 * deviation


def test_whole_examples_are_left_out() -> None:
    technique = {"rate": 0.5, "rule": "uniform"}
    model = load(stochastic_depth=technique).model(nn.Sequential(_Residual())).train()
    torch.manual_seed(0)
    out = model(torch.zeros(50, 3, 4))
    assert {*out.flatten(1).unique(dim=0).flatten().tolist()} == {0.0, 2.0}
    assert torch.equal(out.flatten(1).amin(1), out.flatten(1).amax(1))


@pytest.mark.parametrize(
    ("name", "fields", "branches"),
    [
        ("cifar10-resnet18", {"width": 4}, 8),
        ("imagenet-resnet50", {"width": 4}, 16),
        ("cifar10-resnet8", {}, 3),
        ("lm-transformer", {"layers": 3}, 6),
    ],
)
def test_residual_networks_are_known(name: str, fields: dict[str, Any], branches: int) -> None:
    """Behind batch norm it stays where that is converted to ghost batches."""
    model = workloads.load(name, fields).model()
    names = list(dict(model.named_parameters()))
    changed = convert_batch_norm(load(stochastic_depth=0.1).model(model), 4)
    hooks = [hook for m in changed.modules() for hook in m._forward_hooks.values()]
    assert len(hooks) == branches
    assert list(dict(changed.named_parameters())) == names


def test_torchs_transformer_and_named_branches() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    changed = load(stochastic_depth={"rate": 0.999, "rule": "uniform"}).model(layer).train()
    x = torch.randn(40, 3, 8)
    out = changed(x)
    left = [torch.allclose(out[i], layer.norm2(layer.norm1(x[i])), atol=1e-6) for i in range(40)]
    assert sum(left) > 30
    named = load(stochastic_depth={"rate": 0.1, "branches": ["*.second"]})
    model: Any = named.model(nn.Sequential(_Residual(), _Residual()))
    assert [len(block.second._forward_hooks) for block in model] == [1, 1]
