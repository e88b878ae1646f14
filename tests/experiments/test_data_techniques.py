"""mixup, cutmix, augment, rand_augment, resize and select do what they say, in both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import techniques
from experiments.engines import check_contract, stackable
from experiments.errors import ExperimentError
from experiments.plan import WorkloadRef
from experiments.techniques.composed import Augmentation
from experiments.training.study_context import StudyContext
from tests.problems import engine, study, trials

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
    assert "different sizes" in str(stackable(StudyContext.load(of), pack))


def test_resize_refuses_a_model_of_one_size(tmp_path: Path) -> None:
    flat = IMAGES.replace("nn.AdaptiveAvgPool2d(2), ", "").replace("16, 3", "256, 3")
    (tmp_path / "images.py").write_text(flat)
    ref = WorkloadRef(spec="images.py:Images", base=str(tmp_path))
    of = study(workload=ref, technique={"resize": 0.5}, budget_steps=40)
    with pytest.raises(ExperimentError, match="does not take images of 4 x 4 pixels"):
        check_contract(StudyContext.load(of), trials(of, 1)[0])


def test_select_gives_the_largest_losses_their_mean() -> None:
    part = techniques.load({"select": 0.4}, None).parts["select"]
    weights = part.select(torch.tensor([0.1, 3.0, 0.2, 2.0, 1.0]), torch.tensor(0))
    assert weights.tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]
